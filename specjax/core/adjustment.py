"""The contract of generation settings: changes of next-token logits by the text before the token.

They act before temperature, top-k and top-p, position by position along a draft, on the target's
logits and on the drafter's alike: what rules compare are two laws under one setting, so lossless
rules keep the target's law under it (docs/methods/generation_settings.md).

T places of a row are looked at together. The text before each is the committed row and then a path
of drafted tokens of its own.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from specjax.core import fields, tree
from specjax.core.context import Context
from specjax.core.distribution import of_tokens
from specjax.core.draft import Draft
from specjax.core.verdict import leading_run
from specjax.models.base import LanguageModel

UNKNOWN = -1
"""A token that is drafted at the same time as the one behind it, or none: it matches nothing."""


class Places(struct.PyTreeNode):
    """T places of every row, and the text before each."""

    context: Context
    path: jax.Array  # [B, T, D] int32: the drafted tokens before a place, the first one first
    depth: jax.Array  # [B, T] int32: how many of them; what is behind them means nothing

    @property
    def length(self) -> jax.Array:
        """Tokens [B, T] before each place."""
        return self.context.length[:, None] + self.depth

    @property
    def drafted(self) -> jax.Array:
        """The path with `UNKNOWN` behind its end."""
        inside = jnp.arange(self.path.shape[2]) < self.depth[..., None]
        return jnp.where(inside, self.path, UNKNOWN)

    def tail(self, count: int) -> jax.Array:
        """The last `count` committed tokens and then the path, [B, T, count + D]."""
        context = self.context
        slot = context.length[:, None] + jnp.arange(-count, 0)
        row = jnp.take_along_axis(context.tokens, jnp.maximum(slot, 0), axis=1, mode="clip")
        row = jnp.where(slot >= 0, row, UNKNOWN)[:, None]
        row = jnp.broadcast_to(row, (*self.depth.shape, count))
        return jnp.concatenate([row, self.drafted], axis=2)

    def last(self, count: int) -> jax.Array:
        """The last `count` tokens [B, T, count] before each place; `UNKNOWN` is none."""
        slot = self.depth[..., None] + jnp.arange(count)
        return jnp.take_along_axis(self.tail(count), slot, axis=2)


class Adjustment:
    """One generation setting; frozen and hashable. Its one config field has Hugging Face's name."""

    order: ClassVar[int]
    """Adjustments run by rising order, which is Hugging Face's of its processors."""

    off: ClassVar[Any] = ()
    """The value, beside none, at which it changes nothing."""

    scores_only: ClassVar[bool] = False
    """Whether it changes scores of hypotheses, and no distribution of a next token."""

    def __post_init__(self) -> None:
        fields.check(self)

    @staticmethod
    def tokens(value: Any) -> tuple[int, ...]:
        """The token ids in a value of its field, which the target must have."""
        return ()

    def of_model(self, model: LanguageModel, others: tuple[Adjustment, ...]) -> Adjustment:
        """The same for a target, beside other settings."""
        return self

    def of_rows(self, context: Context, vocabulary: int) -> Any:
        """What it needs of the committed tokens, computed once for all places of a round."""
        return ()

    def adjust(self, logits: jax.Array, places: Places, rows: Any) -> jax.Array:
        """Logits [B, T, V] of the places from logits [B, T, V]; `rows` are those of `of_rows`."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Adjusting:
    """The settings of a context, ready for any of the places behind its rows.

    Without any it is false, and logits stay the very arrays that they are.
    """

    context: Context
    rows: tuple[Any, ...]  # of each adjustment, what it needs of the committed tokens

    def __bool__(self) -> bool:
        return bool(self.rows)

    def at(self, logits: jax.Array, path: jax.Array, depth: jax.Array) -> jax.Array:
        """Logits [B, T, V] behind the first `depth` [B, T] tokens of path [B, T, D]."""
        if not self:
            return logits
        options, given = self.context.options, logits
        places = Places(self.context, path, jnp.broadcast_to(depth, logits.shape[:2]))
        for adjustment, rows in zip(options.adjustments, self.rows, strict=True):
            logits = adjustment.adjust(logits, places, rows)
        if options.sampling.greedy:
            return logits
        # Where settings leave nothing to draw there is no law: they are not obeyed.
        some = jnp.any(logits > -jnp.inf, axis=-1, keepdims=True)
        return jnp.where(some, logits, given)

    def of_draft(self, logits: jax.Array, draft: Draft) -> jax.Array:
        """Logits [B, K + 1, V] behind the pending token and behind each drafted one."""
        if not self:
            return logits
        count, shape = draft.width, (*logits.shape[:2], draft.width)
        if draft.parents is None:
            path = jnp.broadcast_to(draft.tokens[:, None], shape)
            return self.at(logits, path, jnp.arange(count + 1))
        seen = tree.seen(draft.parents)
        # Ancestors in the order of their places: parents stand before their children.
        nodes = jnp.argsort(~seen[..., 1:], axis=-1, stable=True)
        path = jnp.take_along_axis(jnp.broadcast_to(draft.tokens[:, None], shape), nodes, axis=2)
        return self.at(logits, path, tree.depth(seen))

    def behind(self, logits: jax.Array, drafted: jax.Array, count: jax.Array | int) -> jax.Array:
        """Logits [B, V] behind the first `count` [] of drafted tokens [B, K]."""
        if not self:
            return logits
        return self.at(logits[:, None], drafted[:, None], jnp.asarray(count))[:, 0]

    def in_parallel(self, logits: jax.Array) -> jax.Array:
        """Logits [B, K, V] of tokens that are drafted at the same time, one behind the other."""
        if not self:
            return logits
        rows, count, _ = logits.shape
        path = jnp.full((rows, count, count), UNKNOWN)
        return self.at(logits, path, jnp.arange(count))


def adjusting(context: Context, vocabulary: int) -> Adjusting:
    """The settings of a context over so many tokens."""
    each = (one.of_rows(context, vocabulary) for one in context.options.adjustments)
    return Adjusting(context, tuple(each))


def allowed(draft: Draft, logits: jax.Array) -> Draft:
    """A chain up to its first token that the settings forbid, from the adjusted logits [B, K+1, V].

    For rules that let tokens stand which the target would never write. Under a lossless one such a
    token falls by itself, and its place must be tested.
    """
    if draft.parents is not None:
        return draft
    written = of_tokens(logits[:, :-1], draft.tokens) > -jnp.inf
    return draft.replace(length=leading_run(written, draft.length))


def ban(logits: jax.Array, tokens: jax.Array, banned: jax.Array) -> jax.Array:
    """Logits [B, T, V] without the tokens [B or 1, T or 1, N] at which `banned` [B, T, N]."""
    rows, places, vocabulary = logits.shape
    index = jnp.where(banned & (tokens >= 0), tokens, vocabulary)
    row, place = jnp.arange(rows)[:, None, None], jnp.arange(places)[:, None]
    return logits.at[row, place, index].set(-jnp.inf, mode="drop")


def only(logits: jax.Array, chosen: jax.Array, where: jax.Array) -> jax.Array:
    """Logits [B, T, V] with the tokens `chosen` [..., V] certain at the places `where` [B, T]."""
    forced = jnp.where(chosen, 0.0, -jnp.inf).astype(logits.dtype)
    return jnp.where(where[..., None], forced, logits)
