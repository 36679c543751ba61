"""Texts that change their language: an arm for every round beside one for every text.

    python benchmarks/mixed_texts.py --english=test.en.gz --german=test.de.gz --out=mixed.jsonl
    python -m specjax.main --workdir=runs/mixed \
      --config=configs/selection/mixed.py:policy=runs/policy/policy \
      --config.target=DIR --config.drafters.ende=DIR --config.drafters.deen=DIR \
      --config.source_file=mixed.jsonl

The arms and ways of choosing of `configs/selection/multi30k.py`, and `switched`, which chooses a
drafter and a draft length at every round. Its costs are those of the small T5 models on two CPU
cores: `costs.greedy.<model>.c` of results.json says what they are elsewhere.
docs/lab_book/selection.md has figures.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import decode_config
from specjax.experiments.recipes.selection import parse_choices

SWITCHED = {
    "drafter": "switched",
    "arms": ("deen", "ende", "none"),
    "costs": (0.06, 0.06, 0.0),
    "verification": 0.02,
    "overhead": 0.4,
}
"""Costs in target steps. A call of 4 to 8 tokens takes 1.4 to 1.6 of them."""


def get_config(words: str = "") -> ConfigDict:
    """The experiment; `words` are policy, oracle, temperature, length."""
    drafters, strategies, _ = parse_choices(words, "none,ende=,deen=")
    return decode_config(
        name="both directions in one text",
        source_field="text",
        examples=0,
        drafters=drafters,
        bucket=16,
        strategies={**strategies, "switched": SWITCHED},
    )
