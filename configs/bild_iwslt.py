"""BiLD: mT5-large with mT5-small on IWSLT17 De-En (Big Little Decoder, Tables 1 and 3).

    python -m specjax.main --config=configs/bild_iwslt.py --dry_run
    python -m specjax.main --config=configs/bild_iwslt.py \
      --config.target=YOUR_LARGE --config.drafter=YOUR_SMALL --config.drafters.aligned=YOUR_ALIGNED
    python -m specjax.main --config=configs/sweep.py:configs/bild_iwslt.py \
      --config.base.target=YOUR_LARGE --config.base.drafter=YOUR_SMALL \
      --config.base.drafters.aligned=YOUR_ALIGNED

All models fine-tuned on the task: `configs/training/bild_mt5_iwslt.py` trains large and small,
`configs/training/bild_align_mt5_iwslt.py` the aligned one. The second command decodes at the middle
of the thresholds, the third sweeps them with the ablations and baselines into one Pareto plot and
one summary. Resources: 3.7 GB of weights in bfloat16, any GPU or one TPU core. The paper:
BLEU 40.32 of the large model; at its BLEU 1.43 times faster unaligned and 1.62 aligned, within
one point 1.58 and 1.78; rejection sampling 39.93 at 1.28. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.bild import bild_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return bild_config(
        fallback=(0.5, 0.6, 0.7, 0.8, 0.9),
        rollback=(1.0, 2.0, 3.0, 5.0, 10.0),
        task="iwslt17_deen",
        target="google/mt5-large",
        drafter="google/mt5-small",
        aligned="google/mt5-small",
        dtype="bfloat16",
        max_prompt_tokens=256,
        max_new_tokens=128,
        bucket=32,
    )
