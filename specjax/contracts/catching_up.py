"""Bringing a model that lags behind the committed tokens up to date.

Between rounds a cache may be trusted for at most `length - 1` positions, and for fewer when the
model did not take part in the last rounds.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from specjax.contracts import tree
from specjax.contracts.context import Context
from specjax.contracts.env import Bound, get_states
from specjax.contracts.rows import CATCHING_UP, append, window
from specjax.models.base import Cache, Output

CHUNK = 8
"""Tokens fed per catch-up call: the widest call that costs little more than a single token."""


def catch_up(model: Bound, cache: Cache, context: Context, lag: int) -> Cache:
    """Feeds committed tokens until no active row lags by more than `lag`."""

    def is_behind(pointer: jax.Array) -> jax.Array:
        return context.active & (pointer < context.length - lag)

    def feed(cache: Cache) -> Cache:
        tokens = window(context.tokens, cache.length, CHUNK)
        _, fed = model.extend(tokens, cache)
        reached = jnp.minimum(fed.length, context.length - 1)
        return fed.replace(length=jnp.where(is_behind(cache.length), reached, cache.length))

    with jax.named_scope(CATCHING_UP):
        return jax.lax.while_loop(lambda cache: jnp.any(is_behind(cache.length)), feed, cache)


def catch_up_runs(cache: Cache, context: Context, lag: int) -> Int[Array, " B"]:
    """Model runs [B] that `catch_up` takes for each row."""
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

    With `parents` [B, K] they are a tree (`Draft.parents`); the cache holds its nodes in order.
    """
    count = drafted.shape[1]
    whole = jnp.full_like(context.length, count)
    context = context.replace(tokens=append(context.tokens, context.length, drafted, whole))
    output, _, cache = _feed_tail(model, cache, context, lag, count, parents)
    return output.logits, cache


def last_hidden(
    model: Bound, cache: Cache, context: Context, lag: int
) -> tuple[Float[Array, "B D"], Cache]:
    """Feeds as `feed_last` does; returns the pending token's residual state [B, D]."""
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

    Returns the output at the pending token and those after it, their places [B, more + 1] in the
    call, and the cache. XLA drops an output that is not used. A row that is not active and did not
    catch up is fed from its pointer: a ring buffer still holds what comes after it.
    """
    begin = jnp.minimum(jnp.maximum(context.length - lag, 0), cache.length)
    tokens = window(context.tokens, begin, lag + more)
    last = (context.length - 1 - begin)[:, None] + jnp.arange(more + 1)
    how = {}
    if parents is not None:
        visible = tree.ancestor_mask(tree.append_tree(parents, last[:, 0], lag - 1))
        how = {"position": begin[:, None] + tree.depth(visible), "visible": visible}
    output, cache = model.extend(tokens, cache.replace(length=begin), at=last, **how)
    return output, last, cache.replace(length=jnp.minimum(context.length, begin + lag) + more)
