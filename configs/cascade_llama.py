"""Cascade speculative drafting of Llama-2-7B-Chat on GSM8K (Chen et al. 2024, section 5).

    python -m specjax.main --config=configs/cascade_llama.py --dry_run
    python -m specjax.main --config=configs/cascade_llama.py \
      --config.ngram_table=wiki_bigram_naive_bayers_greedy_llama_next_token.json

A 160M and a 68M drafter with Max-Gram; the published code uses the 160M one with k_11 = 5. Calls
are priced by size; the published price of the target, 70,000 million, is ten times its size.
Without the authors' bigram table one is fitted from answers. Resources: 14 GB of weights in
bfloat16, one 24 GB GPU. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import (
    AUTOREGRESSIVE,
    cascade_spec,
    decode_config,
    neural_spec,
)


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="gsm8k",
        target="meta-llama/Llama-2-7b-chat-hf",
        drafters={"base": "JackFram/llama-160m", "small": "JackFram/llama-68m"},
        dtype="bfloat16",
        max_prompt_tokens=256,
        max_new_tokens=200,
        bucket=32,
        prices={"target": 7000, "base": 160, "small": 68},
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "base_5": neural_spec("base", 5),
            "small_5": neural_spec("small", 5),
            "base_max_gram": cascade_spec(("base", "max_gram"), ((5, 10), (0, 10))),
            "small_max_gram": cascade_spec(("small", "max_gram"), ((5, 10), (0, 10))),
            "cascade": cascade_spec(
                ("base", "small", "max_gram"), ((5, 3, 10), (0, 1, 10), (0, 0, 10))
            ),
        },
    )
