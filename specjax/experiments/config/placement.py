"""`config.drafter_ways`: the number of mesh devices that each drafter is split over."""

from __future__ import annotations

from jax.sharding import Mesh
from ml_collections import ConfigDict

from specjax.experiments.config.fields import model_names, model_source
from specjax.experiments.config.schema import FILLED
from specjax.hf.huggingface import read_stored_weights
from specjax.models.base import LanguageModel
from specjax.models.quantized_weights import WeightFormat
from specjax.parallel.mesh import axis_sizes, check_part, make_mesh_of_shape, make_own_mesh
from specjax.parallel.padding import pad_model
from specjax.parallel.sharding import find_undivided
from specjax.runtime.errors import UserError


def get_ways(config: ConfigDict, name: str) -> int:
    """Devices that share a model: `mesh.model` for the target, `drafter_ways` for a drafter."""
    if "mesh" not in config:
        return 0  # of one device
    _, model = axis_sizes(config.mesh.to_dict())
    return model if name == "target" else config.drafter_ways.get(name, 1) or model


def copies_target(config: ConfigDict, name: str) -> bool:
    """Whether a drafter is a quantized copy of the loaded target that shares all else."""
    own, whole = model_source(config, "target")
    place, weights = model_source(config, name)
    same = (
        name != "target" and place == own and get_ways(config, name) == get_ways(config, "target")
    )
    return same and weights is not None and whole is None


def get_weights(config: ConfigDict, name: str) -> WeightFormat | None:
    """Weight format of a model's kernels, from the config or the checkpoint."""
    place, weights = model_source(config, name)
    return weights or (read_stored_weights(place) if place else None)


def get_part(config: ConfigDict) -> int:
    """The part of `mesh.model` that some drafter is split over; 0 if there is none."""
    _, model = axis_sizes(config.mesh.to_dict())
    return max((ways for ways in config.drafter_ways.values() if ways != model), default=0)


def decode_mesh(config: ConfigDict) -> Mesh | None:
    """The mesh of a run; None for a single device.

    Each process has one of its own in a filled run, where they decode apart.
    """
    if "mesh" not in config:
        return None
    make = make_own_mesh if config.get("batching") == FILLED else make_mesh_of_shape
    return make(config.mesh.to_dict(), get_part(config))


_PARTS = {
    "vocabulary": "ids of the vocabulary",
    "heads": "query heads",
    "kv_heads": "key and value heads",
    "width": "units of the feed-forward",
}


def whole_words(name: str, model: LanguageModel, ways: int, remedy: bool = False) -> str:
    """Describes the axes of a model that `ways` does not divide; empty if there are none.

    `remedy`: whether zero heads may be added.
    """
    whole = find_undivided(model, ways)
    if not whole:
        return ""
    if whole.get("heads") == whole.get("kv_heads"):
        whole.pop("kv_heads", None)
    named = _PARTS if "kv_heads" in whole else _PARTS | {"heads": "heads"}
    *first, last = [f"{count:,} {named[axis]}" for axis, count in whole.items()]
    parts = f"{', '.join(first)} and {last}" if first else last
    wide = pad_model(model, ways)
    more = f"; config.pad_heads=True makes the heads {wide.config.num_heads}"
    more *= remedy and wide is not model
    return f"{name}: {parts} do not divide by {ways}, each device has them whole{more}"


def check_ways(config: ConfigDict) -> None:
    """Refuses ways over which drafters cannot be split.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    _, model = axis_sizes(config.mesh.to_dict())
    drafters = [name for name in model_names(config) if name != "target"]
    for name, ways in config.drafter_ways.items():
        if name not in drafters:
            raise UserError(
                f"config.drafter_ways has {name!r}; it may have the drafters of the config,"
                f" {', '.join(drafters) or 'of which there are none'}"
            )
        check_part(f"config.drafter_ways.{name}", ways, model)
    parts = {ways for ways in config.drafter_ways.values() if ways not in (0, 1, model)}
    if len(parts) > 1:
        raise UserError(
            f"config.drafter_ways is {config.drafter_ways.to_dict()}; apart from 0 (all), 1 and"
            " config.mesh.model its values must be one number"
        )
