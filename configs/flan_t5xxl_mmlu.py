"""Flan-T5-XXL on MMLU, zero-shot chain of thought (CSD, Table 2).

    python -m specjax.main --config=configs/flan_t5xxl_mmlu.py --dry_run
    python -m specjax.main --config=configs/flan_t5xxl_mmlu.py --config.mesh.model=1

Resources as `flan_t5xxl_gsm8k.py`. The paper's best draft lengths for plain speculative decoding:
base 13 and small 19 counted by model size, 10 and 11 by its measured latencies. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="mmlu",
        target="google/flan-t5-xxl",
        drafters={"base": "google/flan-t5-base", "small": "google/flan-t5-small"},
        dtype="bfloat16",
        mesh={"data": 1, "model": 8},
        max_prompt_tokens=1024,
        max_new_tokens=256,
        bucket=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "base_13": neural_spec("base", 13),
            "small_19": neural_spec("small", 19),
            "base_10": neural_spec("base", 10),
            "small_11": neural_spec("small", 11),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 10},
        },
    )
