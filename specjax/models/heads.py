"""Parallel prediction heads: one call of a model gives the distributions of several tokens ahead.

Stern, Shazeer, Uszkoreit, "Blockwise Parallel Decoding for Deep Autoregressive Models" (2018).
Head j of k transforms the last residual state h of a model, the *trunk*, into

    h_j = h + W2_j act(W1_j h)

and the trunk's own final norm and output matrix read the token j places ahead from h_j. Dimension
letters as in `models.base`.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from specjax.models.base import Params
from specjax.models.layers import ACTIVATIONS, FeedForward, apply


@dataclasses.dataclass(frozen=True)
class Heads:
    """Shape of `count` heads, each a feed-forward network of `width` on a trunk of `d_model`.

    Parameters are one tree per head, so that a decode step slices no stacked weights.
    """

    count: int
    d_model: int
    width: int
    activation: str = "relu"

    def __post_init__(self) -> None:
        for field in ("count", "d_model", "width"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} is {getattr(self, field)}; it must be at least 1")
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation is {self.activation!r}; it must be one of {', '.join(ACTIVATIONS)}"
            )

    def init(self, key: jax.Array) -> Params:
        """Float32 parameters of heads that add nothing: they repeat the trunk's distribution."""
        probe = jnp.zeros((1, self.d_model))
        keys = jax.random.split(key, self.count)
        trees = [self._network(jnp.float32).init(one, probe)["params"] for one in keys]
        return {
            _name(head): tree | {"down": jax.tree.map(jnp.zeros_like, tree["down"])}
            for head, tree in enumerate(trees, start=1)
        }

    def state(self, params: Params, hidden: jax.Array, head: int) -> jax.Array:
        """State [..., D] from which the trunk reads the token `head` (1-based) places ahead."""
        network = self._network(hidden.dtype)
        return hidden + apply(network, "__call__", params[_name(head)], hidden)

    def states(self, params: Params, hidden: jax.Array) -> jax.Array:
        """States [..., k, D] of all heads on the trunk's residual states [..., D]."""
        heads = range(1, self.count + 1)
        return jnp.stack([self.state(params, hidden, head) for head in heads], axis=-2)

    def _network(self, dtype: jnp.dtype) -> FeedForward:
        return FeedForward(self.width, self.activation, gated=False, dtype=dtype, bias=True)


def _name(head: int) -> str:
    return f"head_{head}"


@struct.dataclass
class LoadedHeads:
    """Heads with their parameters: the tree that a blockwise drafter reads."""

    heads: Heads = struct.field(pytree_node=False)
    params: Params
