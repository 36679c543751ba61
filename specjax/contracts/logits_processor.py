"""The contract of logits processors, which depend on the preceding tokens.

They run before temperature, top-k and top-p at every position of a draft, on the logits of both
target and drafter. Rules then compare two distributions with the same settings, so lossless rules
keep the target's processed distribution (docs/methods/generation_settings.md).

T positions of a row are processed together. The tokens before a position are the committed row and
a path of drafted tokens.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Int32

from specjax.contracts import fields, tree
from specjax.contracts.context import Context
from specjax.contracts.distribution import pick_tokens
from specjax.contracts.draft import Draft
from specjax.contracts.rule import count_leading
from specjax.models.base import LanguageModel

UNKNOWN = -1
"""No token, or a token drafted in parallel with its successor; matches no id."""


class Positions(struct.PyTreeNode):
    """T positions of every row with the tokens before each."""

    context: Context
    path: Int32[Array, "B T D"]  # drafted tokens before a position, in order
    depth: Int32[Array, "B T"]  # length of the path; later entries are ignored

    @property
    def length(self) -> Int[Array, "B T"]:
        """Number of tokens [B, T] before each position."""
        return self.context.length[:, None] + self.depth

    @property
    def drafted(self) -> Int[Array, "B T D"]:
        """The path [B, T, D], padded with `UNKNOWN`."""
        inside = jnp.arange(self.path.shape[2]) < self.depth[..., None]
        return jnp.where(inside, self.path, UNKNOWN)

    def tail(self, count: int) -> Int[Array, "B T N"]:
        """Returns the last `count` committed tokens followed by the path, [B, T, count + D]."""
        context = self.context
        slot = context.length[:, None] + jnp.arange(-count, 0)
        row = jnp.take_along_axis(context.tokens, jnp.maximum(slot, 0), axis=1, mode="clip")
        row = jnp.where(slot >= 0, row, UNKNOWN)[:, None]
        row = jnp.broadcast_to(row, (*self.depth.shape, count))
        return jnp.concatenate([row, self.drafted], axis=2)

    def last(self, count: int) -> Int[Array, "B T {count}"]:
        """Returns the last `count` tokens [B, T, count] before each position."""
        slot = self.depth[..., None] + jnp.arange(count)
        return jnp.take_along_axis(self.tail(count), slot, axis=2)


class LogitsProcessor:
    """A logits processor, frozen and hashable, named as in Hugging Face transformers."""

    order: ClassVar[int]
    """Processors run in ascending order, that of Hugging Face transformers."""

    off: ClassVar[Any] = ()
    """A value other than None that disables it."""

    scores_only: ClassVar[bool] = False
    """Whether it changes scores of hypotheses instead of next-token distributions."""

    def __post_init__(self) -> None:
        fields.check(self)

    @staticmethod
    def tokens(value: Any) -> tuple[int, ...]:
        """Returns the token ids in a value of its field, which must be in the vocabulary."""
        return ()

    def bind_model(
        self, model: LanguageModel, others: tuple[LogitsProcessor, ...]
    ) -> LogitsProcessor:
        """Returns the processor completed with facts about the target and the others."""
        return self

    def prepare_rows(self, context: Context, vocabulary: int) -> Any:
        """Computes what it needs from the committed tokens, once per round."""
        return ()

    def adjust(
        self, logits: Float[Array, "B T V"], positions: Positions, rows: Any
    ) -> Float[Array, "B T V"]:
        """Processes logits [B, T, V]; `rows` is the result of `prepare_rows`."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class BoundProcessors:
    """The logits processors of a context, for positions after its rows.

    Without any processor it is false and returns the logits unchanged.
    """

    context: Context
    rows: tuple[Any, ...]  # `LogitsProcessor.prepare_rows` of each

    def __bool__(self) -> bool:
        return bool(self.rows)

    def process_paths(
        self, logits: Float[Array, "B T V"], path: Int[Array, "B T D"], depth: Int[Array, " ..."]
    ) -> Float[Array, "B T V"]:
        """Processes logits [B, T, V] after the first `depth` [B, T] tokens of path [B, T, D]."""
        if not self:
            return logits
        options, given = self.context.options, logits
        positions = Positions(self.context, path, jnp.broadcast_to(depth, logits.shape[:2]))
        for processor, rows in zip(options.processors, self.rows, strict=True):
            logits = processor.adjust(logits, positions, rows)
        if options.sampling.greedy:
            return logits
        # Settings that forbid every token are ignored.
        some = jnp.any(logits > -jnp.inf, axis=-1, keepdims=True)
        return jnp.where(some, logits, given)

    def process_draft(self, logits: Float[Array, "B K1 V"], draft: Draft) -> Float[Array, "B K1 V"]:
        """Processes logits [B, K + 1, V] after the pending token and each drafted one."""
        if not self:
            return logits
        count, shape = draft.width, (*logits.shape[:2], draft.width)
        if draft.parents is None:
            path = jnp.broadcast_to(draft.tokens[:, None], shape)
            return self.process_paths(logits, path, jnp.arange(count + 1))
        ancestors = tree.make_ancestor_mask(draft.parents)
        # Ancestors in the order of their nodes: parents come before their children.
        nodes = jnp.argsort(~ancestors[..., 1:], axis=-1, stable=True)
        path = jnp.take_along_axis(jnp.broadcast_to(draft.tokens[:, None], shape), nodes, axis=2)
        return self.process_paths(logits, path, tree.compute_depth(ancestors))

    def process_next(
        self, logits: Float[Array, "B V"], drafted: Int[Array, "B K"], count: Int[Array, ""] | int
    ) -> Float[Array, "B V"]:
        """Processes logits [B, V] after the first `count` [] of drafted tokens [B, K]."""
        if not self:
            return logits
        return self.process_paths(logits[:, None], drafted[:, None], jnp.asarray(count))[:, 0]

    def process_parallel(self, logits: Float[Array, "B K V"]) -> Float[Array, "B K V"]:
        """Processes logits [B, K, V] of K successive tokens that are drafted in parallel."""
        if not self:
            return logits
        rows, count, _ = logits.shape
        path = jnp.full((rows, count, count), UNKNOWN)
        return self.process_paths(logits, path, jnp.arange(count))


