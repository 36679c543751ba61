"""Cascades: drafters made of drafters, for any depth.

Chen et al., "Cascade Speculative Drafting for Even Faster LLM Inference" (2024), Algorithm 1
(docs/methods/cascade.md). `Reviewed` is its recursion: a model reviews what its inner drafter
proposes and hands the result on as a draft. `Horizontal` is its inner loop: one drafter after
another extends the draft. Both draft on a tentative prefix and rewind the caches of the models
below them. `drafting/matrix.py` makes cascades of the two.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from specjax.drafting.base import (
    LENGTH,
    Caches,
    Call,
    Context,
    Draft,
    Drafter,
    Models,
    distinct,
    fold,
    lookup,
    parts,
    until_eos,
)
from specjax.drafting.rows import append, cut, ends_text, rewind
from specjax.drafting.sync import catch_up, catch_up_runs, feed_drafted, window
from specjax.sampling import Sampling
from specjax.verification.base import Rule, probability
from specjax.verification.exact import SpeculativeSampling

LAG = 2
"""Tokens a reviewer is fed before a draft at least: after its whole draft stood it has not seen its
own last one, nor the one that followed."""

INNER, REVIEW = 0, 1
"""Each folds its own number into a reviewer's keys."""


@dataclasses.dataclass(frozen=True)
class Reviewed:
    """The drafts of `inner`, reviewed by the model called `model`.

    A draft is what stands and the model's own next token, drawn by the law that `rule` induces; at
    temperature 0 the model's argmax. Around `Nothing` it is one autoregressive step. `lag` tokens
    are fed before the inner draft; what else the model has not seen takes calls of its own.
    """

    model: str
    inner: Drafter
    rule: Rule = SpeculativeSampling()
    lag: int = LAG

    def __post_init__(self) -> None:
        if not self.rule.nestable:
            raise ValueError(f"{self.rule} cannot review inside a cascade")
        if self.model in self.inner.models:
            raise ValueError(f"{self.model!r} reviews its own drafts; a cascade names each once")
        _check_whole(self.inner)

    @property
    def width(self) -> int:
        return self.inner.width + 1

    @property
    def reach(self) -> int:
        return max(self.inner.reach, self.inner.width + self.lag)

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model, *self.inner.models)

    @property
    def tables(self) -> tuple[str, ...]:
        return self.inner.tables

    @property
    def writers(self) -> tuple[str, ...]:
        return (*self.inner.writers, self.model)

    @property
    def schedule(self) -> tuple[Call, ...]:
        fed = self.inner.width + self.lag
        return (*self.inner.schedule, Call(self.model, fed, self.inner.width + 1))

    @property
    def scored(self) -> bool:
        """Whether a reviewer above needs `Draft.score`."""
        return not self.rule.lossless

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        model, weights = lookup(models, self.model), params[self.model]
        draft, after = self.inner.draft(models, params, caches, context, fold(keys, INNER))
        draft = cut(draft, context.room, model.eos)
        runs = catch_up_runs(caches[self.model], context, self.lag) + 1
        cache = catch_up(model, weights, caches[self.model], context, self.lag)
        logits, cache = feed_drafted(model, weights, cache, context, draft.tokens, self.lag)
        verdict = self.rule.verify(draft, logits, context.options, fold(keys, REVIEW))
        stands = jnp.arange(self.width) < verdict.accepted[:, None]
        tokens = jnp.where(stands, _padded(draft.tokens), verdict.next_token[:, None])
        length = jnp.minimum(verdict.accepted + 1, until_eos(tokens, model.eos))
        length = jnp.where(context.active, length, 0)
        after = {**after, self.model: cache}
        reviewed = Draft(
            tokens=tokens,
            length=length,
            probs=verdict.probs,
            source=jnp.where(stands, _padded(draft.source), len(self.inner.writers)),
            calls={**draft.calls, self.model: jnp.where(context.active, runs, 0)},
            stop_reason=draft.stop_reason,
            score=probability(logits, tokens) if self.scored else None,
        )
        return reviewed, rewind(after, caches, context.length + length, context.active)


@dataclasses.dataclass(frozen=True)
class Stage:
    """A drafter that extends a draft until it has `until` tokens, or more: its last call may."""

    drafter: Drafter
    until: int

    def __post_init__(self) -> None:
        _check_whole(self.drafter)


@struct.dataclass
class _Progress:
    """Carry of the drafting loops: a tentative prefix, and of its drafted part W what is known."""

    tokens: jax.Array  # [B, L]
    length: jax.Array  # [B]
    going: jax.Array  # [B] the stage extends the row
    ended: jax.Array  # [B] by an EOS
    probs: jax.Array | None  # [B, W, V]
    score: jax.Array | None  # [B, W]
    source: jax.Array  # [B, W]
    calls: dict[str, jax.Array]
    caches: Caches


