"""mT5-large with mT5-small on IWSLT17 De-En (Big Little Decoder, Table 1 models).

    python -m specjax.main --config=configs/mt5_iwslt_deen.py --dry_run
    python -m specjax.main --config=configs/mt5_iwslt_deen.py \
      --config.target=YOUR_LARGE --config.drafter=YOUR_SMALL

Both models must be fine-tuned on the task (the published ones are pre-trained only). Resources:
2.6 GB of weights in bfloat16, any GPU or one TPU core. The paper's large model reaches BLEU 40.32
there. Rejection sampling (the lossless rule) in the paper's Table 3: BLEU 39.93, 1.28 times
faster. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="iwslt17_deen",
        target="google/mt5-large",
        drafter="google/mt5-small",
        dtype="bfloat16",
        max_prompt_tokens=256,
        max_new_tokens=128,
        bucket=32,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_3": neural_spec("drafter", 3),
            "speculative_5": neural_spec("drafter", 5),
            "speculative_10": neural_spec("drafter", 10),
            "sampled": SAMPLED,
            "speculative_sampling": neural_spec("drafter", 5, temperature=1.0),
        },
    )