def bind_processors(context: Context, vocabulary: int) -> BoundProcessors:
    """Binds the logits processors of a context to its rows, for a vocabulary size."""
    each = (one.prepare_rows(context, vocabulary) for one in context.options.processors)
    return BoundProcessors(context, tuple(each))


def cut_at_forbidden(draft: Draft, logits: Float[Array, "B K1 V"]) -> Draft:
    """Cuts a chain at the first token forbidden in the processed logits [B, K+1, V].

    For rules that accept tokens of probability 0. A lossless rule rejects such a token itself and
    must test its position.
    """
    if draft.parents is not None:
        return draft
    is_allowed = pick_tokens(logits[:, :-1], draft.tokens) > -jnp.inf
    return draft.replace(length=count_leading(is_allowed, draft.length))


def mask_tokens(
    logits: Float[Array, "B T V"], tokens: Int[Array, "... N"], banned: Bool[Array, "B T N"]
) -> Float[Array, "B T V"]:
    """Masks the tokens [..., N] in logits [B, T, V] where `banned` [B, T, N]."""
    rows, places, vocabulary = logits.shape
    index = jnp.where(banned & (tokens >= 0), tokens, vocabulary)
    row, place = jnp.arange(rows)[:, None, None], jnp.arange(places)[:, None]
    return logits.at[row, place, index].set(-jnp.inf, mode="drop")


def force_tokens(
    logits: Float[Array, "B T V"], chosen: Bool[Array, "... V"], where: Bool[Array, "B T"]
) -> Float[Array, "B T V"]:
    """Allows only `chosen` [..., V] in logits [B, T, V] at positions `where` [B, T]."""
    forced = jnp.where(chosen, 0.0, -jnp.inf).astype(logits.dtype)
    return jnp.where(where[..., None], forced, logits)
