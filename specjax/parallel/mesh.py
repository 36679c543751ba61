"""The device mesh: `data` splits the batch, `model` splits weights and caches.

To split a model over a part of `model`, that axis becomes two: `group` and `part`. Devices of a
part are neighbors; every group holds the model once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
from jax.sharding import AxisType, Mesh

from specjax.runtime import processes
from specjax.runtime.errors import UserError

DATA, MODEL = "data", "model"
GROUP, PART = "group", "part"
AXES = (DATA, MODEL)
"""Mesh axes of configs and callers."""

Device: TypeAlias = jax.Device  # pyright: ignore[reportInvalidTypeForm]  # jaxlib has no types


def make_mesh(shape: Mapping[str, int], part: int = 0) -> Mesh:
    """A mesh over the first devices, for instance of shape `{"data": 1, "model": 8}`.

    With `part` a model may also be split over `part` devices of `model` (`load(ways=part)`).

    Raises:
      UserError: when an axis is unknown, a size is no positive integer, devices are too few, or
        `part` does not divide `model`.
    """
    sizes = axis_sizes(shape)
    check_part("part", part, sizes[1])
    return mesh_over(_list_devices(shape), sizes, part)


def _list_devices(shape: Mapping[str, int]) -> Sequence[Device]:
    """The devices of a mesh, the first ones of all processes."""
    required, there = math.prod(axis_sizes(shape)), len(jax.devices())
    if required > there:
        raise UserError(
            f"config.mesh {dict(shape)} asks for {required} devices; this machine has {there}"
        )
    if processes.has_several() and required < there:
        raise UserError(
            f"config.mesh {dict(shape)} is {required} of {there} devices; with several processes it"
            " must be all of them"
        )
    return jax.devices()[:required]


def mesh_over(devices: Sequence[Device], sizes: tuple[int, int], part: int = 0) -> Mesh:
    """A mesh of these devices; `sizes` are those of AXES."""
    data, model = sizes
    names, shape = AXES, sizes
    if part not in (0, 1, model):
        names, shape = (DATA, GROUP, PART), (data, model // part, part)
    return jax.make_mesh(shape, names, axis_types=(AxisType.Auto,) * len(names), devices=devices)


def make_mesh_of_shape(shape: Mapping[str, int], part: int = 0) -> Mesh | None:
    """A mesh of the given shape; None for a single device."""
    baseline = math.prod(axis_sizes(shape)) == 1 and not processes.has_several()
    return None if baseline else make_mesh(shape, part)


def make_own_mesh(shape: Mapping[str, int], part: int = 0) -> Mesh | None:
    """This process's part of a mesh whose `data` is split over the processes; None for one device.

    Nothing on it waits for other processes.

    Raises:
      UserError: as `make_mesh`, or when `data` cannot be split.
    """
    data, model = axis_sizes(shape)
    index, count = processes.get_place()
    own = [device for device in _list_devices(shape) if device.process_index == index]
    if count == 1:
        return make_mesh_of_shape(shape, part)
    if data % count or len(own) != data // count * model:
        raise UserError(
            f"config.mesh is {dict(shape)} with {count} processes; in a filled run data must be a"
            f" multiple of {count}, and a process have {model} devices or a multiple, because each"
            f" decodes by itself; this one has {len(own)}"
        )
    return mesh_over(own, (data // count, model), part) if len(own) > 1 else None


def check_part(where: str, part: int, model: int) -> None:
    """Refuses a part that does not divide the `model` axis.

    Raises:
      UserError: naming the field (`where`), the value and what is allowed.
    """
    _check_size(where, part, 0)
    if part and model % part:
        allowed = ", ".join(str(n) for n in range(1, model + 1) if model % n == 0)
        raise UserError(
            f"{where} is {part}; it must be 0 (all) or divide the mesh's model axis: {allowed}"
        )


def axes_over(mesh: Mesh, ways: int) -> tuple[str, ...]:
    """The axes of a mesh that a model is split over; `ways` are devices, 0 all, 1 none.

    Raises:
      UserError: when the mesh has no such part.
    """
    every = (MODEL,) if MODEL in mesh.shape else (GROUP, PART)
    there = {0: every, 1: (), mesh.shape.get(PART): (PART,)}
    there[math.prod(mesh.shape[axis] for axis in every)] = every
    if ways not in there:
        raise UserError(
            f"ways is {ways}; it must be 0 (all), 1 (whole on every device) or the part that"
            " specjax.make_mesh was given"
        )
    return there[ways]


def axis_sizes(shape: Mapping[str, int]) -> tuple[int, int]:
    """Sizes in the order of AXES; a missing axis has size 1."""
    if not isinstance(shape, Mapping):
        raise UserError(
            f"mesh is {shape!r}; it must be sizes by axis, as {{'data': 1, 'model': 8}}"
        )
    for axis, size in shape.items():
        if axis not in AXES:
            raise UserError(f"config.mesh has the axis {axis!r}; it may have {' and '.join(AXES)}")
        _check_size(f"config.mesh.{axis}", size, 1)
    data, model = (shape.get(axis, 1) for axis in AXES)
    return data, model


def _check_size(where: str, size: Any, least: int) -> None:
    if not isinstance(size, int) or isinstance(size, bool) or size < least:
        raise UserError(f"{where} is {size!r}; it must be an integer of at least {least}")
