"""BiLD: T5-large with T5-small on XSum (Big Little Decoder, Tables 1 and 3).

    python -m specjax.main --config=configs/bild_xsum.py --dry_run
    python -m specjax.main --config=configs/bild_xsum.py \
      --config.target=YOUR_LARGE --config.drafter=YOUR_SMALL --config.drafters.aligned=YOUR_ALIGNED
    python -m specjax.main --config=configs/sweep.py:configs/bild_xsum.py \
      --config.base.target=YOUR_LARGE --config.base.drafter=YOUR_SMALL \
      --config.base.drafters.aligned=YOUR_ALIGNED

All models fine-tuned on the task, the aligned one on the large one's summaries of its training
texts. The second command decodes at the middle of the thresholds, the third sweeps them with the
ablations and baselines into one Pareto plot and one summary. Resources: 1.7 GB of weights in
bfloat16, any GPU or one TPU core. The paper: ROUGE-L 35.08 of the large model; at its ROUGE-L 1.48
times faster unaligned and 1.50 aligned, within one point 1.72 and 1.80; rejection sampling 35.00 at
1.25. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.bild import bild_config


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return bild_config(
        fallback=(0.2, 0.3, 0.4, 0.5, 0.6),
        rollback=(2.0, 3.0, 4.0, 5.0, 6.0),
        task="xsum",
        target="google-t5/t5-large",
        drafter="google-t5/t5-small",
        aligned="google-t5/t5-small",
        dtype="bfloat16",
        max_prompt_tokens=1024,
        max_new_tokens=128,
        bucket=128,
    )
