"""Llama-2-13B-Chat on Alpaca instructions (assistant selection, Table 6's target and data).

    python -m specjax.main --config=configs/llama2_13b_alpaca.py --dry_run
    python -m specjax.main --config=configs/llama2_13b_alpaca.py

Resources: 26 GB of weights in bfloat16, one 40 GB GPU; `--config.mesh.model=8` splits them. The
paper decodes at 26.43 ms/token without a drafter and lets the target draft with its own first
layers (exits at 8, 16, 24, 32: 0.77, 0.81, 0.73, 0.50 times that speed); here a 68M model and
copying draft instead. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="alpaca",
        target="meta-llama/Llama-2-13b-chat-hf",
        drafter="JackFram/llama-68m",
        dtype="bfloat16",
        max_prompt_tokens=512,
        max_new_tokens=256,
        bucket=64,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_5": neural_spec("drafter", 5),
            "speculative_7": neural_spec("drafter", 7),
            "prompt_lookup": {"drafter": "prompt_lookup", "length": 5},
            "sampled": SAMPLED,
            "speculative_sampling": neural_spec("drafter", 5, temperature=1.0),
        },
    )
