"""Flan-T5-XXL on GSM8K, zero-shot chain of thought (CSD, Table 2).

    python -m specjax.main --config=configs/flan_t5xxl_gsm8k.py --dry_run
    python -m specjax.main --config=configs/flan_t5xxl_gsm8k.py --config.mesh.model=1

Resources: 22 GB of weights in bfloat16, one 80 GB GPU or eight 16 GB TPU cores (as set here). The
paper's best draft lengths for plain speculative decoding: base 10 and small 11 counted by model
size, 8 and 8 by its measured latencies. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="gsm8k",
        target="google/flan-t5-xxl",
        drafters={"base": "google/flan-t5-base", "small": "google/flan-t5-small"},
        dtype="bfloat16",
        mesh={"data": 1, "model": 8},
        max_prompt_tokens=256,
        max_new_tokens=256,
        bucket=32,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "base_10": neural_spec("base", 10),
            "small_11": neural_spec("small", 11),
            "base_8": neural_spec("base", 8),
            "small_8": neural_spec("small", 8),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 8},
        },
    )
