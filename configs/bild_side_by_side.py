"""BiLD's thresholds, its ablations and lossless drafting, decoded in alternation in one run.

    python -m specjax.main --config=configs/bild_side_by_side.py:ALIGNED --workdir=runs/pareto \
      --config.target=DIR --config.drafter=DIR --config.data.kind=text \
      --config.data.path=test.en.gz --config.data.reference_path=test.de.gz --config.bucket=24

The points of a sweep run one after another, and a machine changes by more than they differ. ALIGNED
is the directory of the aligned drafter (`configs/training/align.py`); without it and its colon the
other one runs alone. `ALIGNED;reviewed` lets the target review the last window of a text too
(`verify_eos`), which decides on short texts. The report's plot of quality against latency is the
Pareto plot.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.bild import side_by_side_config
from specjax.runtime.errors import UserError


def get_config(options: str = "") -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    aligned, _, ends = options.partition(";")
    if ends not in ("", "reviewed"):
        raise UserError(f"the config's ending is {ends!r}; it must be 'reviewed' or nothing")
    return side_by_side_config(
        fallback=(0.3, 0.5),
        rollback=(1.0, 2.0, 4.0),
        window=10,
        aligned=aligned,
        verify_eos=bool(ends),
        task="multi30k_ende",
        max_prompt_tokens=96,
        repeats=1,
    )
