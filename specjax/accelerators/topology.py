"""The devices of a TPU topology such as `v4:2x2x1`, described by libtpu without a TPU."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import os
import re
from collections.abc import Mapping

import jax
from jax.experimental import topologies
from jax.sharding import Mesh

from specjax.accelerators.chips import CHIPS, Chip
from specjax.parallel.mesh import Device, axis_sizes, mesh_over
from specjax.runtime.errors import UserError

_SHAPE = re.compile(r"[1-9]\d{0,3}(x[1-9]\d{0,3})+")

_ALONE = {
    "TPU_SKIP_MDS_QUERY": "1",  # no query of a metadata server
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "",
    "TPU_STDERR_LOG_LEVEL": "3",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # a lock file is for processes that use the TPU
}
"""Variables of libtpu on a machine without a TPU; the environment takes precedence."""


@dataclasses.dataclass(frozen=True)
class Topology:
    """Devices to compile for."""

    name: str
    chip: Chip
    devices: tuple[Device, ...]

    def mesh(self, shape: Mapping[str, int], part: int = 0) -> Mesh:
        """The mesh of a run on all of its devices.

        Raises:
          UserError: when the mesh has another number of devices.
        """
        sizes = axis_sizes(shape)
        wanted, available = math.prod(sizes), len(self.devices)
        if wanted != available:
            raise UserError(
                f"config.mesh is {dict(shape)}, {wanted} devices; config.topology {self.name!r} has"
                f" {available}, as with --config.mesh.model={available}"
            )
        return mesh_over(self.devices, sizes, part)


def check_name(name: str) -> tuple[Chip, tuple[int, ...]]:
    """Parses the name of a topology: its chip and sides.

    Raises:
      UserError: when there is no such chip, or its topologies have other axes or fewer chips.
    """
    family, _, shape = name.partition(":")
    if family not in CHIPS:
        raise UserError(
            f"config.topology is {name!r}; it must be a chip ({', '.join(CHIPS)}) and a shape, as"
            " 'v4:2x2x1'"
        )
    chip = CHIPS[family]
    sides = tuple(map(int, shape.split("x"))) if _SHAPE.fullmatch(shape) else ()
    if len(sides) != chip.axes:
        example = "x".join(("2", "2", "1")[: chip.axes])
        raise UserError(
            f"config.topology is {name!r}; the shape of {family} must have {chip.axes} sides, as"
            f" '{family}:{example}'"
        )
    if (count := math.prod(sides)) > chip.pod:  # libtpu would build all of them, or abort
        raise UserError(
            f"config.topology is {name!r}, {count:,} chips; a pod of {family} has at most"
            f" {chip.pod:,}"
        )
    return chip, sides


def use_no_tpu() -> None:
    """Sets JAX to run on CPU and libtpu only to describe; call before either has started."""
    for variable, value in _ALONE.items():
        os.environ.setdefault(variable, value)
    if not jax.config.values["jax_platforms"]:
        jax.config.update("jax_platforms", "cpu")


def describe_topology(name: str) -> Topology:
    """The topology of that name; needs no TPU.

    Raises:
      UserError: when it does not exist, or libtpu is not installed.
    """
    use_no_tpu()
    chip, sides = check_name(name)
    if importlib.util.find_spec("libtpu") is None:
        raise UserError(
            f"config.topology is {name!r}, which libtpu compiles for, and it is not installed; pip"
            " install 'jax[tpu]', or the extra 'tpu' of specjax, on Linux"
        )
    host = tuple(side if side < 2 else 2 for side in (*sides, 1)[:3])
    options = {"chip_config_name": "megacore"} if chip.megacore else {}
    try:
        description = topologies.get_topology_desc(
            platform="tpu", topology_name=name, chips_per_host_bounds=host, **options
        )
    except RuntimeError as error:  # JAX's own and NotImplementedError are of its kind
        words = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(f"config.topology is {name!r}; libtpu knows no such: {words}") from None
    return Topology(name, chip, tuple(description.devices))
