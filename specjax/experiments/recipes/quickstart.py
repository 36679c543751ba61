"""The embedded default: needs only the installed package.

    python -m specjax.main                      # or ./launch/quickstart.sh

Trains a tiny English-German T5 on the built-in grammar, and a drafter that begins as its first
layers; shows one sentence with and without drafts; then decodes held-out sentences with every
strategy. No network, no accelerator; most of the time is training. Expected: BLEU above 80, every
lossless greedy strategy identical to the target, and neural drafts of seven tokens the fastest.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, make_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return make_config(
        "quickstart",
        name="built-in English-German grammar",
        metric="bleu",
        examples=40,
        repeats=1,
        max_new_tokens=32,
        max_prompt_tokens=64,
        bucket=24,  # one shape, compiled during training
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_3": neural_spec("drafter", 3),
            "speculative_7": neural_spec("drafter", 7),
            "sampled": SAMPLED,
            "speculative_sampling": neural_spec("drafter", 7, temperature=1.0),
            "max_gram": {"drafter": "max_gram", "length": 3},
            "lenient": neural_spec("drafter", 7, rule="lenient", lenience=0.3),
        },
    )
