"""The rows at the start of a round, and the options that a user may sweep."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts.stopping import Stops
from specjax.models.base import OwnPrompt
from specjax.sampling import Sampling


class Options(struct.PyTreeNode):
    """Everything traced that a user may sweep without recompiling."""

    sampling: Sampling
    numbers: dict[str, jax.Array]  # thresholds by name: "lenience", "confidence", ...
    rows: dict[str, jax.Array] = struct.field(default_factory=dict)  # [B] by name (`Spec.rows`)
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

    encoder_tokens: jax.Array  # [B, S] int32
    encoder_length: jax.Array  # [B] int32
    tokens: jax.Array  # [B, L] int32
    length: jax.Array  # [B] int32
    begin: jax.Array  # [B] int32
    limit: jax.Array  # [B] int32: the length at which a row ends
    most: jax.Array  # [B] int32: useful drafted tokens; 0 in rows that are not active
    active: jax.Array  # [B] bool
    options: Options

    @property
    def room(self) -> jax.Array:
        """Tokens [B] that still fit into the row."""
        return jnp.where(self.active, self.limit - self.length, 0)


def get_pending_tokens(context: Context) -> jax.Array:
    """The pending token [B] of every row: committed, and in no model's cache."""
    return jnp.take_along_axis(context.tokens, context.length[:, None] - 1, axis=1)[:, 0]


def fold_keys(keys: jax.Array, data: jax.Array | int) -> jax.Array:
    """Each row's key folded with its own number (or one number for all)."""
    numbers = jnp.broadcast_to(jnp.asarray(data, jnp.int32), keys.shape)
    return jax.vmap(jax.random.fold_in)(keys, numbers)
