"""Sets of texts that a config names, each with fields of its own that say where it is read."""

from __future__ import annotations

from ml_collections import ConfigDict

from specjax.core.registry import TASKS
from specjax.errors import UserError
from specjax.experiments.config.defaults import example_fields
from specjax.experiments.config.fields import check_choices, check_groups, check_integers
from specjax.experiments.config.templates import check_group


def check_sources(config: ConfigDict, field: str, what: str) -> None:
    """Refuses members of `config[field]`, each `what`, that cannot be read.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_groups(config, field)
    for name, source in config[field].items():
        check_group(example_fields(), source, f"config.{field}.{name}", what)
        check_choices(config, {f"{field}.{name}.task": ("", *TASKS)})
        check_integers(config, {f"{field}.{name}.examples": 0})
        if bool(source.task) == bool(source.source_file):
            raise UserError(
                f"config.{field}.{name} has task {source.task!r} and source_file"
                f" {source.source_file!r}; one of them must say what is read, and only one"
            )
