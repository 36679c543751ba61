"""BiLD whose small model is the target's first layer, against CALM, on Multi30k En-De.

    python -m specjax.main --config=configs/sweep.py:configs/bild_early_exit_multi30k.py \
      --workdir=runs/exit_bild --config.base.target=TRAINED_FOR_BILD \
      --config.base.data.kind=text --config.base.data.path=test.en.gz \
      --config.base.data.reference_path=test.de.gz

and the same for CALM, with `:calm` behind the file. Each decodes a target trained for it by
`configs/training/early_exit.py` (for CALM with all exits and linear weights, as its docstring
says). Without `sweep.py:` and `.base` it decodes at the middle of the thresholds.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.bild import early_exit_config


def get_config(method: str = "bild") -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return early_exit_config(
        method,
        fallback=(0.2, 0.4, 0.6, 0.8),
        rollback=(0.5, 1.0, 1.5),
        threshold=(0.7, 0.8, 0.9, 0.95, 0.98),
        tau=(0.0, 4.0),
        task="multi30k_ende",
        max_prompt_tokens=96,
    )
