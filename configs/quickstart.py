"""The embedded default: nothing but the installed package.

    python -m specjax.main                      # or ./launch/quickstart.sh

Trains a tiny English-German T5 on the built-in grammar, and a drafter that begins as its first
layers; shows one sentence with and without drafts; then decodes held-out sentences with every
strategy. No network, no accelerator; most of the time is training. Expected: BLEU above 80, every
lossless greedy strategy identical to the target, and neural drafts of six tokens the fastest.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        experiment="quickstart",
        name="built-in English-German grammar",
        metric="bleu",
        examples=40,
        repeats=2,
        max_new_tokens=48,
        max_prompt_tokens=64,
        bucket=48,  # one shape: compiling costs more than padding here
        training=_training(),
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_3": neural("drafter", 3),
            "speculative_6": neural("drafter", 6),
            "sampled": SAMPLED,
            "speculative_sampling": neural("drafter", 6, temperature=1.0),
            "bigram": {"drafter": "bigram", "length": 3},
            "max_gram": {"drafter": "max_gram", "length": 5},
            "lenient": neural("drafter", 6, rule="lenient", lenience=0.3),
        },
    )


def _training() -> ConfigDict:
    """The corpus and the two models."""
    training = ConfigDict()
    training.examples = 20_000
    training.test_examples = 200
    training.vocab_size = 2048
    training.most_tokens = 28  # of a sentence that is learned from: one shape to compile
    training.batch_size = 32
    training.seed = 0
    training.target = ConfigDict(
        {
            "d_model": 128,
            "d_kv": 32,
            "num_heads": 4,
            "d_ff": 512,
            "num_layers": 2,
            "num_decoder_layers": 2,
            "warmup": 60,
            "learning_rate": 2.5e-2,
            "steps": 700,
            "deep_layers": 16,  # decoder layers after the last steps
            "deep_steps": 10,
        }
    )
    training.drafter = ConfigDict(  # begins as the first layers of the target
        {
            "num_layers": 2,
            "num_decoder_layers": 1,
            "warmup": 10,
            "learning_rate": 1e-2,
            "steps": 220,
        }
    )
    return training
