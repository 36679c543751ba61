"""GPT-like models of 97M and 6M parameters on lm1b (Leviathan et al. 2023, Table 3).

    python -m specjax.main --config=configs/gpt_lm1b.py --dry_run
    python -m specjax.main --config=configs/gpt_lm1b.py --config.target=DIR --config.drafter=DIR

The paper's weights were not published: the names below stand for its shapes (12 layers of width
768, 2 layers of width 256, GELU, 8k pieces), to be trained on lm1b and given as directories.
Resources: 0.2 GB of weights in bfloat16, any device. The paper's acceptance rates at T=0 / T=1: 6M
0.88 / 0.89, unigram 0.03 / 0.03, bigram 0.05 / 0.05. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import AUTOREGRESSIVE, SAMPLED, decode_config, neural_spec


def get_config() -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return decode_config(
        task="lm1b",
        target="gpt-lm1b-97m",
        drafter="gpt-lm1b-6m",
        dtype="bfloat16",
        max_prompt_tokens=128,
        max_new_tokens=128,
        bucket=16,
        strategies={
            "autoregressive": AUTOREGRESSIVE,
            "speculative_10": neural_spec("drafter", 10),
            "unigram": {"drafter": "unigram", "length": 1},
            "bigram": {"drafter": "bigram", "length": 2},
            "sampled": SAMPLED,
            "speculative_sampling": neural_spec("drafter", 10, temperature=1.0),
            "unigram_sampled": {"drafter": "unigram", "length": 1, "temperature": 1.0},
            "bigram_sampled": {"drafter": "bigram", "length": 2, "temperature": 1.0},
        },
    )
