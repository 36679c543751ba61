"""Qwen3-30B-A3B, a mixture of 128 experts, with Qwen3-0.6B as drafter on GSM8K in a chat.

    python -m specjax.main --config=configs/qwen3_moe.py --dry_run
    python -m specjax.main --config=configs/qwen3_moe.py --dry_run --config.topology=v4:2x2x1
    python -m specjax.main --config=configs/qwen3_moe.py --workdir=runs/qwen3_moe

The template disables thinking, for which 256 tokens would not do.
A token has 8 experts of each layer, so that a step of one token reads about a tenth of the weights.
A draft of K tokens makes the verification read those of K + 1 tokens: by the formula of
docs/methods/operations.md 8, 29 and 52 of 128 experts for K = 0, 3 and 7. At batch size 1, where
memory is the bound, v(1) is 1.6 and v(7) is 4.2, so that short drafts win, and little.
Resources: 61 GB of weights in bfloat16, split over 4 devices by the experts' widths. The dry run
counts 15.45 GiB on each: 14.24 of the target, 1.11 of the drafter, which is whole, and 0.10 of
caches: too much for the 16 GB chips of a TPU v5e 2x2, and half of a v4's. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="gsm8k",
        target="Qwen/Qwen3-30B-A3B",
        drafter="Qwen/Qwen3-0.6B",
        chat=True,
        chat_template_kwargs={"enable_thinking": False},
        dtype="bfloat16",
        mesh={"data": 1, "model": 4},
        examples=200,
        max_prompt_tokens=512,
        max_new_tokens=256,
        bucket=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_1": neural_spec("drafter", 1),
            "speculative_3": neural_spec("drafter", 3),
            "speculative_7": neural_spec("drafter", 7),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 3},
        },
    )
