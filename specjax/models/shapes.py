"""What a model's parameters look like, without computing them."""

from __future__ import annotations

import functools
from typing import Any, Protocol

import jax


class Initialised(Protocol):
    """A hashable description with fresh parameters: a language model, heads on it, a policy."""

    def init(self, key: jax.Array) -> Any: ...


def parameter_shapes(model: Initialised) -> Any:
    """The pytree of `model.init` with `jax.ShapeDtypeStruct` leaves.

    Tracing an initialisation takes a good part of a second, and loading, planning and sharding a
    model all ask; so what was traced is kept.
    """
    return jax.tree.map(lambda leaf: leaf, _traced(model))  # the caller's own dicts


@functools.lru_cache(maxsize=64)
def _traced(model: Initialised) -> Any:
    return jax.eval_shape(model.init, jax.random.key(0))