@dataclasses.dataclass(frozen=True)
class Horizontal:
    """One drafter after another, the best first: early tokens matter most.

    A stage is called while the draft is shorter than its `until`, which counts the tokens of all
    stages so far, and got longer by the last call. `greedy`: inner reviewers take the argmax and
    last drafters the likeliest token whatever the target's temperature, so drafts are one-hot.
    """

    stages: tuple[Stage, ...]
    greedy: bool = False

    @property
    def width(self) -> int:
        """Tokens of the longest draft: what full calls reach but never pass.

        See docs/methods/cascade.md, "Length of a draft".

        A reviewer may stop one token short of its stage's end. One full draft of any other
        drafter ends its stage.
        """
        most = 0
        for stage in self.stages:
            start = stage.until - 1 if stage.drafter.models else min(most, stage.until - 1)
            most = max(most, start + stage.drafter.width)
        return most

    @property
    def reach(self) -> int:
        return max(stage.until - 1 + stage.drafter.reach for stage in self.stages)

    @property
    def models(self) -> tuple[str, ...]:
        return distinct(stage.drafter.models for stage in self.stages)

    @property
    def tables(self) -> tuple[str, ...]:
        return distinct(stage.drafter.tables for stage in self.stages)

    @property
    def writers(self) -> tuple[str, ...]:
        return distinct(stage.drafter.writers for stage in self.stages)

    @property
    def schedule(self) -> tuple[Call, ...]:
        """Of a draft whose calls are all full, and of models that only shorter ones need a call."""
        calls, length = [], 0
        for stage in self.stages:
            count = -(-max(stage.until - length, 0) // stage.drafter.width)
            if not {call.model for call in stage.drafter.schedule} <= {c.model for c in calls}:
                count = max(count, 1)
            calls += stage.drafter.schedule * count
            length += stage.drafter.width * count
        return tuple(calls)

    @property
    def scored(self) -> bool:
        """Whether any stage says `Draft.score`."""
        return any(getattr(stage.drafter, "scored", False) for stage in self.stages)

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        if self.greedy:
            context = context.replace(
                options=context.options.replace(sampling=Sampling(greedy=True))
            )
        eos = distinct(lookup(models, name).eos for name in self.models)
        progress = self._empty(models, caches, context)
        for stage in self.stages:

            def call(p: _Progress, stage: Stage = stage) -> _Progress:
                inside = context.replace(tokens=p.tokens, length=p.length, active=p.going)
                draft, after = stage.drafter.draft(
                    models, params, p.caches, inside, fold(keys, p.length)
                )
                room = jnp.minimum(inside.room, self.width - (p.length - context.length))
                draft = cut(draft, room, eos)
                return self._extended(p, stage, draft, after, context, eos)

            progress = progress.replace(going=_open(progress, context, stage))
            progress = jax.lax.while_loop(lambda p: jnp.any(p.going), call, progress)
        draft = Draft(
            tokens=window(progress.tokens, context.length, self.width),
            length=progress.length - context.length,
            probs=progress.probs,
            source=progress.source,
            calls=progress.calls,
            stop_reason=jnp.full(context.length.shape, LENGTH, jnp.int32),
            score=progress.score,
        )
        return draft, {**caches, **progress.caches}

    def _empty(self, models: Models, caches: Caches, context: Context) -> _Progress:
        rows = context.length.shape[0]
        drafted = rows, self.width
        probs = None
        if self.models and not context.options.sampling.greedy:
            vocabulary = lookup(models, self.models[0]).vocab_size
            probs = jnp.zeros((*drafted, vocabulary), jnp.float32)
        return _Progress(
            tokens=context.tokens,
            length=context.length,
            going=context.active,
            ended=jnp.zeros((rows,), bool),
            probs=probs,
            score=jnp.zeros(drafted, jnp.float32) if self.scored else None,
            source=jnp.zeros(drafted, jnp.int32),
            calls={part: jnp.zeros((rows,), jnp.int32) for part in parts(self)},
            caches={name: caches[name] for name in self.models},
        )

    def _extended(
        self,
        p: _Progress,
        stage: Stage,
        draft: Draft,
        after: Caches,
        context: Context,
        eos: tuple[int, ...],
    ) -> _Progress:
        """The draft with that of one call behind it; rows that got none leave the stage."""
        count, place = draft.length, p.length - context.length
        length = p.length + count
        writer = jnp.array([self.writers.index(name) for name in stage.drafter.writers])
        extended = p.replace(
            tokens=append(p.tokens, p.length, draft.tokens, count),
            length=length,
            ended=p.ended | ends_text(draft.tokens, count, eos),
            source=append(p.source, place, writer[draft.source], count),
            calls={part: n + draft.calls.get(part, 0) for part, n in p.calls.items()},
            caches=rewind(after, p.caches, length, p.going),
        )
        if p.probs is not None:
            law = draft.probs
            if law is None:
                law = jax.nn.one_hot(draft.tokens, p.probs.shape[-1], dtype=p.probs.dtype)
            extended = extended.replace(probs=append(p.probs, place, law, count))
        if p.score is not None:
            never = jnp.full(draft.tokens.shape, jnp.inf)
            score = never if draft.score is None else draft.score
            extended = extended.replace(score=append(p.score, place, score, count))
        return extended.replace(going=p.going & (count > 0) & _open(extended, context, stage))


def _open(p: _Progress, context: Context, stage: Stage) -> jax.Array:
    """Rows [B] that a stage may still extend."""
    room = p.length < context.limit
    return context.active & ~p.ended & room & (p.length - context.length < stage.until)


def _check_whole(drafter: Drafter) -> None:
    """Refuses early exits: they draft on the target's cache, which has no tentative tokens."""
    if any(call.exit is not None for call in drafter.schedule):
        raise ValueError(f"{drafter} is an early exit, which cannot draft inside a cascade")


def _padded(drafted: jax.Array) -> jax.Array:
    """Values [B, K + 1] of drafted tokens [B, K], with a place for the one that follows."""
    return jnp.pad(drafted, ((0, 0), (0, 1)))
