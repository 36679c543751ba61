"""The rows at the start of a round, and the options that a user may sweep."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float32, Int, Int32, Key, Shaped

from specjax.contracts.stopping import Stops
from specjax.models.base import OwnPrompt
from specjax.sampling import Sampling


class Options(struct.PyTreeNode):
    """Everything traced that a user may sweep without recompiling."""

    sampling: Sampling
    numbers: dict[str, Float32[Array, ""]]  # thresholds by name: "lenience", "confidence", ...
    rows: dict[str, Shaped[Array, " B"]] = struct.field(default_factory=dict)  # `Spec.rows`
    prompts: dict[str, OwnPrompt] = struct.field(default_factory=dict)  # by model, where its own
    previous: OwnPrompt | None = None  # of speech models: text before what a row begins with
    processors: tuple[Any, ...] = struct.field(pytree_node=False, default=())  # in their order
    stops: Stops | None = None  # strings that end a text


class Context(struct.PyTreeNode):
    """What is known of every row at the start of a round.

    `tokens[b, :length[b]]` is committed: first the decoder prefix or the prompt, then the tokens
    generated from `begin[b]` on. Encoder-decoder models have read `encoder_tokens`; it is [B, 0]
    for decoder-only and speech models.
    """

    encoder_tokens: Int32[Array, "B S"]
    encoder_length: Int32[Array, " B"]
    tokens: Int32[Array, "B L"]
    length: Int32[Array, " B"]
    begin: Int32[Array, " B"]
    limit: Int32[Array, " B"]  # the length at which a row ends
    most: Int32[Array, " B"]  # useful drafted tokens; 0 in rows that are not active
    active: Bool[Array, " B"]
    options: Options

    @property
    def room(self) -> Int[Array, " B"]:
        """Tokens [B] that still fit into the row."""
        return jnp.where(self.active, self.limit - self.length, 0)


def get_pending_tokens(context: Context) -> Int[Array, " B"]:
    """The pending token [B] of every row: committed, and in no model's cache."""
    return jnp.take_along_axis(context.tokens, context.length[:, None] - 1, axis=1)[:, 0]


def fold_keys(
    keys: Key[Array, " B"], data: Int[Array, " B"] | Int[Array, ""] | int
) -> Key[Array, " B"]:
    """Each row's key folded with its own number (or one number for all)."""
    numbers = jnp.broadcast_to(jnp.asarray(data, jnp.int32), keys.shape)
    return jax.vmap(jax.random.fold_in)(keys, numbers)
