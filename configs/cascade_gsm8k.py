"""Cascade speculative drafting of Flan-T5-XXL on GSM8K (Chen et al. 2024, Table 2).

    python -m specjax.main --config=configs/cascade_gsm8k.py --dry_run
    python -m specjax.main --config=configs/cascade_gsm8k.py:pw --config.mesh.model=1 \
      --config.ngram_table=wiki_bigram_naive_bayers_greedy_next_token.json

Base and small review each other and Max-Gram, beside plain speculative decoding at the paper's best
draft lengths and cascades of one drafter with Max-Gram. Behind the colon is how calls are priced:
by model size (ms, where the paper's standardized walltime improvement is 3.75) or as measured
earlier (pw, 3.29). The bigram table is the one that the authors published; without it one is fitted
from answers.
Resources as `flan_t5xxl_gsm8k.py`. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.common import cascade_flan_t5

SETTINGS = {
    "ms": {
        "plain": {"base": 10, "small": 11},
        "copied": {"base": 9, "small": 11},
        "both": (7, 3, 1),
        "penalty": 1.5,
    },
    "pw": {
        "plain": {"base": 8, "small": 8},
        "copied": {"base": 8, "small": 7},
        "both": (5, 4, 1),
        "penalty": 1.5,
    },
}


def get_config(prices: str = "ms") -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return cascade_flan_t5(prices, SETTINGS, task="gsm8k", max_prompt_tokens=256, bucket=32)
