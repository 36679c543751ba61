"""Checking the fields of configs at the door."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ml_collections import ConfigDict

from specjax.checks import AT_LEAST, DTYPES, check_integer
from specjax.core.registry import METRICS, TASKS
from specjax.errors import UserError
from specjax.models.base import LanguageModel
from specjax.models.small_weights import SmallWeights
from specjax.parallel.mesh import axis_sizes

OWN = "target"
"""As a drafter's checkpoint: the target's own."""

_SMALL = re.compile(r"(.+?):((?:bfloat|int)\d+(?::[^/]*)?)")

_AT_LEAST = {
    **AT_LEAST,
    "repeats": 1,
    "profile_rounds": 0,
    "examples": 0,
    "ngram_examples": 0,
    "corpus_tokens": 16,
    "draft_tokens": 0,
}


def check_fields(config: ConfigDict) -> None:
    """Refuses values that no decode could use.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_strategies(config, _AT_LEAST)
    check_numbers(config, {"least_shared": (0.0, 1.0)})
    check_rows_per_device(config, "batch_size")
    check_prices(config)


def check_strategies(config: ConfigDict, least: Mapping[str, int]) -> None:
    """Refuses what no job that decodes with strategies could use; integers are at `least` so much.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_integers(config, least)
    check_choices(config, {"dtype": tuple(DTYPES), "metric": ("", *METRICS), "task": ("", *TASKS)})
    if not config.strategies:
        raise UserError("config.strategies is empty; it must name at least one strategy")
    check_groups(config, "strategies")


def check_groups(config: ConfigDict, field: str) -> None:
    """Refuses a group whose members are no groups of fields themselves.

    Raises:
      UserError: naming the member.
    """
    for name, member in config[field].items():
        if not isinstance(member, ConfigDict):
            raise UserError(
                f"config.{field}.{name} is {member!r}; it must be a group of fields, as"
                " {'drafter': 'none'}"
            )


def check_prices(config: ConfigDict) -> None:
    """Refuses prices that are no positive numbers, or not those of all models.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    if not config.prices:
        return
    for name, price in config.prices.items():
        if not is_number(price) or not 0 < price < float("inf"):
            raise UserError(f"config.prices.{name} is {price!r}; it must be a positive number")
    names = model_names(config)
    if set(config.prices) != set(names):
        raise UserError(
            f"config.prices has {', '.join(config.prices)}; it must have the models of the config,"
            f" {', '.join(names)}"
        )


def field_value(config: ConfigDict, field: str) -> Any:
    """The value at a dotted path."""
    for part in field.split("."):
        config = config[part]
    return config


def check_integers(config: ConfigDict, least: Mapping[str, int]) -> None:
    """Refuses fields (dotted paths) that are not integers of at least so much, and no more than
    anything could use."""
    for field, lowest in least.items():
        check_integer(f"config.{field}", field_value(config, field), lowest)


def check_choices(config: ConfigDict, choices: Mapping[str, Sequence[str]]) -> None:
    """Refuses fields (dotted paths) that are none of the words allowed."""
    for field, allowed in choices.items():
        value = field_value(config, field)
        if value not in allowed:
            raise UserError(f"config.{field} is {value!r}; it must be one of {', '.join(allowed)}")


def check_numbers(config: ConfigDict, ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuses fields (dotted paths) that are no numbers of their closed ranges."""
    for field, (low, high) in ranges.items():
        value = field_value(config, field)
        if not is_number(value) or not low <= value <= high:
            raise UserError(
                f"config.{field} is {value!r}; it must be a number from {low:g} to {high:g}"
            )


def is_number(value: Any) -> bool:
    """Whether a value of a config is a number, which True and False are not."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_rows_per_device(config: ConfigDict, *fields: str) -> None:
    """Refuses batch sizes (dotted paths) that the mesh cannot split evenly."""
    data, _ = axis_sizes(config.mesh.to_dict())
    for field in fields:
        value = field_value(config, field)
        if value % data:
            raise UserError(
                f"config.{field} is {value}; it must be a multiple of config.mesh.data, {data}"
            )


def model_names(config: ConfigDict) -> dict[str, str]:
    """Checkpoint of every model as it is spelled, the target first.

    Raises:
      UserError: when the target is missing, a drafter has its name, or weights are misspelled.
    """
    if not config.target:
        raise UserError("config.target is empty; it must be a model directory or hub id")
    checkpoints = {"target": config.target}
    if config.drafter:
        checkpoints["drafter"] = config.drafter
    for name, checkpoint in config.drafters.items():
        if name in checkpoints or not checkpoint or not isinstance(checkpoint, str):
            raise UserError(
                f"config.drafters.{name} is {checkpoint!r}; drafters need names of their own and a"
                " model directory or hub id"
            )
        checkpoints[name] = checkpoint
    for name in checkpoints:
        model_source(config, name)
    return checkpoints


def model_source(config: ConfigDict, name: str) -> tuple[str, SmallWeights | None]:
    """Directory or hub id of a model, and how small its weights are (None: as they are stored).

    Behind the checkpoint of a config may stand `:bfloat16`, `:int8`, `:int4` or `:int4:64`; that of
    a drafter may be the word `target`, for the target's own.

    Raises:
      UserError: when what stands behind it is something else.
    """
    given = config.get(name, "") if name in ("target", "drafter") else config.drafters.get(name, "")
    match = _SMALL.fullmatch(given)
    place, spelled = match.groups() if match else (given, "")
    try:
        weights = SmallWeights.spelled(spelled) if spelled else None
    except ValueError as error:
        raise UserError(f"the checkpoint {given!r} has {spelled!r} behind it; {error}") from None
    if place == OWN and name != OWN:
        place = model_source(config, OWN)[0]
    return place, weights


def check_reads(field: str, model: LanguageModel) -> None:
    """Refuses a model that listens where an experiment has texts only.

    Raises:
      UserError: naming the field.
    """
    if model.info.frames:
        raise UserError(
            f"config.{field} is a model that listens; experiments of this kind read texts alone"
        )


def heads_file(config: ConfigDict) -> str:
    """The file of the parallel heads, which a strategy has asked for.

    Raises:
      UserError: when the config names none.
    """
    if not config.heads:
        raise UserError(
            "config.heads is empty; drafters by parallel heads need a safetensors file of heads"
        )
    return config.heads


def asked_generation(config: ConfigDict) -> dict[str, Any]:
    """What `specjax.load` is told of `generation_config.json`."""
    changes = {name: config.generation[name] for name in config.generation}
    ignored = config.ignore_generation_config
    return {"ignore_generation_config": ignored, "generation": changes}


class Languages(TypedDict, total=False):
    """The language arguments of `specjax.load`."""

    source_language: str
    target_language: str


def asked_languages(config: ConfigDict, name: str) -> Languages:
    """What `specjax.load` is told of languages, which are the target's."""
    if name != "target":
        return {}
    source, target = config.source_language, config.target_language
    return {"source_language": source, "target_language": target}


def checkpoint_dtype(config: ConfigDict) -> Any:
    """The dtype of weights and arithmetic."""
    return DTYPES[config.dtype]
