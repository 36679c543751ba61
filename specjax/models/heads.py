"""Parallel prediction heads: one state gives the distributions of several tokens ahead.

Stern, Shazeer, Uszkoreit, "Blockwise Parallel Decoding for Deep Autoregressive Models" (2018): head
j of k transforms a residual state h of a model after its last layer, its *trunk*, into

    h_j = h + W2_j act(W1_j h)

and the trunk's own final norm and output matrix read the token from h_j. Of a trunk that has read
the pending token h is the state there. Cai et al., "Medusa" (2024) take the target for the trunk,
which has not read it when drafting begins: h is then the state one place before. Ankner et al.,
"Hydra" (2024) let head j read the tokens before its own, W1_j [h; e_0; ...; e_{j-1}] with the
embeddings of the pending token and of j - 1 drafted ones. Dimension letters as in `models.base`.

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
from flax import struct
from jaxtyping import Array, Float, Float32, Key

from specjax.models.base import Params
from specjax.models.info import ModelInfo
from specjax.models.layers import ACTIVATIONS, Dense, FeedForward, apply

EPSILON = 1e-6
"""Added to the mean square of a state."""


@dataclasses.dataclass(frozen=True)
class Heads:
    """Shape of `count` heads, each a feed-forward network of `width` on states of `d_model`.

    Head j (from 1 on) reads the law of the token j places behind the pending one, from the state
    `behind` places before the pending one. Parameters are one tree per head, so that a decode step
    slices no stacked weights.
    """

    count: int
    d_model: int
    width: int
    activation: str = "relu"
    behind: int = 0  # 0: the trunk has read the pending token; 1: it has not, as a target
    sequential: bool = False  # head j reads the j tokens before its own, the pending one first
    normed: bool = False  # of states and embeddings only the direction counts, as to a final norm

    def __post_init__(self) -> None:
        for field in ("count", "d_model", "width"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} is {getattr(self, field)}; it must be at least 1")
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation is {self.activation!r}; it must be one of {', '.join(ACTIVATIONS)}"
            )
        if self.behind not in (0, 1):
            raise ValueError(f"behind is {self.behind}; it must be 0 or 1")

    def init(self, key: Key[Array, ""]) -> Params:
        """Float32 parameters of heads that add nothing: they repeat the trunk's distribution."""
        keys = jax.random.split(key, self.count)
        return {_name(head): self._fresh(keys[head - 1], head) for head in range(1, self.count + 1)}

    def _fresh(self, key: Key[Array, ""], head: int) -> Params:
        probe = jnp.zeros((1, self.inputs(head)))
        tree = self._network(jnp.float32).init(key, probe)["params"]
        return {**tree, "down": jax.tree.map(jnp.zeros_like, tree["down"])}

    def inputs(self, head: int) -> int:
        """Numbers that the network of a head reads."""
        return self.d_model * (1 + head * self.sequential)

    def weights(self, head: int) -> int:
        """Numbers in the two matrices of a head's network."""
        return (self.inputs(head) + self.d_model) * self.width

    def state(
        self,
        params: Params,
        hidden: Float[Array, "... D"],
        head: int,
        embedded: Float[Array, "... N D"] | None = None,
    ) -> Float[Array, "... D"]:
        """State [..., D] from which the trunk's read-out gives the law of head `head` (1-based).

        Sequential heads read the embeddings [..., head, D] of the tokens before theirs too.
        """
        read = hidden[..., None, :]
        if self.sequential:
            if embedded is None:
                raise ValueError("embedded is None; sequential heads read the tokens before theirs")
            read = jnp.concatenate([read, embedded.astype(hidden.dtype)], axis=-2)
        if self.normed:
            read = over_root_mean_square(read)
        network, flat = self._network(hidden.dtype), read.reshape(*hidden.shape[:-1], -1)
        return read[..., 0, :] + apply(network, "__call__", params[_name(head)], flat)

    def states(self, params: Params, hidden: Float[Array, "... D"]) -> Float[Array, "... N D"]:
        """States [..., k, D] of all heads on residual states [..., D]; not of sequential ones."""
        heads = range(1, self.count + 1)
        return jnp.stack([self.state(params, hidden, head) for head in heads], axis=-2)

    def logits(
        self, params: Params, hidden: Float[Array, "... D"], trunk: Trunk
    ) -> Float32[Array, "... N V"]:
        """Float32 logits [..., k, V] of all heads; not of sequential ones."""
        return trunk.read_out(self.states(params, hidden))

    def _network(self, dtype: jnp.dtype) -> FeedForward:
        return FeedForward(
            self.width, self.activation, gated=False, dtype=dtype, bias=True, features=self.d_model
        )


def over_root_mean_square(x: Float[Array, "... D"]) -> Float[Array, "... D"]:
    """x [..., D] over its root mean square, computed in float32; zeros stay zeros.

    States and embeddings differ by a factor of hundreds, and a final norm drops the scale; what has
    none (`ModelInfo.drops_scale`) is read as it is.
    """
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(wide * wide, axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean_square + EPSILON)).astype(x.dtype)


def _name(head: int) -> str:
    return f"head_{head}"


class LoadedHeads(struct.PyTreeNode):
    """Heads with their parameters: the tree that a drafter of heads reads."""

    heads: Heads | ResidualHeads = struct.field(pytree_node=False)
    params: Params


class Trunk(Protocol):
    """What heads need of the model whose states they read."""

    @property
    def info(self) -> ModelInfo: ...

    def read_out(self, hidden: Float[Array, "... D"]) -> Float32[Array, "... V"]: ...

    def normed(self, hidden: Float[Array, "... D"]) -> Float[Array, "... D"]: ...

    def output(self, normed: Float[Array, "... D"]) -> Float32[Array, "... V"]: ...


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

    def init(self, key: Key[Array, ""]) -> Params:
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

    def logits(
        self, params: Params, hidden: Float[Array, "... D"], trunk: Trunk
    ) -> Float32[Array, "... N V"]:
        """Float32 logits [..., k, V] of all heads on residual states [..., D] of the trunk."""
        normed = trunk.normed(hidden)
        heads = (params[f"head_{head}"] for head in range(1, self.count + 1))
        return jnp.stack([self._law(head, normed, trunk) for head in heads], axis=-2)

    def _law(self, head: Params, x: Float[Array, "... D"], trunk: Trunk) -> Float32[Array, "... V"]:
        for i in range(self.layers):
            x = x + jax.nn.silu(apply(self._block(x.dtype), "__call__", head[f"block_{i}"], x))
        if self.vocab_size is None:
            return trunk.output(x)
        logits = apply(Dense(self.vocab_size, x.dtype), "__call__", head["output"], x)
        return logits.astype(jnp.float32)[..., : trunk.info.vocab_size]

    def _block(self, dtype: jnp.dtype) -> Dense:
        return Dense(self.d_model, dtype, bias=True)
