"""A language model as drafter, with a fixed draft length or a confidence stop.

Leviathan et al. (2023), Algorithm 1; the stop predicate looks at the logits before a token is
drawn, which keeps speculative sampling lossless.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from specjax.drafting.base import (
    LENGTH,
    STOPPED,
    Caches,
    Call,
    Context,
    Draft,
    Models,
    fold,
    lookup,
    propose,
)
from specjax.drafting.running import best_length, least_chance
from specjax.drafting.sync import catch_up, feed_last
from specjax.models.base import Cache, LanguageModel, Params
from specjax.sampling import confidence

LAG = 2
"""Tokens fed first: after a fully accepted draft the model has not seen its own last token."""


FIXED, ACCEPTANCE, BREAK_EVEN = "fixed", "acceptance", "break_even"
"""How long a draft gets."""


@struct.dataclass
class _Progress:
    """Carry of the drafting loop; `going` rows drafted token `step - 1` and may draft another."""

    step: jax.Array  # []
    tokens: jax.Array  # [B, K]
    probs: jax.Array | None  # [B, K, V]
    logits: jax.Array | None  # [B, K, V]
    length: jax.Array  # [B]
    going: jax.Array  # [B]
    stopped: jax.Array  # [B] the predicate ended the draft
    chance: jax.Array  # [B] float32: that all drafted tokens stand, by the drafter's confidence
    calls: jax.Array  # [B]
    cache: Cache


@dataclasses.dataclass(frozen=True)
class Neural:
    """Drafts up to `length` tokens with the model called `model`.

    `confidence` names a traced option: a row stops before the first token whose largest plain
    probability is below it. `adapt` shortens drafts by what `drafting.running` expects of the row:
    `ACCEPTANCE` to the best length for the acceptance seen so far, `BREAK_EVEN` after the token
    from which the product of the draft's largest plain probabilities no longer pays for another.
    `keep_logits` hands its logits to rules that compare laws.
    """

    model: str
    length: int
    confidence: str | None = None
    adapt: str = FIXED
    keep_logits: bool = False

    @property
    def width(self) -> int:
        return self.length

    @property
    def reach(self) -> int:
        return self.length

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,)

    @property
    def tables(self) -> tuple[str, ...]:
        return ()

    @property
    def writers(self) -> tuple[str, ...]:
        return (self.model,)

    @property
    def schedule(self) -> tuple[Call, ...]:
        return Call(self.model, LAG, 1), *(Call(self.model, 1, 1),) * (self.length - 1)

    def room(self, context: Context) -> jax.Array:
        """Most tokens [B] that a draft may have."""
        return context.budget

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        model, weights = lookup(models, self.model), params[self.model]
        cache = catch_up(model, weights, caches[self.model], context, LAG)
        logits, cache = feed_last(model, weights, cache, context, LAG)
        progress = self._extend(self._empty(context, cache, logits), logits, model, context, keys)
        wanted = jnp.minimum(self._longest(context), self.room(context))

        def more(p: _Progress) -> jax.Array:
            return jnp.any(p.going & (p.length < wanted))

        def step(p: _Progress) -> _Progress:
            return self._step(p, model, weights, context, keys, wanted)

        progress = jax.lax.while_loop(more, step, progress)
        draft = Draft(
            tokens=progress.tokens,
            length=progress.length,
            probs=progress.probs,
            source=jnp.zeros_like(progress.tokens),
            calls={self.model: progress.calls},
            stop_reason=jnp.where(progress.stopped, STOPPED, LENGTH),
            logits=progress.logits,
        )
        return draft, {**caches, self.model: progress.cache}

    def _empty(self, context: Context, cache: Cache, logits: jax.Array) -> _Progress:
        batch, vocabulary = logits.shape
        greedy = context.options.sampling.greedy
        laws = jnp.zeros((batch, self.length, vocabulary), jnp.float32)
        return _Progress(
            step=jnp.int32(0),
            tokens=jnp.zeros((batch, self.length), jnp.int32),
            probs=None if greedy else laws,
            logits=laws if self.keep_logits else None,
            length=jnp.zeros((batch,), jnp.int32),
            going=self.room(context) > 0,
            stopped=jnp.zeros((batch,), bool),
            chance=jnp.ones((batch,), jnp.float32),
            calls=context.active.astype(jnp.int32),
            cache=cache,
        )

    def _step(
        self,
        p: _Progress,
        model: LanguageModel,
        weights: Params,
        context: Context,
        keys: jax.Array,
        wanted: jax.Array,
    ) -> _Progress:
        """Feeds the last drafted token and proposes the next one."""
        p = p.replace(going=p.going & (p.length < wanted))
        fed = jax.lax.dynamic_slice_in_dim(p.tokens, p.step - 1, 1, axis=1)
        output, cache = model.extend(weights, fed, p.cache)
        p = p.replace(cache=cache, calls=p.calls + p.going)
        return self._extend(p, output.logits[:, 0], model, context, keys)

    def _extend(
        self,
        p: _Progress,
        logits: jax.Array,
        model: LanguageModel,
        context: Context,
        keys: jax.Array,
    ) -> _Progress:
        """Appends the token proposed from logits [B, V] to the rows that go on."""
        going = p.going
        if self.confidence is not None:
            going &= confidence(logits) >= context.options.numbers[self.confidence]
        token, law = propose(logits, context.options.sampling, fold(keys, p.step))
        probs = None if law is None else _put(p.probs, law, p.step)
        ended = jnp.isin(token, jnp.array(model.eos))
        stopped = p.stopped | (p.going & ~going)
        chance = p.chance
        if self.adapt == BREAK_EVEN:
            chance *= confidence(logits)
            given_up = chance < least_chance(context.running, self.length, context.options.numbers)
            stopped |= going & given_up & ~ended & (p.step + 1 < self.length)
            ended |= given_up
        return p.replace(
            step=p.step + 1,
            tokens=_put(p.tokens, token, p.step),
            probs=probs,
            logits=_put(p.logits, logits, p.step) if self.keep_logits else None,
            length=p.length + going,
            going=going & ~ended,
            stopped=stopped,
            chance=chance,
        )

    def _longest(self, context: Context) -> jax.Array | int:
        """The most tokens [B] that a row drafts."""
        if self.adapt == ACCEPTANCE:
            return best_length(context.running, self.length, context.options.numbers)
        return self.length


def _put(rows: jax.Array, value: jax.Array, step: jax.Array) -> jax.Array:
    """rows [B, K, ...] with value [B, ...] at position `step`."""
    return jax.lax.dynamic_update_slice_in_dim(rows, value[:, None], step, axis=1)
