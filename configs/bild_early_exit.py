"""BiLD whose small model is the first layer of mT5-small, against CALM (Big Little Decoder, 4.4).

    python -m specjax.main --config=configs/bild_early_exit.py --dry_run
    python -m specjax.main --config=configs/sweep.py:configs/bild_early_exit.py \
      --workdir=runs/exit_bild --config.base.target=TRAINED_FOR_BILD
    python -m specjax.main --config=configs/sweep.py:configs/bild_early_exit.py:calm \
      --workdir=runs/exit_calm --config.base.target=TRAINED_FOR_CALM

Each method decodes a target trained for it: `configs/training/bild_early_exit_mt5_iwslt.py` and
`configs/training/calm_mt5_iwslt.py`. Without `sweep.py` it decodes at the middle of the thresholds.
Resources: 0.6 GB of weights in bfloat16, any GPU or one TPU core. The paper: within one BLEU point
of the target 1.60 times faster, and up to 2 points above CALM at its speed. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.bild import early_exit_config


def get_config(method: str = "bild") -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return early_exit_config(
        method,
        fallback=(0.2, 0.4, 0.5, 0.6, 0.8),
        rollback=(0.5, 0.75, 1.0, 1.25, 1.5),
        threshold=(0.7, 0.8, 0.9, 0.95, 0.98),
        tau=(0.0, 1.0, 2.0, 4.0, 8.0),
        task="iwslt17_deen",
        target="google/mt5-small",
        dtype="bfloat16",
        max_prompt_tokens=256,
        max_new_tokens=128,
        bucket=32,
    )
