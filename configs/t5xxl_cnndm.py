"""T5-XXL with small, base and large drafters on CNN/DailyMail (Leviathan et al. 2023, Table 2).

    python -m specjax.main --config=configs/t5xxl_cnndm.py --dry_run
    python -m specjax.main --config=configs/t5xxl_cnndm.py \
      --config.target=YOUR_XXL --config.drafters.small=YOUR_SMALL ...

As `t5xxl_ende.py`: fine-tuned T5 v1.1 checkpoints, one 80 GB GPU or eight TPU cores. The paper on
a TPU v4: small 3.1 times faster at T=0 (draft length 5, acceptance 0.65) and 2.3 at T=1 (5, 0.53);
base 3.0 (5, 0.73) and 2.2 (3, 0.55); large 2.2 (3, 0.74) and 1.7 (3, 0.56). Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="cnn_dailymail",
        target="google/t5-v1_1-xxl",
        drafters={
            "small": "google/t5-v1_1-small",
            "base": "google/t5-v1_1-base",
            "large": "google/t5-v1_1-large",
        },
        dtype="bfloat16",
        mesh={"data": 1, "model": 8},
        max_prompt_tokens=2048,
        max_new_tokens=128,
        bucket=256,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "small_greedy": neural_spec("small", 5),
            "base_greedy": neural_spec("base", 5),
            "large_greedy": neural_spec("large", 3),
            "sampled": SAMPLED,
            "small_sampled": neural_spec("small", 5, temperature=1.0),
            "base_sampled": neural_spec("base", 3, temperature=1.0),
            "large_sampled": neural_spec("large", 3, temperature=1.0),
        },
    )
