"""Offline data on Multi30k in both directions and GSM8K: two specialized drafters, or none.

    python -m specjax.main --config=configs/selection/data_multi30k.py --workdir=runs/select_data \
      --config.target=DIR --config.drafters.ende=DIR --config.drafters.deen=DIR \
      --config.tasks.ende.data.path=train.en.gz \
      --config.tasks.ende.data.reference_path=train.de.gz \
      --config.tasks.deen.data.path=train.de.gz \
      --config.tasks.deen.data.reference_path=train.en.gz \
      --config.tasks.gsm8k.data.path=train.jsonl.gz

The target translates both ways, each drafter one, and nobody answers questions: the task that no
drafter helps. `configs/selection/data_multi30k.py:test` makes 100 queries of each with measured
seconds, to score policies on, and `:test_sampled` measures at temperature 1; give these the test
files. Without paths the hub is read. docs/lab_book/selection.md has run times and figures.
Context-aware assistant selection, experiments 1 and 4, on models that run here.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import select_data_config
from specjax.experiments.recipes.selection import offline_split, parse_arms


def get_config(split: str = "train") -> ConfigDict:
    """The data of a split: `train`, `test` or `test_sampled`."""
    name, temperature, changes = offline_split(split)
    drafters, arms = parse_arms("none,ende=,deen=", temperature)
    count = {"examples": 100 if changes else 1600, "data": {"split": name}}
    return select_data_config(
        tasks={
            "ende": {"task": "multi30k_ende", **count},
            "deen": {"task": "multi30k_deen", **count},
            "gsm8k": {"task": "gsm8k_qa", **count},
        },
        drafters=drafters,
        strategies=arms,
        bucket=16,
        **changes,
    )
