"""Cascade speculative drafting of Flan-T5-XXL on MMLU (Chen et al. 2024, Table 2).

    python -m specjax.main --config=configs/cascade_mmlu.py --dry_run
    python -m specjax.main --config=configs/cascade_mmlu.py:pw --config.mesh.model=1 \
      --config.ngram_table=wiki_bigram_naive_bayers_greedy_next_token.json

Base and small review each other and Max-Gram, beside plain speculative decoding at the paper's best
draft lengths and cascades of one drafter with Max-Gram. Behind the colon is how calls are priced:
by model size (ms, where the paper's standardized walltime improvement is 4.83) or as measured
earlier (pw, 4.23; the published code has lambda 5 there, the table 1.5). The bigram table is the
one that the authors published; without it one is fitted from answers.
Resources as `flan_t5xxl_gsm8k.py`. Not run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.recipes.common import cascade_flan_t5

SETTINGS = {
    "ms": {
        "plain": {"base": 13, "small": 19},
        "copied": {"base": 12, "small": 17},
        "both": (5, 14, 1),
        "penalty": 2.0,
    },
    "pw": {
        "plain": {"base": 10, "small": 11},
        "copied": {"base": 9, "small": 12},
        "both": (5, 8, 1),
        "penalty": 1.5,
    },
}


def get_config(prices: str = "ms") -> ConfigDict:
    """The experiment; every field can be set by a flag."""
    return cascade_flan_t5(prices, SETTINGS, task="mmlu", max_prompt_tokens=1024, bucket=64)
