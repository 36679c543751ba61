"""One round of the decode loop: draft, verify, commit.

Every phase only uses `specjax.contracts`; no method is named here.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from specjax.contracts.context import fold_keys
from specjax.contracts.draft import LENGTH, Draft
from specjax.contracts.drafter import CALLS, STOP, Log, Memory, Outcome
from specjax.contracts.env import Env
from specjax.contracts.logits_processor import bind_processors, cut_at_forbidden
from specjax.contracts.rows import Caches, append, count_until_eos, ends_with_eos, rewind
from specjax.contracts.rule import Reading, Verdict, count_tested
from specjax.decoding.logprobs import add_logprobs
from specjax.decoding.state import Decoder, State
from specjax.decoding.trace import (
    ACCEPTED,
    COMMITTED,
    DRAFTED,
    FIRST_DRAFTER,
    REVIEWED,
    TARGET,
    TESTED,
    Trace,
    add_round,
)
from specjax.models.base import Cache

DRAFT, VERIFY = 0, 1
"""Phases that sample; each folds its own number into the row's key."""


def round_(decoder: Decoder, env: Env, state: State) -> State:
    """One round: draft, verify, commit."""
    draft, caches, memory, drafter_log = propose(decoder, env, state)
    verdict, reading, caches, reader_log = verify(decoder, env, state, draft, caches)
    state = state.replace(memory=memory)
    logs = drafter_log, reader_log
    return commit(decoder, env, state, draft, verdict, reading, caches, logs)


def propose(decoder: Decoder, env: Env, state: State) -> tuple[Draft, Caches, Memory, Log]:
    """The drafter's proposal, truncated at its first EOS and at the row's limit.

    A token beyond the limit is never used. A token that just fits is used although nothing may
    follow it, so that a row's tokens do not depend on its limit.
    """
    context = state.context
    keys = fold_keys(fold_keys(state.keys, context.length), DRAFT)
    most = jnp.minimum(context.room, decoder.drafter.spec.width)
    context = context.replace(most=most)
    draft, caches, memory, log = decoder.drafter.propose(
        env, state.caches, state.memory, context, keys
    )
    draft.check(context.length.shape[0], decoder.drafter.spec.width)
    return draft.cut(most, decoder.target_model.info.eos), caches, memory, log


def verify(
    decoder: Decoder, env: Env, state: State, draft: Draft, caches: Caches
) -> tuple[Verdict, Reading, Caches, Log]:
    """The target's reading of the draft and the rule's verdict, under the settings."""
    context, target = state.context, decoder.target
    keys = fold_keys(fold_keys(state.keys, context.length), VERIFY)
    settings = bind_processors(context, decoder.target_model.info.vocab_size)

    def judge(draft: Draft, reading: Reading) -> Verdict:
        raw = reading.logits
        reading = reading.replace(logits=settings.process_draft(raw, draft))
        if settings and not decoder.rule.lossless:
            draft = cut_at_forbidden(draft, reading.logits)
        verdict = decoder.rule.judge(draft, reading, context.options, keys)
        if not decoder.logprobs:
            return verdict
        both = raw, reading.logits
        return add_logprobs(verdict, decoder.logprobs, *both, context.options)

    verdict, reading, cache, log = decoder.reader.read(
        env, caches[target], draft, context, judge, decoder.drafter.spec.features
    )
    return verdict, reading, {**caches, target: cache}, log


def commit(
    decoder: Decoder,
    env: Env,
    state: State,
    draft: Draft,
    verdict: Verdict,
    reading: Reading,
    caches: Caches,
    logs: tuple[Log, Log],
) -> State:
    """Appends accepted tokens to each row, rewinds the caches, freezes rows that ended."""
    context, eos = state.context, decoder.target_model.info.eos
    verdict = _accept_unread(draft, verdict)
    room = context.room
    count = jnp.minimum(jnp.minimum(verdict.count, count_until_eos(verdict.tokens, eos)), room)
    stops, reached, complete = context.options.stops, state.reached, None
    if stops is not None and reached is not None:
        reached, count, complete = stops.read(reached, verdict.tokens, count)
    length = context.length + count
    ended = ends_with_eos(verdict.tokens, count, eos) | (length >= context.limit) | ~draft.review
    if complete is not None:
        ended |= complete
    if verdict.path is not None:
        caches = _keep_caches(decoder, env, caches, draft, verdict.accepted, verdict.path)
    outcome = Outcome(
        draft, reading, verdict, count,
        jnp.minimum(verdict.accepted, count),
        jnp.minimum(count_tested(verdict.accepted, draft.length), room), context,
    )  # fmt: skip
    return State(
        context=context.replace(
            tokens=append(context.tokens, context.length, verdict.tokens, count),
            length=length,
            active=context.active & ~ended,
        ),
        caches=rewind(caches, state.caches, length, context.active),
        memory=decoder.drafter.observe(state.memory, outcome),
        keys=state.keys,
        trace=_record(decoder, state, outcome, logs),
        reached=reached,
    )


