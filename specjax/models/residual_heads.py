"""Published Medusa heads: residual blocks on the target's normed state, and output matrices.

Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads"
(2024), section 2.1.1: head j transforms the state x of the target behind its final norm by blocks

    x <- x + silu(W x + b)

and reads the law of the token j places behind the pending one by a matrix of its own, or by the
target's. Dimension letters as in `models.base`.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Protocol

import jax
import jax.numpy as jnp

from specjax.models.base import Params
from specjax.models.info import ModelInfo
from specjax.models.layers import Dense, apply


class Trunk(Protocol):
    """What heads need of the model whose states they read."""

    @property
    def info(self) -> ModelInfo: ...

    def read_out(self, hidden: jax.Array) -> jax.Array: ...

    def normed(self, hidden: jax.Array) -> jax.Array: ...

    def output(self, normed: jax.Array) -> jax.Array: ...


@dataclasses.dataclass(frozen=True)
class ResidualHeads:
    """Shape of `count` heads, each of so many blocks on states of `d_model`.

    Parameters are one tree per head: `block_0` ..., and `output` where its matrix is its own.
    """

    count: int
    d_model: int
    layers: int = 1
    vocab_size: int | None = None  # ids of output matrices of their own; None: the target's

    behind: ClassVar[int] = 1
    sequential: ClassVar[bool] = False

    def init(self, key: jax.Array) -> Params:
        """Float32 parameters; blocks that add nothing, and any output matrices."""
        state = jnp.zeros((1, self.d_model))
        block = self._block(jnp.float32).init(key, state)["params"]
        silent = {f"block_{i}": jax.tree.map(jnp.zeros_like, block) for i in range(self.layers)}
        own = {}
        if self.vocab_size is not None:
            own["output"] = Dense(self.vocab_size, jnp.float32).init(key, state)["params"]
        return {f"head_{head}": silent | own for head in range(1, self.count + 1)}

    def weights(self, head: int) -> int:
        """Numbers in the blocks of a head; its output matrix counts as a read-out of the trunk."""
        return self.layers * self.d_model**2

    def logits(self, params: Params, hidden: jax.Array, trunk: Trunk) -> jax.Array:
        """Float32 logits [..., k, V] of all heads on residual states [..., D] of the trunk."""
        normed = trunk.normed(hidden)
        heads = (params[f"head_{head}"] for head in range(1, self.count + 1))
        return jnp.stack([self._law(head, normed, trunk) for head in heads], axis=-2)

    def _law(self, head: Params, x: jax.Array, trunk: Trunk) -> jax.Array:
        for i in range(self.layers):
            x = x + jax.nn.silu(apply(self._block(x.dtype), "__call__", head[f"block_{i}"], x))
        if self.vocab_size is None:
            return trunk.output(x)
        logits = apply(Dense(self.vocab_size, x.dtype), "__call__", head["output"], x)
        return logits.astype(jnp.float32)[..., : trunk.info.vocab_size]

    def _block(self, dtype: jnp.dtype) -> Dense:
        return Dense(self.d_model, dtype, bias=True)
