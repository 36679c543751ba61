"""Fully sharded training: parameters, gradients and optimizer state split over `data` as well.

A step gathers a parameter where it is used, and each device keeps its part of the summed
gradient: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"
(2020), stage 3, also known as FSDP. The arithmetic is that of whole parameters; only the order in
which gradients of rows are added may change.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from specjax.models.base import LanguageModel
from specjax.parallel.mesh import DATA
from specjax.parallel.sharding import parameter_shardings


@dataclasses.dataclass(frozen=True)
class FullySharded:
    """Shardings of parameters, and gathering; `tree`s are of `model` or of heads on it."""

    mesh: Mesh

    def shardings(self, tree: Any, model: LanguageModel) -> Any:
        """The sharding of each parameter, split over `data` and `model`."""
        return parameter_shardings(self.mesh, model, True, tree)

    def parts(self, tree: Any, model: LanguageModel) -> Any:
        """Shards the tree over the devices."""
        return jax.lax.with_sharding_constraint(tree, self.shardings(tree, model))

    def whole(self, tree: Any, model: LanguageModel) -> Any:
        """Gathers the tree over `data`; its gradient is reduce-scattered."""

        def gather(x: jax.Array, part: NamedSharding) -> jax.Array:
            return _gather(x, part) if DATA in part.spec else x

        return jax.tree.map(gather, tree, self.shardings(tree, model))


def gather_params(sharded: FullySharded | None, model: LanguageModel, tree: Any) -> Any:
    """Gathers parameters over `data` for decoding, which reads them many times."""
    return tree if sharded is None else _whole(sharded, model, tree)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _whole(sharded: FullySharded, model: LanguageModel, tree: Any) -> Any:
    return sharded.whole(tree, model)


def _gather(x: jax.Array, part: NamedSharding) -> jax.Array:
    whole = NamedSharding(
        part.mesh, PartitionSpec(*(None if axis == DATA else axis for axis in part.spec))
    )

    def make_whole(x: jax.Array) -> jax.Array:
        return jax.lax.with_sharding_constraint(x, whole)

    def backward(_: None, gradient: jax.Array) -> tuple[jax.Array]:
        # Without this the sum would first be replicated on every device.
        return (jax.lax.with_sharding_constraint(gradient, part),)

    gather = jax.custom_vjp(make_whole)
    gather.defvjp(lambda x: (make_whole(x), None), backward)
    return gather(x)
