"""Choosing a drafter on Multi30k in both directions and GSM8K: every arm, policies, a bandit.

    P=runs/policy
    python -m specjax.main --workdir=runs/choose \
      --config=configs/selection/multi30k.py:policy=$P/policy,oracle=$P/oracle.json \
      --config.target=DIR --config.drafters.ende=DIR --config.drafters.deen=DIR \
      --config.source_file=runs/select_test/queries.jsonl

decodes the queries of `configs/selection/data_multi30k.py:test`, all tasks in one file, with a
policy and the file of best choices that `configs/selection/policy.py` made. Without them, and
without the colon, the other strategies run: single arms, chance, an online bandit. `temperature=1`
and `length=5` behind the colon sample and draft differently (experiment 7). Context-aware assistant
selection, experiments 1, 4 and 7, on models that run here; docs/lab_book/selection.md has the
figures.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import decode_config
from specjax.experiments.recipes.selection import parse_choices


def get_config(words: str = "") -> ConfigDict:
    """The experiment; `words` are policy, oracle, temperature, length."""
    drafters, strategies, _ = parse_choices(words, "none,ende=,deen=")
    return decode_config(
        name="both directions and questions",
        source_field="text",
        group_field="task",
        examples=0,
        drafters=drafters,
        bucket=16,
        strategies=strategies,
    )
