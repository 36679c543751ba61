"""The drafting loop of models: one token after another, up to a length or a stop.

Leviathan et al. (2023), Algorithm 1. Stop predicates look at the logits before a token is drawn,
which keeps speculative sampling lossless. The model may be the first layers of the target (Kim et
al. 2023, section 3.5.2): they share its weights and its cache.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct

from specjax.core.adjustment import Adjusting, adjusting
from specjax.core.calls import Call
from specjax.core.catching_up import catch_up, feed_last
from specjax.core.context import Context, fold, last_token
from specjax.core.draft import LENGTH, STOPPED, Draft
from specjax.core.drafter import STOP, Drafter, Log, Memory, Outcome, calls_of
from specjax.core.env import Bound, Env, states_of
from specjax.core.proposing import drawn_from, propose
from specjax.core.reader import Reader
from specjax.core.rows import Caches
from specjax.core.spec import Spec
from specjax.drafting.adaptive_length import (
    ACCEPTANCE,
    BREAK_EVEN,
    FIXED,
    Running,
    best_length,
    least_chance,
    nothing_seen,
)
from specjax.drafting.on_target import refuse_feature_drafter
from specjax.drafting.online import DEFAULT, Learned, nothing_learned
from specjax.models.base import Cache, PromptReading
from specjax.readers.resumed import STATES, Resumed
from specjax.sampling import confidence
from specjax.verification.distances import LOGITS

LAG = 2
"""Tokens fed first: after a fully accepted draft the model has not seen its own last token."""


class RowMemory(struct.PyTreeNode):
    """What rows remember between rounds; None: nothing of the kind."""

    seen: Running | None  # of acceptance, for adaptive lengths
    learned: Learned | None  # of the target, for online adaptation


class Progress(struct.PyTreeNode):
    """Carry of the drafting loop; `going` rows drafted token `step - 1` and may draft another."""

    step: jax.Array  # []
    tokens: jax.Array  # [B, K]
    probs: jax.Array | None  # [B, K, V]
    logits: jax.Array | None  # [B, K, V]
    plain: jax.Array | None  # [B, K, V] probabilities at temperature 1, to learn from
    length: jax.Array  # [B]
    going: jax.Array  # [B]
    stopped: jax.Array  # [B] the predicate ended the draft
    chance: jax.Array  # [B] float32: that all drafted tokens stand, by the drafter's confidence
    calls: jax.Array  # [B]
    cache: Cache
    states: jax.Array | None  # [B, K + 1, D] of the tokens fed to an early exit


class TokenByToken(Drafter):
    """Drafts up to `length` tokens with the model called `model`.

    With `exit` it is the first so many decoder layers of `model`, which must then be the target
    itself. `adapt` shortens drafts by what `adaptive_length` expects of the row, from the
    acceptance that its memory holds. `online_rate` names the option by which the memory's bias on
    the logits follows the target (`online`): tokens are drawn from, and tested against, the sum, as
    settings adjust it; what is learned is of models without settings.
    """

    length: int
    model: str
    exit: int | None = None
    adapt: str = FIXED
    online_rate: str | None = None
    online_divergence: str = DEFAULT

    @property
    def threshold(self) -> str | None:
        """The option below which the largest plain probability ends a draft, if any."""
        return None

    @property
    def keeps_logits(self) -> bool:
        """Whether drafts carry the logits of their tokens, for the rule."""
        return False

    @property
    def spec(self) -> Spec:
        calls = self._calls()
        return Spec(
            width=self.length,
            reach=self.length,
            calls=calls,
            models=(self.model,),
            writers=(calls[0].part,),
            always=self.threshold is None,
        )

    def _calls(self) -> tuple[Call, ...]:
        if self.exit is not None:
            draft, last = (Call(self.model, 1, logits, self.exit) for logits in (1, 0))
            return *(draft,) * self.length, last
        return Call(self.model, LAG, 1), *(Call(self.model, 1, 1),) * (self.length - 1)

    @property
    def reader(self) -> Reader | None:
        return None if self.exit is None else Resumed(self.exit)

    def check(self, env: Env) -> None:
        """Refuses a model that needs the target's states.

        Raises:
          ValueError: naming its drafters.
        """
        refuse_feature_drafter(env, self.model)

    def begin(self, env: Env, context: Context, prompt: PromptReading, keys: jax.Array) -> Memory:
        rows, vocabulary = context.length.shape[0], env[self.model].vocab_size
        return RowMemory(
            seen=None if self.adapt == FIXED else nothing_seen(rows),
            learned=nothing_learned(rows, self.length, vocabulary) if self._learns else None,
        )

    def observe(self, memory: Memory, outcome: Outcome) -> Memory:
        if self.adapt != FIXED:
            memory = memory.replace(seen=memory.seen.after(outcome.accepted, outcome.tested))
        if self._learns:
            memory = memory.replace(learned=memory.learned.after(outcome, self.online_divergence))
        return memory

    @property
    def _learns(self) -> bool:
        return self.online_rate is not None

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        model = env[self.model]
        logits, progress = self._open(model, caches[self.model], context)
        settings = adjusting(context, logits.shape[-1])
        progress = self._extend(progress, logits, model, memory, settings, keys)
        wanted = jnp.minimum(self._longest(memory, context), context.most)

        def more(p: Progress) -> jax.Array:
            return jnp.any(p.going & (p.length < wanted))

        def step(p: Progress) -> Progress:
            p = p.replace(going=p.going & (p.length < wanted))
            logits, p = self._feed(p.replace(calls=p.calls + p.going), model)
            return self._extend(p, logits, model, memory, settings, keys)

        progress = jax.lax.while_loop(more, step, progress)
        runs, aux = {self._calls()[0].part: progress.calls}, {}
        if self.exit is not None:
            runs, progress = self._last_state(runs, progress, model, caches[self.model])
            aux[STATES] = progress.states
        if self.keeps_logits:
            aux[LOGITS] = progress.logits
        if self._learns:
            memory = memory.replace(learned=memory.learned.replace(drafted=progress.plain))
        distribution = drawn_from(progress.tokens, progress.probs)
        draft = Draft.chain(progress.tokens, progress.length, distribution, aux=aux or None)
        log = {STOP: jnp.where(progress.stopped, STOPPED, LENGTH), **calls_of(runs)}
        return draft, {**caches, self.model: progress.cache}, memory, log

    def _open(self, model: Bound, cache: Cache, context: Context) -> tuple[jax.Array, Progress]:
        """The logits [B, V] after the committed tokens, and a draft of none.

        The target's own cache lacks the pending token only.
        """
        if self.exit is not None:
            fed = last_token(context)[:, None]
            output, cache = model.extend(fed, cache, exit=self.exit)
            return output.logits[:, 0], self._empty(context, cache, output.logits, output.hidden)
        cache = catch_up(model, cache, context, LAG)
        logits, cache = feed_last(model, cache, context, LAG)
        return logits, self._empty(context, cache, logits, None)

    def _last_state(
        self, runs: dict[str, jax.Array], p: Progress, model: Bound, before: Cache
    ) -> tuple[dict[str, jax.Array], Progress]:
        """The states that the target goes on from, that of the last token included.

        Nothing was drafted from it. One pointer serves all layers, so it goes back to where it was.
        """

        def lacking(p: Progress) -> jax.Array:
            return jnp.any(p.length == p.step)

        def feed(p: Progress) -> Progress:
            return self._feed(p, model)[1].replace(step=p.step + 1)

        # A row alone would feed it so, unless a predicate stopped the draft behind it.
        runs = {**runs, self._calls()[-1].part: p.length + 1 - p.calls}
        p = jax.lax.while_loop(lacking, feed, p)
        return runs, p.replace(cache=p.cache.replace(length=before.length))

    def _empty(
        self, context: Context, cache: Cache, logits: jax.Array, hidden: jax.Array | None
    ) -> Progress:
        rows, vocabulary = logits.shape[0], logits.shape[-1]
        greedy = context.options.sampling.greedy
        zeros = jnp.zeros((rows, self.length, vocabulary), jnp.float32)
        return Progress(
            step=jnp.int32(0),
            tokens=jnp.zeros((rows, self.length), jnp.int32),
            probs=None if greedy else zeros,
            logits=zeros if self.keeps_logits else None,
            plain=zeros if self._learns else None,
            length=jnp.zeros((rows,), jnp.int32),
            going=context.most > 0,
            stopped=jnp.zeros((rows,), bool),
            chance=jnp.ones((rows,), jnp.float32),
            calls=context.active.astype(jnp.int32),
            cache=cache,
            states=None if hidden is None else jnp.pad(hidden, ((0, 0), (0, self.length), (0, 0))),
        )

    def _feed(self, p: Progress, model: Bound) -> tuple[jax.Array, Progress]:
        """Feeds the last drafted token; returns its logits [B, V]."""
        fed = jax.lax.dynamic_slice_in_dim(p.tokens, p.step - 1, 1, axis=1)
        output, cache = model.extend(fed, p.cache, exit=self.exit)
        states = p.states
        if states is not None:
            states = jax.lax.dynamic_update_slice_in_dim(states, states_of(output), p.step, axis=1)
        return output.logits[:, 0], p.replace(cache=cache, states=states)

    def _extend(
        self,
        p: Progress,
        logits: jax.Array,
        model: Bound,
        memory: Memory,
        settings: Adjusting,
        keys: jax.Array,
    ) -> Progress:
        """Appends the token proposed from logits [B, V] to the rows that go on."""
        options = settings.context.options
        going, numbers = p.going, options.numbers
        if self._learns:
            logits = logits + memory.learned.bias
        own, logits = logits, settings.behind(logits, p.tokens, p.step)
        if self.threshold is not None:
            going &= confidence(logits) >= numbers[self.threshold]
        token, probs = propose(logits, options.sampling, fold(keys, p.step))
        ended = jnp.isin(token, jnp.array(model.eos))
        stopped = p.stopped | (p.going & ~going)
        chance = p.chance
        if self.adapt == BREAK_EVEN:
            chance *= confidence(logits)
            given_up = chance < least_chance(memory.seen, self.length, numbers)
            stopped |= going & given_up & ~ended & (p.step + 1 < self.length)
            ended |= given_up
        return p.replace(
            step=p.step + 1,
            tokens=_put(p.tokens, token, p.step),
            probs=None if probs is None or p.probs is None else _put(p.probs, probs, p.step),
            logits=None if p.logits is None else _put(p.logits, logits, p.step),
            plain=None if p.plain is None else _put(p.plain, jax.nn.softmax(own), p.step),
            length=p.length + going,
            going=going & ~ended,
            stopped=stopped,
            chance=chance,
        )

    def _longest(self, memory: Memory, context: Context) -> jax.Array | int:
        """The most tokens [B] that a row drafts."""
        if self.adapt == ACCEPTANCE:
            return best_length(memory.seen, self.length, context.options.numbers)
        return self.length


def _put(rows: jax.Array, value: jax.Array, step: jax.Array) -> jax.Array:
    """rows [B, K, ...] with value [B, ...] at position `step`."""
    return jax.lax.dynamic_update_slice_in_dim(rows, value[:, None], step, axis=1)