def _keep_caches(
    decoder: Decoder,
    env: Env,
    caches: Caches,
    draft: Draft,
    accepted: jax.Array,
    path: jax.Array,
) -> Caches:
    """The caches with the accepted nodes moved after the text, if they were fed.

    The first `accepted` [B] of `path` [B, K] are accepted. Nodes are fed with all their ancestors,
    so the fed nodes of the path are its first ones.
    """

    def keep(name: str, path: jax.Array, count: jax.Array) -> Cache:
        return env[name].model.keep(caches[name], path, count)

    kept = {decoder.target: keep(decoder.target, path, accepted)}
    tree = decoder.drafter.spec.tree
    if tree and tree.fed:
        slots = jnp.take_along_axis(draft.node_slots, path, axis=1)
        is_accepted = jnp.arange(draft.width) < accepted[:, None]
        fed = jnp.sum(is_accepted & (slots >= 0), axis=1, dtype=jnp.int32)
        kept |= {name: keep(name, slots, fed) for name in tree.fed}
    return {**caches, **kept}


def _accept_unread(draft: Draft, verdict: Verdict) -> Verdict:
    """Accepts the whole draft in rows that skip verification."""
    read = draft.review
    drafted = jnp.pad(draft.tokens, ((0, 0), (0, verdict.tokens.shape[1] - draft.width)))
    return verdict.replace(
        tokens=jnp.where(read[:, None], verdict.tokens, drafted),
        count=jnp.where(read, verdict.count, draft.length),
        accepted=jnp.where(read, verdict.accepted, draft.length),
    )


def _record(decoder: Decoder, state: State, outcome: Outcome, logs: tuple[Log, Log]) -> Trace:
    """The trace with this round added; finished rows add nothing."""
    context, draft, verdict = state.context, outcome.draft, outcome.verdict
    reviewed = context.active & draft.review
    # A drafter without stop reasons stops for none other.
    drafting = {STOP: jnp.full_like(context.length, LENGTH)} | logs[0]
    values = drafting | {name: value * reviewed for name, value in logs[1].items()}
    values |= {
        DRAFTED: jnp.minimum(draft.length, context.room),
        ACCEPTED: outcome.accepted,
        COMMITTED: outcome.committed,
        REVIEWED: reviewed.astype(jnp.int32),
        TESTED: outcome.tested * reviewed,
        CALLS + decoder.target: reviewed.astype(jnp.int32),
    }
    drafted_by = draft.drafted_by
    if verdict.path is not None:
        drafted_by = jnp.take_along_axis(drafted_by, verdict.path, axis=1, mode="clip")
    is_accepted = jnp.arange(verdict.tokens.shape[1]) < verdict.accepted[:, None]
    room = ((0, 0), (0, verdict.tokens.shape[1] - drafted_by.shape[1]))
    written_by = jnp.where(is_accepted, jnp.pad(drafted_by, room) + FIRST_DRAFTER, TARGET)
    trace = add_round(
        state.trace,
        values,
        verdict.overlap * reviewed,
        draft.tokens,
        draft.drafted_by,
        context.active,
    )
    trace = trace.replace(
        written_by=append(trace.written_by, context.length, written_by, outcome.committed)
    )
    if trace.logprobs is None or verdict.logprobs is None:
        return trace
    return trace.replace(
        logprobs=append(trace.logprobs, context.length, verdict.logprobs, outcome.committed)
    )
