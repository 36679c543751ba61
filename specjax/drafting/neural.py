"""A language model as drafter, with a fixed draft length or a confidence stop.

Leviathan et al. (2023), Algorithm 1; the stop predicate looks at the logits before a token is
drawn, which keeps speculative sampling lossless. The model may be the first layers of the target
(Kim et al. 2023, section 3.5.2): they share its weights and its cache.
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
    last_token,
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
    states: jax.Array | None  # [B, K + 1, D] of the tokens fed to an early exit


@dataclasses.dataclass(frozen=True)
class Neural:
    """Drafts up to `length` tokens with the model called `model`.

    `confidence` names a traced option: a row stops before the first token whose largest plain
    probability is below it. `adapt` shortens drafts by what `drafting.running` expects of the row:
    `ACCEPTANCE` to the best length for the acceptance seen so far, `BREAK_EVEN` after the token
    from which the product of the draft's largest plain probabilities no longer pays for another.
    `keep_logits` hands its logits to rules that compare laws.

    `exit` drafts with the first so many decoder layers of `model`, which must then be the target
    itself: it verifies on their states, and they never run twice on a token.
    """

    model: str
    length: int
    confidence: str | None = None
    adapt: str = FIXED
    keep_logits: bool = False
    exit: int | None = None

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
        return (self.schedule[0].part,)

    @property
    def schedule(self) -> tuple[Call, ...]:
        if self.exit is not None:
            return *(self._exit_call(1),) * self.length, self._exit_call(0)
        return Call(self.model, LAG, 1), *(Call(self.model, 1, 1),) * (self.length - 1)

    def _exit_call(self, logits: int) -> Call:
        return Call(self.model, 1, logits, self.exit)

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        model, weights = lookup(models, self.model), params[self.model]
        logits, progress = self._open(model, weights, caches[self.model], context)
        progress = self._extend(progress, logits, model, context, keys)
        wanted = jnp.minimum(self._longest(context), context.room)

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
            calls={self.schedule[0].part: progress.calls},
            stop_reason=jnp.where(progress.stopped, STOPPED, LENGTH),
            logits=progress.logits,
        )
        if self.exit is None:
            return draft, {**caches, self.model: progress.cache}
        return self._resumable(draft, progress, model, weights, caches)

    def _open(
        self, model: LanguageModel, weights: Params, cache: Cache, context: Context
    ) -> tuple[jax.Array, _Progress]:
        """The logits [B, V] after the committed tokens, and a draft of none.

        The target's own cache lacks the pending token only.
        """
        if self.exit is not None:
            fed = last_token(context)[:, None]
            output, cache = model.extend(weights, fed, cache, exit=self.exit)
            return output.logits[:, 0], self._empty(context, cache, output.logits, output.hidden)
        cache = catch_up(model, weights, cache, context, LAG)
        logits, cache = feed_last(model, weights, cache, context, LAG)
        return logits, self._empty(context, cache, logits, None)

    def _resumable(
        self, draft: Draft, p: _Progress, model: LanguageModel, weights: Params, caches: Caches
    ) -> tuple[Draft, Caches]:
        """The draft of an early exit with the states that the target goes on from.

        They include that of the last token, which nothing was drafted from. One pointer serves all
        layers, so it goes back to where it was.
        """

        def lacking(p: _Progress) -> jax.Array:
            return jnp.any(p.length == p.step)

        def feed(p: _Progress) -> _Progress:
            return self._feed(p, model, weights)[1].replace(step=p.step + 1)

        # A row alone would feed it so, unless a predicate stopped the draft behind it.
        calls = {**draft.calls, self.schedule[-1].part: p.length + 1 - p.calls}
        p = jax.lax.while_loop(lacking, feed, p)
        cache = p.cache.replace(length=caches[self.model].length)
        draft = draft.replace(calls=calls, resume=p.states, resume_from=self.exit)
        return draft, {**caches, self.model: cache}

    def _empty(
        self, context: Context, cache: Cache, logits: jax.Array, hidden: jax.Array | None
    ) -> _Progress:
        batch, vocabulary = logits.shape[0], logits.shape[-1]
        greedy = context.options.sampling.greedy
        laws = jnp.zeros((batch, self.length, vocabulary), jnp.float32)
        return _Progress(
            step=jnp.int32(0),
            tokens=jnp.zeros((batch, self.length), jnp.int32),
            probs=None if greedy else laws,
            logits=laws if self.keep_logits else None,
            length=jnp.zeros((batch,), jnp.int32),
            going=context.room > 0,
            stopped=jnp.zeros((batch,), bool),
            chance=jnp.ones((batch,), jnp.float32),
            calls=context.active.astype(jnp.int32),
            cache=cache,
            states=None if hidden is None else jnp.pad(hidden, ((0, 0), (0, self.length), (0, 0))),
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
        logits, p = self._feed(p.replace(calls=p.calls + p.going), model, weights)
        return self._extend(p, logits, model, context, keys)

    def _feed(
        self, p: _Progress, model: LanguageModel, weights: Params
    ) -> tuple[jax.Array, _Progress]:
        """Feeds the last drafted token; returns its logits [B, V]."""
        fed = jax.lax.dynamic_slice_in_dim(p.tokens, p.step - 1, 1, axis=1)
        output, cache = model.extend(weights, fed, p.cache, exit=self.exit)
        states = p.states
        if states is not None:
            states = jax.lax.dynamic_update_slice_in_dim(states, output.hidden, p.step, axis=1)
        return output.logits[:, 0], p.replace(cache=cache, states=states)

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
