"""BiLD: mT5-large with mT5-small on WMT14 De-En (Big Little Decoder, Table 1).

    python -m specjax.main --config=configs/bild_wmt.py --dry_run
    python -m specjax.main --config=configs/bild_wmt.py \
      --config.target=YOUR_LARGE --config.drafter=YOUR_SMALL --config.drafters.aligned=YOUR_ALIGNED
    python -m specjax.main --config=configs/sweep.py:configs/bild_wmt.py \
      --config.base.target=YOUR_LARGE --config.base.drafter=YOUR_SMALL \
      --config.base.drafters.aligned=YOUR_ALIGNED

All models fine-tuned on the task, with the recipe of `configs/training/bild_mt5_iwslt.py`. The
second command decodes at the middle of the thresholds, the third sweeps them with the ablations and
baselines into one Pareto plot and one summary. Resources: 3.7 GB of weights in bfloat16, any GPU or
one TPU core. The paper: BLEU 31.38 of the large model; at its BLEU 1.34 times faster unaligned and
1.47 aligned, within one point 1.43 and 1.70. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.bild import bild_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return bild_config(
        fallback=(0.5, 0.6, 0.7, 0.8, 0.9),
        rollback=(1.0, 2.0, 3.0, 5.0, 10.0),
        task="wmt14_deen",
        target="google/mt5-large",
        drafter="google/mt5-small",
        aligned="google/mt5-small",
        dtype="bfloat16",
        max_prompt_tokens=256,
        max_new_tokens=128,
        bucket=32,
    )
