"""`config.topology`: checks, and the lines of `--dry_run` about it."""

from __future__ import annotations

from typing import Any

from ml_collections import ConfigDict

from specjax.accelerators.chips import GIB
from specjax.accelerators.topology import Topology, check_name
from specjax.runtime.errors import UserError

_EXHAUSTED = "RESOURCE_EXHAUSTED"
"""Part of the compiler's error about a program that does not fit the chip."""

COMPILED = ("decode", "train")
"""Experiments whose programs are compiled for a topology."""


def check_topology(config: ConfigDict, dry_run: bool) -> None:
    """Refuses an unknown topology, or one that nothing would be compiled for.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    name = config.get("topology", "")
    if not name:
        if given := config.get("acceptance", ""):
            raise UserError(
                f"config.acceptance is {given!r}; it must be empty without config.topology, whose"
                " plan predicts from it"
            )
        return
    if config.experiment not in COMPILED:
        raise UserError(
            f"config.topology is {name!r}; it must be empty with config.experiment"
            f" {config.experiment!r}: programs of {' and '.join(COMPILED)} are compiled for it"
        )
    if not dry_run:
        raise UserError(f"config.topology is {name!r}; it must be empty without --dry_run")
    check_name(name)


def show_topology(topology: Topology) -> None:
    """Prints the devices of the topology."""
    chip = topology.chip
    print(
        f"{topology.name}: {len(topology.devices)} devices, {topology.devices[0].device_kind}, each"
        f" {chip.memory / GIB:.0f} GiB at {chip.bandwidth / 1e9:,.0f} GB/s,"
        f" {chip.flops / 1e12:,.0f} TFLOP/s in bfloat16"
    )


def memory_refusal(error: RuntimeError) -> dict[str, Any]:
    """The plan.json entry of a program that the compiler refuses for lack of memory.

    Raises:
      jax.errors.JaxRuntimeError: the error itself, when it has another cause.
    """
    if _EXHAUSTED not in str(error):
        raise error
    return {"fits": False, "refused": next(iter(str(error).splitlines()))}
