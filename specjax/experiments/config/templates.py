"""Which fields the config of each experiment has, and of which types: those of its defaults."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from ml_collections import ConfigDict

from specjax.errors import UserError
from specjax.experiments.config import defaults, online, training, transcribing
from specjax.experiments.config.command_line import DEFAULT_CONFIG
from specjax.experiments.config.file import read_config

TEMPLATES: dict[str, Callable[[], ConfigDict]] = {
    "beams": defaults.beams_config,
    "compare": defaults.compare_config,
    "decode": defaults.decode_config,
    "engagement": defaults.engagement_config,
    "ngram": defaults.ngram_config,
    "online": online.online_config,
    "quickstart": lambda: read_config(str(DEFAULT_CONFIG)),
    "select": defaults.select_config,
    "select_curve": defaults.select_curve_config,
    "select_data": lambda: defaults.select_data_config({}),
    "sweep": lambda: defaults.sweep_config(ConfigDict(), {}),
    "tokenizer": defaults.tokenizer_config,
    "train": training.train_config,
    "transcribe": transcribing.transcribe_config,
    "tune": lambda: defaults.tune_config(ConfigDict(), {}),
}

_FREE = (
    "base", "chat_template_kwargs", "drafter_ways", "drafters", "generation", "grid", "prices",
    "shape", "sources", "space", "strategies", "sweep", "tasks",
)  # fmt: skip
"""Groups whose fields are named by the config; where they are read they are checked."""

_PARTIAL = ("data", "mesh")
"""Groups that need not have all of their fields."""

_WORDS = {bool: "True or False", int: "an integer", float: "a number", str: "text", tuple: "a list"}


def check_shape(config: ConfigDict, where: str = "config") -> None:
    """Refuses a config that lacks a field of its experiment, or has another or of another type.

    Raises:
      UserError: naming the field (a path that begins with `where`) and what is allowed.
    """
    experiment = config.get("experiment")
    if not isinstance(experiment, str) or experiment not in TEMPLATES:
        raise UserError(
            f"{where}.experiment is {experiment!r}; it must be one of {', '.join(TEMPLATES)}"
        )
    check_group(TEMPLATES[experiment](), config, where, f"{where}.experiment {experiment!r}")


def check_group(template: ConfigDict, group: ConfigDict, where: str, needs: str) -> None:
    """The same for a group of fields, which `needs` (in words) has by its template."""
    for name in group:
        if name not in template:
            near = difflib.get_close_matches(name, list(template), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"fields are {', '.join(template)}"
            raise UserError(f"{where}.{name} is no field of {needs}; {hint}")
    for name, default in template.items():
        path = f"{where}.{name}"
        if name in group:
            _check_field(default, group[name], name, path, needs)
        elif where.rpartition(".")[2] not in _PARTIAL:
            raise UserError(f"{path} is missing; {needs} needs it, {default!r} by default")


def _check_field(default: Any, value: Any, name: str, path: str, needs: str) -> None:
    if isinstance(default, ConfigDict):
        if not isinstance(value, ConfigDict) and not (name == "base" and isinstance(value, str)):
            raise UserError(f"{path} is {value!r}; it must be a group of fields")
        if name not in _FREE and isinstance(value, ConfigDict):
            check_group(default, value, path, needs)
    elif not _of_type(value, type(default)):
        raise UserError(f"{path} is {value!r}; it must be {_WORDS[type(default)]}")


def _of_type(value: Any, kind: type) -> bool:
    """Whether a value can stand where the default is of `kind`; whole numbers are floats too."""
    allowed = {float: (int, float), tuple: (tuple, list)}.get(kind, kind)
    return isinstance(value, allowed) and isinstance(value, bool) == (kind is bool)
