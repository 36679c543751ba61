"""Parallel draft heads, which predict several future tokens from one state.

Stern, Shazeer, Uszkoreit, "Blockwise Parallel Decoding for Deep Autoregressive Models" (2018): head
j of k transforms a residual state h of a model after its last layer, its *trunk*, into

    h_j = h + W2_j act(W1_j h)

and the trunk's final norm and LM head compute logits from h_j. If the trunk has read the pending
token, h is the state at that token. In Cai et al., "Medusa" (2024), the trunk is the target, which
has not read it when drafting begins: h is then the state one token before. In Ankner et al.,
"Hydra" (2024), head j also reads the tokens before its own, W1_j [h; e_0; ...; e_{j-1}] with the
embeddings of the pending token and of j - 1 drafted ones. Dimension letters as in `models.base`.

Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads"
(2024), section 2.1.1: head j transforms the state x of the target after its final norm by blocks

    x <- x + silu(W x + b)

and computes the logits of token j after the pending one by its own output matrix, or the target's.
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

    Head j, from 1, predicts token j after the pending one, from the state `state_lag` tokens before
    the pending one. Parameters are one tree per head, so that a decode step slices no stacked
    weights.
    """

    count: int
    d_model: int
    width: int
    activation: str = "relu"
    state_lag: int = 0  # tokens from the state to the pending one: 0 or, of a target, 1
    sequential: bool = False  # head j also reads the pending and j - 1 drafted tokens
    normed: bool = False  # states and embeddings are divided by their root mean square

    def __post_init__(self) -> None:
        for field in ("count", "d_model", "width"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field} is {getattr(self, field)}; it must be at least 1")
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"activation is {self.activation!r}; it must be one of {', '.join(ACTIVATIONS)}"
            )
        if self.state_lag not in (0, 1):
            raise ValueError(f"state_lag is {self.state_lag}; it must be 0 or 1")

    def init(self, key: Key[Array, ""]) -> Params:
        """Initializes float32 parameters with which heads equal the trunk's distribution."""
        keys = jax.random.split(key, self.count)
        return {
            _name(head): self._init_head(keys[head - 1], head) for head in range(1, self.count + 1)
        }

    def _init_head(self, key: Key[Array, ""], head: int) -> Params:
        probe = jnp.zeros((1, self.count_inputs(head)))
        tree = self._network(jnp.float32).init(key, probe)["params"]
        return {**tree, "down": jax.tree.map(jnp.zeros_like, tree["down"])}

    def count_inputs(self, head: int) -> int:
        """Counts the inputs of a head's network."""
        return self.d_model * (1 + head * self.sequential)

    def count_weights(self, head: int) -> int:
        """Counts the weights of the two matrices of a head's network."""
        return (self.count_inputs(head) + self.d_model) * self.width

    def compute_state(
        self,
        params: Params,
        hidden: Float[Array, "... D"],
        head: int,
        embedded: Float[Array, "... N D"] | None = None,
    ) -> Float[Array, "... D"]:
        """Computes the state [..., D] of head `head` (1-based) for the trunk's `read_out`.

        Sequential heads also read embeddings [..., head, D] of the tokens before theirs.
        """
        read = hidden[..., None, :]
        if self.sequential:
            if embedded is None:
                raise ValueError(
                    "embedded is None; sequential heads require the embeddings of earlier tokens"
                )
            read = jnp.concatenate([read, embedded.astype(hidden.dtype)], axis=-2)
        if self.normed:
            read = divide_by_root_mean_square(read)
        network, flat = self._network(hidden.dtype), read.reshape(*hidden.shape[:-1], -1)
        return read[..., 0, :] + apply(network, "__call__", params[_name(head)], flat)

    def compute_states(
        self, params: Params, hidden: Float[Array, "... D"]
    ) -> Float[Array, "... N D"]:
        """Computes states [..., k, D] of all heads, not sequential, on states [..., D]."""
        heads = range(1, self.count + 1)
        return jnp.stack([self.compute_state(params, hidden, head) for head in heads], axis=-2)

    def compute_logits(
        self, params: Params, hidden: Float[Array, "... D"], trunk: Trunk
    ) -> Float32[Array, "... N V"]:
        """Computes float32 logits [..., k, V] of all heads, not sequential."""
        return trunk.read_out(self.compute_states(params, hidden))

    def _network(self, dtype: jnp.dtype) -> FeedForward:
        return FeedForward(
            self.width, self.activation, gated=False, dtype=dtype, bias=True, features=self.d_model
        )


