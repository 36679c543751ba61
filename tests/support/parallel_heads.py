"""Parallel heads that are not silent, for tests that need no trained ones."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models.heads import Heads, LoadedHeads
from specjax.models.shapes import get_parameter_shapes


def random_heads(
    count: int, d_model: int, seed: int, scale: float = 0.3, **shape: Any
) -> LoadedHeads:
    """Heads whose parameters are all normal with deviation `scale`."""
    heads = Heads(count, d_model, width=d_model + 2, **shape)
    rng = np.random.default_rng(seed)

    def draw(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        return jnp.asarray(scale * rng.normal(size=leaf.shape), jnp.float32)

    tree = get_parameter_shapes(heads)
    return LoadedHeads(heads, jax.tree.map(draw, tree))


def heads_on_target(
    count: int, d_model: int, sequential: bool, scale: float = 0.3, normed: bool = True
) -> LoadedHeads:
    """Heads on the target's own states, as `medusa` or `hydra` trains them.

    They are `normed` on all targets that have a final norm.
    """
    shape = {"activation": "silu", "state_lag": 1, "sequential": sequential, "normed": normed}
    return random_heads(count, d_model, 4 + sequential, scale, **shape)
