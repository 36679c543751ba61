"""The state of all rows at the start of a round, and the traced options."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float32, Int, Int32, Key, Shaped

from specjax.contracts.stopping import RowStops, Stops
from specjax.models.base import OwnPrompt
from specjax.sampling import Sampling


class Options(struct.PyTreeNode):
    """Traced settings, which change without recompilation."""

    sampling: Sampling
    numbers: dict[str, Float32[Array, ""]]  # thresholds by name: "lenience", "confidence", ...
    rows: dict[str, Shaped[Array, " B"]] = struct.field(default_factory=dict)  # `Spec.rows`
    prompts: dict[str, OwnPrompt] = struct.field(default_factory=dict)  # of models with other ids
    previous: OwnPrompt | None = None  # of speech models: text before the audio
    processors: tuple[Any, ...] = struct.field(pytree_node=False, default=())  # in order
    stops: Stops | RowStops | None = None  # strings that end a text


class Context(struct.PyTreeNode):
    """Tokens and lengths of all rows at the start of a round.

    `tokens[b, :length[b]]` is committed: the decoder prefix or the prompt, followed by the tokens
    generated from `begin[b]` on. `encoder_tokens` are the prompts of encoder-decoder models, and
    [B, 0] for decoder-only and speech models.
    """

    encoder_tokens: Int32[Array, "B S"]
    encoder_length: Int32[Array, " B"]
    tokens: Int32[Array, "B L"]
    length: Int32[Array, " B"]
    begin: Int32[Array, " B"]
    limit: Int32[Array, " B"]  # the length at which a row ends
    most: Int32[Array, " B"]  # drafted tokens that can be committed; 0 in inactive rows
    active: Bool[Array, " B"]
    options: Options

    @property
    def room(self) -> Int[Array, " B"]:
        """Number of tokens [B] that still fit into each row; 0 for inactive rows."""
        return jnp.where(self.active, self.limit - self.length, 0)


def get_pending_tokens(context: Context) -> Int[Array, " B"]:
    """Returns the last committed token [B] of each row, which no model's cache holds."""
    return jnp.take_along_axis(context.tokens, context.length[:, None] - 1, axis=1)[:, 0]


def fold_keys(
    keys: Key[Array, " B"], data: Int[Array, " B"] | Int[Array, ""] | int
) -> Key[Array, " B"]:
    """Folds each row's key with its own number, or with one number for all rows."""
    numbers = jnp.broadcast_to(jnp.asarray(data, jnp.int32), keys.shape)
    return jax.vmap(jax.random.fold_in)(keys, numbers)