def divide_by_root_mean_square(x: Float[Array, "... D"]) -> Float[Array, "... D"]:
    """Divides x [..., D] by its root mean square, in float32; zeros stay zeros.

    States and embeddings differ in scale by factors of hundreds, which a final norm removes; models
    without a final norm (`ModelInfo.drops_scale`) are read unscaled.
    """
    wide = x.astype(jnp.float32)
    mean_square = jnp.mean(wide * wide, axis=-1, keepdims=True)
    return (wide * jax.lax.rsqrt(mean_square + EPSILON)).astype(x.dtype)


def _name(head: int) -> str:
    return f"head_{head}"


class LoadedHeads(struct.PyTreeNode):
    """Heads with their parameters, as drafters read them."""

    heads: Heads | ResidualHeads = struct.field(pytree_node=False)
    params: Params


class Trunk(Protocol):
    """The interface of the model whose states heads read."""

    @property
    def info(self) -> ModelInfo: ...

    def read_out(self, hidden: Float[Array, "... D"]) -> Float32[Array, "... V"]: ...

    def apply_final_norm(self, hidden: Float[Array, "... D"]) -> Float[Array, "... D"]: ...

    def apply_lm_head(self, normed: Float[Array, "... D"]) -> Float32[Array, "... V"]: ...


@dataclasses.dataclass(frozen=True)
class ResidualHeads:
    """Shape of `count` heads, each of `layers` residual blocks on states of `d_model`.

    Parameters are one tree per head: `block_0` ..., and `output` if the head has an output matrix.
    """

    count: int
    d_model: int
    layers: int = 1
    vocab_size: int | None = None  # of own output matrices; None: the target's LM head

    state_lag: ClassVar[int] = 1
    sequential: ClassVar[bool] = False

    def init(self, key: Key[Array, ""]) -> Params:
        """Initializes float32 parameters, with blocks that add zero."""
        state = jnp.zeros((1, self.d_model))
        block = self._block(jnp.float32).init(key, state)["params"]
        silent = {f"block_{i}": jax.tree.map(jnp.zeros_like, block) for i in range(self.layers)}
        own = {}
        if self.vocab_size is not None:
            own["output"] = Dense(self.vocab_size, jnp.float32).init(key, state)["params"]
        return {f"head_{head}": silent | own for head in range(1, self.count + 1)}

    def count_weights(self, head: int) -> int:
        """Counts the weights of a head's blocks; an output matrix counts as a read-out."""
        return self.layers * self.d_model**2

    def compute_logits(
        self, params: Params, hidden: Float[Array, "... D"], trunk: Trunk
    ) -> Float32[Array, "... N V"]:
        """Computes float32 logits [..., k, V] of all heads on residual states [..., D]."""
        normed = trunk.apply_final_norm(hidden)
        heads = (params[f"head_{head}"] for head in range(1, self.count + 1))
        return jnp.stack(
            [self._compute_head_logits(head, normed, trunk) for head in heads], axis=-2
        )

    def _compute_head_logits(
        self, head: Params, x: Float[Array, "... D"], trunk: Trunk
    ) -> Float32[Array, "... V"]:
        for i in range(self.layers):
            x = x + jax.nn.silu(apply(self._block(x.dtype), "__call__", head[f"block_{i}"], x))
        if self.vocab_size is None:
            return trunk.apply_lm_head(x)
        logits = apply(Dense(self.vocab_size, x.dtype), "__call__", head["output"], x)
        return logits.astype(jnp.float32)[..., : trunk.info.vocab_size]

    def _block(self, dtype: jnp.dtype) -> Dense:
        return Dense(self.d_model, dtype, bias=True)
