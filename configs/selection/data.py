"""Offline data for any arms on any task: what each of them does on every query.

    python -m specjax.main --config=configs/selection/data.py:none,small=DIR,exit=2 \
      --workdir=runs/select_data --config.target=DIR \
      --config.tasks.queries.task=gsm8k_qa --config.tasks.queries.data.path=train.jsonl.gz

Behind the colon are the arms: drafters as name=directory (or hub id), `exit=2` for the target's
first two decoder layers, `none` for no drafter. `--config.repeats=3` also measures seconds by every
arm. Context-aware assistant selection on what runs here: drafters of several sizes (experiment 2),
Spec-Bench (5: `--config.tasks.queries.task=spec_bench --config.tasks.queries.turns=1`) and
self-drafting (6: exits alone).
docs/how_to/selection.md has commands and run times.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import select_data_config
from specjax.experiments.recipes.selection import parse_arms


def get_config(arms: str = "none,drafter=") -> ConfigDict:
    """The data of arms `name=directory,exit=layers,none`."""
    drafters, strategies = parse_arms(arms)
    return select_data_config(
        tasks={"queries": {"examples": 2000}},
        drafters=drafters,
        strategies=strategies,
        bucket=16,
    )
