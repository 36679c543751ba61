"""BiLD on Multi30k En-De: an unaligned and an aligned drafter, ablations and baselines.

    python -m specjax.main --config=configs/bild_multi30k.py:ALIGNED --workdir=runs/bild \
      --config.target=DIR --config.drafter=DIR \
      --config.data.kind=text --config.data.path=test.en.gz --config.data.reference_path=test.de.gz

decodes at the middle of the thresholds. ALIGNED is the directory of the aligned drafter, as
`configs/training/align.py` makes it; without it and its colon, the other drafter runs alone. The
whole sweep, one Pareto plot and one summary (best speed without loss, and within one point):

    python -m specjax.main --config=configs/sweep.py:configs/bild_multi30k.py:ALIGNED \
      --workdir=runs/bild --config.base.target=DIR --config.base.drafter=DIR \
      --config.base.data.kind=text --config.base.data.path=test.en.gz \
      --config.base.data.reference_path=test.de.gz

How seldom the target must step in at all: `configs/engagement.py`.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.bild import bild_config


def get_config(aligned: str = "") -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return bild_config(
        fallback=(0.2, 0.4, 0.6, 0.8),
        rollback=(1.0, 2.0, 4.0),
        aligned=aligned,
        task="multi30k_ende",
        max_prompt_tokens=96,
    )
