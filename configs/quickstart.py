"""The embedded default: nothing but the installed package.

    python -m specjax.main                      # or ./launch/quickstart.sh

Trains a tiny English-German T5 and a drafter about ten times smaller on the built-in grammar, then
decodes held-out sentences with every strategy. No network, no accelerator; about four and a half
minutes on two CPU cores, of which three are training. Expected: BLEU above 80 (92 to 99 seen),
every lossless greedy strategy identical to the target, the best at least 1.4 times faster than
jitted autoregressive decoding (1.6 to 1.7 seen).
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        experiment="quickstart",
        name="built-in English-German grammar",
        metric="bleu",
        examples=60,
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
    training.examples = 30_000
    training.test_examples = 200
    training.vocab_size = 2048
    common = {"seed": 0, "batch_size": 32, "bucket": 24, "warmup": 60, "learning_rate": 2.5e-2}
    training.target = ConfigDict(
        {
            **common,
            "d_model": 192,
            "d_kv": 32,
            "num_heads": 6,
            "d_ff": 768,
            "num_layers": 2,
            "num_decoder_layers": 2,
            "steps": 900,
            "deep_layers": 12,  # decoder layers after the last steps
            "deep_steps": 30,
        }
    )
    training.drafter = ConfigDict(
        {
            **common,
            "d_model": 128,
            "d_kv": 32,
            "num_heads": 4,
            "d_ff": 512,
            "num_layers": 2,
            "num_decoder_layers": 1,
            "steps": 800,
            "deep_layers": 1,
            "deep_steps": 0,
        }
    )
    return training
