"""Every arm of a choice alone, and every way of choosing among them, on any text.

    python -m specjax.main --config='configs/selection/choose.py:none,small=DIR,exit=2;policy=DIR' \
      --workdir=runs/choose --config.target=DIR \
      --config.source_file=runs/select_test/queries.jsonl

The arms are spelled as for `configs/selection/data.py`, settings behind a semicolon: the folder of
a `policy`, a file of best choices (`oracle`), `temperature`, `length`. Decodes the queries of a
folder of offline data, or any file or task. docs/how_to/selection.md has commands.
"""

from ml_collections import ConfigDict

from specjax.experiments.config.defaults import decode_config
from specjax.experiments.recipes.selection import parse_choices


def get_config(words: str = "none,drafter=") -> ConfigDict:
    """The experiment on `ARMS;SETTINGS`."""
    arms, _, settings = words.partition(";")
    drafters, strategies, _ = parse_choices(settings, arms)
    return decode_config(
        source_field="text",
        examples=0,
        drafters=drafters,
        bucket=16,
        strategies=strategies,
    )
