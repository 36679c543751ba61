"""Makes configs with the defaults of their schemas; config files change some fields."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from specjax.contracts.fields import ConfigField, get_config_fields
from specjax.experiments.config.file import read_config
from specjax.experiments.config.schema import SCHEMAS


def make_config(experiment: str, /, **changes: Any) -> ConfigDict:
    """The config of an experiment; a dictionary changes only the given fields of a group."""
    known = get_config_fields(SCHEMAS[experiment])
    config = ConfigDict({name: _default(field) for name, field in known.items()})
    config.experiment = experiment
    return _apply_changes(config, known, changes)


def _default(field: ConfigField) -> Any:
    if field.kind is not dict:
        return field.stand_in
    made = ConfigDict({name: _default(inner) for name, inner in field.inner.items()})
    return _apply_changes(made, field.inner, field.default)


def _apply_changes(
    config: ConfigDict, known: Mapping[str, ConfigField], changes: Mapping[str, Any]
) -> ConfigDict:
    """The config with changed values; mapping members get their own defaults."""
    for name, value in changes.items():
        field = known.get(name)
        if isinstance(value, Mapping) and field and field.of:
            _apply_changes(config[name], field.inner, value)
        elif isinstance(value, Mapping) and field and field.members and field.members.of:
            each = field.members
            made = {
                key: _apply_changes(_default(each), each.inner, of) for key, of in value.items()
            }
            config[name] = ConfigDict(made)
        else:
            config[name] = ConfigDict(value) if isinstance(value, Mapping) else value
    return config


def decode_config(**changes: Any) -> ConfigDict:
    """A decode experiment; every field can be set by a flag such as `--config.batch_size=4`."""
    return make_config("decode", **changes)


def train_config(**changes: Any) -> ConfigDict:
    """A training run; fields of groups are changed as `optimizer={"steps": 100}`."""
    return make_config("train", **changes)


beams_config = functools.partial(make_config, "beams")
compare_config = functools.partial(make_config, "compare")
engagement_config = functools.partial(make_config, "engagement")
ngram_config = functools.partial(make_config, "ngram")
select_config = functools.partial(make_config, "select")
select_curve_config = functools.partial(make_config, "select_curve")
tokenizer_config = functools.partial(make_config, "tokenizer")
transcribe_config = functools.partial(make_config, "transcribe")


def select_data_config(tasks: Mapping[str, Mapping[str, Any]], **changes: Any) -> ConfigDict:
    """Offline data for choosing a drafter; `tasks` gives sources of queries by name."""
    return make_config("select_data", tasks=tasks, **changes)


def online_config(
    sources: Mapping[str, Mapping[str, Any]] | None = None, **changes: Any
) -> ConfigDict:
    """A stream of texts; `sources` follow each other as they are given."""
    given = sources or {}
    return make_config("online", **{"sources": given, "stream": tuple(given), **changes})


def to_decode_config(config: ConfigDict, **changes: Any) -> ConfigDict:
    """A decode config with the fields that it shares with another config."""
    known = get_config_fields(SCHEMAS["decode"])
    return decode_config(**{name: config[name] for name in known if name in config} | changes)


def sweep_config(
    base: str | ConfigDict, grid: Mapping[str, Sequence[Any]], **changes: Any
) -> ConfigDict:
    """Runs of a decode config, or of a file's (`FILE` or `FILE:WORDS`), over a grid.

    The grid gives values by dotted field; flags set it as `--config.grid.seed='(0, 1)'`.
    """
    base = read_config(base) if isinstance(base, str) else base
    nested: dict[str, Any] = {}
    for field, values in grid.items():
        *path, last = field.split(".")
        node = nested
        for part in path:
            node = node.setdefault(part, {})
        node[last] = tuple(values)
    return make_config("sweep", base=base, grid=nested, **changes)


def tune_config(
    base: str | ConfigDict, space: Mapping[str, Sequence[Any]], **changes: Any
) -> ConfigDict:
    """A search for the best setting of a strategy of a decode config, or of a file's.

    The space gives values by field of the strategy; empty: its draft length and, where it has one,
    its confidence stop. `tree_nodes` adds tree shapes to the search.
    """
    base = read_config(base) if isinstance(base, str) else base
    values = {field: tuple(given) for field, given in space.items()}
    return make_config("tune", base=base, space=values, **changes)


def neural_spec(model: str, length: int, temperature: float = 0.0, **fields: Any) -> dict[str, Any]:
    """A strategy that drafts `length` tokens with `model`, under a lossless rule by default."""
    drawn = {"temperature": temperature} if temperature else {}
    return {"drafter": "neural", "model": model, "length": length, **fields, **drawn}


def bild_spec(fallback: float, rollback: float | str, **fields: Any) -> dict[str, Any]:
    """A strategy of the Big Little Decoder; `rollback` "inf" drops nothing."""
    return {"drafter": "bild", "fallback": fallback, "rollback": rollback, **fields}


def cascade_spec(
    drafters: Sequence[str], matrix: Sequence[Sequence[int]], **fields: Any
) -> dict[str, Any]:
    """A strategy whose drafters review each other, the largest first, by a matrix K."""
    rows = tuple(map(tuple, matrix))  # tuples: flags set no lists
    return {"drafter": "cascade", "drafters": tuple(drafters), "matrix": rows, **fields}


AUTOREGRESSIVE = {"drafter": "none"}
SAMPLED = {"drafter": "none", "temperature": 1.0}
