"""The device mesh: `data` splits the batch, `model` splits weights and caches."""

from __future__ import annotations

import math
from collections.abc import Mapping

import jax
from jax.sharding import AxisType, Mesh

from specjax import hosts
from specjax.errors import UserError

DATA, MODEL = "data", "model"
AXES = (DATA, MODEL)


def make_mesh(shape: Mapping[str, int]) -> Mesh:
    """A mesh over the first devices, for instance of shape `{"data": 1, "model": 8}`.

    Raises:
      UserError: when an axis is unknown, a size is no positive integer, or devices are too few.
    """
    sizes = axis_sizes(shape)
    wanted, there = math.prod(sizes), len(jax.devices())
    if wanted > there:
        raise UserError(
            f"config.mesh {dict(shape)} asks for {wanted} devices; this machine has {there}"
        )
    if hosts.several() and wanted < there:
        raise UserError(
            f"config.mesh {dict(shape)} is {wanted} of {there} devices; with several processes it"
            " must be all of them"
        )
    devices = jax.devices()[:wanted]
    return jax.make_mesh(sizes, AXES, axis_types=(AxisType.Auto,) * len(AXES), devices=devices)


def mesh_of(shape: Mapping[str, int]) -> Mesh | None:
    """A mesh of that shape; None for a single device."""
    alone = math.prod(axis_sizes(shape)) == 1 and not hosts.several()
    return None if alone else make_mesh(shape)


def axis_sizes(shape: Mapping[str, int]) -> tuple[int, ...]:
    """Sizes in the order of AXES; an axis that is not named has size 1."""
    if not isinstance(shape, Mapping):
        raise UserError(
            f"mesh is {shape!r}; it must be sizes by axis, as {{'data': 1, 'model': 8}}"
        )
    for axis, size in shape.items():
        if axis not in AXES:
            raise UserError(f"config.mesh has the axis {axis!r}; it may have {' and '.join(AXES)}")
        if not isinstance(size, int) or isinstance(size, bool) or size < 1:
            raise UserError(f"config.mesh.{axis} is {size!r}; it must be an integer of at least 1")
    return tuple(shape.get(axis, 1) for axis in AXES)
