"""Any config with fields set that flags cannot set: whole groups, and strategies of other names.

    python -m specjax.main --config=benchmarks/edited_config.py:FIELDS.json@configs/pair.py
    python -m specjax.main --config=benchmarks/edited_config.py:sampled@configs/cascade_pair.py

FIELDS.json holds values by dotted field. `sampled` decodes every strategy that can sample at
temperature 1. Several edits stand one after another, each with its `@`; the last is applied first.
"""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

import specjax

SAMPLED = "sampled"
GREEDY_ONLY = ("oracle", "selected", "switched")
"""Drafters without a temperature: those that choose among arms sample as their arms do."""


def get_config(words: str) -> ConfigDict:
    """The config of `EDIT@...@FILE` or `EDIT@...@FILE:WORDS`."""
    edit, at, rest = words.partition("@")
    if not at:
        file, _, own = words.partition(":")
        return runpy.run_path(file)["get_config"](*filter(None, [own]))
    config = get_config(rest)
    with config.unlocked():
        if edit == SAMPLED:
            sample(config)
        else:
            for field, value in json.loads(Path(edit).read_text("utf-8")).items():
                set_field(config, field, value)
    return config


def set_field(config: ConfigDict, field: str, value: Any) -> None:
    """Sets the value at a dotted path; an object replaces the whole group."""
    *path, last = field.split(".")
    for part in path:
        config = config[part]
    config[last] = ConfigDict(value) if isinstance(value, dict) else value
    # Looked for as a folder: an editable install of another checkout would have the module.
    package = Path(specjax.__file__).parent
    if field == "strategies" and any((package / name).is_dir() for name in ("core", "contracts")):
        for spec in config.strategies.values():
            respell(spec)


def respell(spec: ConfigDict) -> None:
    """The spelling of a strategy since readers have names, from the one before."""
    if spec.get("drafter") == "calm":
        spec.drafter, spec.reader = "none", "calm"
    if "verify" in spec:
        spec.reader = {"drafted": "fitted"}[spec.verify]
        del spec.verify


def sample(config: ConfigDict) -> None:
    """Temperature 1 wherever a strategy says none, but for the greedy baseline."""
    for name, spec in config.strategies.items():
        greedy = spec.get("drafter") in GREEDY_ONLY or spec.get("compat") == "official"
        if name != "autoregressive" and not greedy and "temperature" not in spec:
            spec.temperature = 1.0
