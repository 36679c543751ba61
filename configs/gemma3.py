"""Gemma 3 27B answers GSM8K in a chat, drafted for by Gemma 3 1B.

    python -m specjax.main --config=configs/gemma3.py --dry_run
    python -m specjax.main --config=configs/gemma3.py --dry_run --config.topology=v5e:2x4

Resources: 54 GB of weights in bfloat16 (the text part of the published checkpoint), over the eight
16 GB chips of a TPU v5e 2x4 as set here. The dry run counts 8.23 GiB on each: 6.29 of the target,
1.86 of the drafter, which is whole on every chip, and 0.08 of caches, for of six layers five see
1024 tokens. The drafter's
vocabulary is the target's but for 64 ids that no text has. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="gsm8k",
        target="google/gemma-3-27b-it",
        drafter="google/gemma-3-1b-it",
        chat=True,
        dtype="bfloat16",
        mesh={"data": 1, "model": 8},
        max_prompt_tokens=512,
        max_new_tokens=512,
        bucket=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_4": neural_spec("drafter", 4),
            "speculative_7": neural_spec("drafter", 7),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 5},
            "sampled": SAMPLED,
            "speculative_sampling": neural_spec("drafter", 5, temperature=1.0),
        },
    )
