"""Feeds a model the committed tokens that its cache lacks.

Between rounds a cache is valid for at most `length - 1` positions, and for fewer when the model did
not run in the last rounds.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from specjax.contracts import tree
from specjax.contracts.context import Context
from specjax.contracts.env import Bound, get_states
from specjax.contracts.rows import CATCHING_UP, append, slice_window
from specjax.models.base import Cache, Output

CHUNK = 8
"""Tokens of a catch-up call: the widest call that costs little more than a single token."""


def catch_up(model: Bound, cache: Cache, context: Context, lag: int) -> Cache:
    """Feeds committed tokens until no active row lags by more than `lag`."""

    def is_behind(pointer: jax.Array) -> jax.Array:
        return context.active & (pointer < context.length - lag)

    def feed(cache: Cache) -> Cache:
        tokens = slice_window(context.tokens, cache.length, CHUNK)
        _, fed = model.extend(tokens, cache)
        reached = jnp.minimum(fed.length, context.length - 1)
        return fed.replace(length=jnp.where(is_behind(cache.length), reached, cache.length))

    with jax.named_scope(CATCHING_UP):
        return jax.lax.while_loop(lambda cache: jnp.any(is_behind(cache.length)), feed, cache)


def count_catch_up_runs(cache: Cache, context: Context, lag: int) -> Int[Array, " B"]:
    """Number of model calls [B] that `catch_up` needs for each row."""
    missing = jnp.maximum(context.length - lag - cache.length, 0)
    return jnp.where(context.active, -(-missing // CHUNK), 0)


def feed_last(
    model: Bound, cache: Cache, context: Context, lag: int
) -> tuple[Float[Array, "B V"], Cache]:
    """Feeds the last `lag` committed tokens; returns the next-token logits [B, V].

    A row that has fewer tokens than `lag` is fed from its first one and ignores the rest.
    """
    output, _, cache = _feed_tail(model, cache, context, lag)
    return output.logits[:, 0], cache


def feed_drafted(
    model: Bound,
    cache: Cache,
    context: Context,
    drafted: Int[Array, "B K"],
    lag: int,
    parents: Int[Array, "B K"] | None = None,
) -> tuple[Float[Array, "B K+1 V"], Cache]:
    """Feeds the last `lag` tokens and drafted ones [B, K]; returns logits [B, K + 1, V].

    With `parents` [B, K] the drafted tokens are a tree (`Draft.parents`), whose nodes the cache
    then holds in order.
    """
    count = drafted.shape[1]
    whole = jnp.full_like(context.length, count)
    context = context.replace(tokens=append(context.tokens, context.length, drafted, whole))
    output, _, cache = _feed_tail(model, cache, context, lag, count, parents)
    return output.logits, cache


def feed_last_for_state(
    model: Bound, cache: Cache, context: Context, lag: int
) -> tuple[Float[Array, "B D"], Cache]:
    """Feeds the last `lag` tokens; returns the pending token's residual state [B, D]."""
    output, last, cache = _feed_tail(model, cache, context, lag)
    hidden = jnp.take_along_axis(get_states(output), last[..., None], axis=1, mode="clip")
    return hidden[:, 0], cache


def _feed_tail(
    model: Bound,
    cache: Cache,
    context: Context,
    lag: int,
    more: int = 0,
    parents: Int[Array, "B K"] | None = None,
) -> tuple[Output, Int[Array, "B {more}+1"], Cache]:
    """Feeds the last `lag` committed tokens and `more` after them in one call.

    Returns the output at the pending token and the tokens after it, their indices [B, more + 1] in
    the call, and the cache. XLA removes an unused output. An inactive row that did not catch up is
    fed from its pointer, because a ring buffer still holds the slots after it.
    """
    begin = jnp.minimum(jnp.maximum(context.length - lag, 0), cache.length)
    tokens = slice_window(context.tokens, begin, lag + more)
    last = (context.length - 1 - begin)[:, None] + jnp.arange(more + 1)
    tree_inputs = {}
    if parents is not None:
        visible = tree.make_ancestor_mask(tree.append_tree(parents, last[:, 0], lag - 1))
        tree_inputs = {"position": begin[:, None] + tree.compute_depth(visible), "visible": visible}
    output, cache = model.extend(tokens, cache.replace(length=begin), at=last, **tree_inputs)
    return output, last, cache.replace(length=jnp.minimum(context.length, begin + lag) + more)
