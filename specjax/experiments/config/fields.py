"""The models of a config, and checks of fields that several jobs share."""

from __future__ import annotations

import operator
import re
from typing import Any, TypedDict

from ml_collections import ConfigDict

from specjax.checks import DTYPES
from specjax.models.base import LanguageModel
from specjax.models.quantized_weights import WeightFormat
from specjax.parallel.mesh import axis_sizes
from specjax.runtime.errors import UserError

OWN = "target"
"""A drafter's checkpoint of this name is the target's own."""

_SMALL = re.compile(r"(.+?):((?:bfloat|int)\d+(?::[^/]*)?)")


def check_fields(config: ConfigDict) -> None:
    """Refuses combinations of valid fields that no decode can use.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    check_strategies(config)
    check_rows_per_device(config, "batch_size")
    names = model_names(config) if config.prices else ()
    if set(config.prices) != set(names):
        raise UserError(
            f"config.prices has {', '.join(config.prices)}; it must have the models of the config,"
            f" {', '.join(names)}"
        )


def check_strategies(config: ConfigDict) -> None:
    """Refuses a config without strategies.

    Raises:
      UserError: naming the field.
    """
    if not config.strategies:
        raise UserError("config.strategies is empty; it must name at least one strategy")


def check_rows_per_device(config: ConfigDict, *fields: str) -> None:
    """Refuses batch sizes (dotted paths) that the mesh cannot split evenly."""
    data, _ = axis_sizes(config.mesh.to_dict())
    for field in fields:
        value = operator.attrgetter(field)(config)
        if value % data:
            raise UserError(
                f"config.{field} is {value}; it must be a multiple of config.mesh.data, {data}"
            )


def model_names(config: ConfigDict) -> dict[str, str]:
    """Checkpoint strings of all models by name, the target first.

    Raises:
      UserError: when the target is missing, a drafter has its name, or a weight suffix is invalid.
    """
    if not config.target:
        raise UserError("config.target is empty; it must be a model directory or hub id")
    checkpoints = {"target": config.target}
    if config.drafter:
        checkpoints["drafter"] = config.drafter
    for name, checkpoint in config.drafters.items():
        if name in checkpoints or not checkpoint:
            raise UserError(
                f"config.drafters.{name} is {checkpoint!r}; drafters need names of their own and a"
                " model directory or hub id"
            )
        checkpoints[name] = checkpoint
    for name in checkpoints:
        model_source(config, name)
    return checkpoints


def model_source(config: ConfigDict, name: str) -> tuple[str, WeightFormat | None]:
    """Directory or hub id of a model, and its weight format (None: as stored).

    The config may append `:bfloat16`, `:int8`, `:int4` or `:int4:64` to a checkpoint. A drafter's
    checkpoint may be the word `target`, for the target's own.

    Raises:
      UserError: when it has any other suffix.
    """
    given = config.get(name, "") if name in ("target", "drafter") else config.drafters.get(name, "")
    match = _SMALL.fullmatch(given)
    place, suffix = match.groups() if match else (given, "")
    try:
        weights = WeightFormat.parse(suffix) if suffix else None
    except ValueError as error:
        raise UserError(f"the checkpoint {given!r} has the suffix {suffix!r}; {error}") from None
    if place == OWN and name != OWN:
        place = model_source(config, OWN)[0]
    return place, weights


def check_reads(field: str, model: LanguageModel) -> None:
    """Refuses a speech model in an experiment on texts.

    Raises:
      UserError: naming the field.
    """
    if model.info.input:
        raise UserError(
            f"config.{field} is a speech model; experiments of this kind read only texts"
        )


def heads_file(config: ConfigDict) -> str:
    """The file of the parallel heads that a strategy reads.

    Raises:
      UserError: when the config names none.
    """
    if not config.heads:
        raise UserError(
            "config.heads is empty; drafters by parallel heads need a safetensors file of heads"
        )
    return config.heads


def generation_arguments(config: ConfigDict) -> dict[str, Any]:
    """Arguments of `specjax.load` about `generation_config.json`."""
    changes = {name: config.generation[name] for name in config.generation}
    ignored = config.ignore_generation_config
    return {"ignore_generation_config": ignored, "generation": changes}


class Languages(TypedDict, total=False):
    """The language arguments of `specjax.load`."""

    source_language: str
    target_language: str


def language_arguments(config: ConfigDict, name: str) -> Languages:
    """Arguments of `specjax.load` about languages, which are those of the target."""
    if name != "target":
        return {}
    source, target = config.source_language, config.target_language
    return {"source_language": source, "target_language": target}


def checkpoint_dtype(config: ConfigDict) -> Any:
    """The dtype of weights and arithmetic."""
    return DTYPES[config.dtype]
