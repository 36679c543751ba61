"""The decode loop: draft, verify, commit, until every row is done.

One jitted `lax.while_loop` serves every (drafter, rule) pair; autoregressive decoding is the pair
that drafts nothing. One call of `generate` is one host dispatch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from specjax.decoding.state import (
    FIRST_DRAFTER,
    TARGET,
    Decoder,
    Generation,
    State,
    Trace,
    empty_trace,
)
from specjax.drafting.base import (
    Caches,
    Context,
    Draft,
    Options,
    fold,
    last_token,
    lookup,
    until_eos,
)
from specjax.drafting.rows import append, cut, ends_text, rewind
from specjax.drafting.running import nothing_seen
from specjax.drafting.selected import Arms, Selected
from specjax.drafting.turns import when
from specjax.verification.base import Verdict, tested

T = TypeVar("T")

DRAFT, VERIFY = 0, 1
"""Phases of a round; each folds its own number into the row's key."""


@functools.partial(jax.jit, static_argnames="decoder")
def generate(
    decoder: Decoder,
    params: dict[str, Any],
    prompt: jax.Array,
    prompt_length: jax.Array,
    keys: jax.Array,
    limit: jax.Array,
    options: Options,
) -> Generation:
    """Decodes every row of prompt [B, P] to its end.

    `keys` [B] typed PRNG keys, one per row; `limit` [B] new tokens per row, at most
    `decoder.max_new_tokens` (0 decodes nothing); `params` holds `decoder.inputs`.
    """
    state = begin(decoder, params, prompt, prompt_length, keys, limit, options)
    generation = finish(advance(decoder, params, state, None))
    return decoder.layout.replicate(generation) if decoder.layout else generation


def begin(
    decoder: Decoder,
    params: dict[str, Any],
    prompt: jax.Array,
    prompt_length: jax.Array,
    keys: jax.Array,
    limit: jax.Array,
    options: Options,
) -> State:
    """The state before the first round: prompts read, one pending token per row."""
    buffer = decoder.buffer(prompt.shape[1])
    context = _first_context(decoder, prompt, prompt_length, limit, options, buffer)
    context, caches = _read(decoder, params, context, prompt, prompt_length, keys)
    trace = empty_trace(decoder, prompt.shape[0], buffer)
    if decoder.layout:
        caches = {name: decoder.layout.cache(name, cache) for name, cache in caches.items()}
        context, keys, trace = decoder.layout.rows((context, keys, trace))
    return State(context, caches, keys, trace)


def _read(
    decoder: Decoder,
    params: dict[str, Any],
    context: Context,
    prompt: jax.Array,
    prompt_length: jax.Array,
    keys: jax.Array,
) -> tuple[Context, Caches]:
    """Every model's cache of the prompts; arms are chosen once the target has read them.

    Models of arms that no row chose read nothing.
    """
    read = prompt, prompt_length, context.tokens.shape[1]
    target, drafter = decoder.target, decoder.drafter
    chooses = isinstance(drafter, Arms)
    if chooses:
        cache, embedding = decoder.target_model.start_embedded(params[target], *read)
        context = context.replace(memory=drafter.begin(params, embedding, context, keys))
    else:
        cache = decoder.target_model.start(params[target], *read)
    caches = {target: cache}
    for name in decoder.used[1:]:
        start = functools.partial(lookup(decoder.models, name).start, params[name], *read)
        wanted = drafter.wanted(name, context) if chooses else None
        caches[name] = start() if wanted is None else _if(wanted, start)
    return context, caches


def _if(wanted: jax.Array, make: Callable[[], T]) -> T:
    """`make()` where wanted [] holds, else zeros."""
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(make))
    return when(wanted, lambda _: make(), zeros)


def _first_context(
    decoder: Decoder,
    prompt: jax.Array,
    prompt_length: jax.Array,
    limit: jax.Array,
    options: Options,
    buffer: int,
) -> Context:
    batch = prompt.shape[0]
    start_token = decoder.target_model.start_token
    if start_token is None:
        source, source_length = prompt[:, :0], jnp.zeros_like(prompt_length)
        head, length = prompt, prompt_length
    else:
        source, source_length = prompt, prompt_length
        head = jnp.full((batch, 1), start_token, jnp.int32)
        length = jnp.ones((batch,), jnp.int32)
    tokens = jnp.pad(head, ((0, 0), (0, buffer - head.shape[1])))
    return Context(
        source=source,
        source_length=source_length,
        tokens=tokens,
        length=length,
        begin=length,
        limit=length + limit,
        active=limit > 0,
        running=nothing_seen(batch),
        options=options,
        rejected=jnp.zeros((batch,), bool),
    )


def advance(decoder: Decoder, params: dict[str, Any], state: State, rounds: int | None) -> State:
    """Runs `rounds` rounds, or all that are needed (None), while any row is active.

    A single row that has one arm for its whole text runs that arm's own loop: loops of no turns,
    those of the other arms, cost nothing.
    """
    last = None if rounds is None else state.trace.rounds + rounds

    def run(decoder: Decoder, state: State, mine: jax.Array | bool = True) -> State:
        def unfinished(state: State) -> jax.Array:
            active = jnp.any(state.context.active) & mine
            return active if last is None else active & (state.trace.rounds < last)

        turn = functools.partial(round_, decoder, params)
        used = {name: state.caches[name] for name in decoder.used}
        after = jax.lax.while_loop(unfinished, turn, state.replace(caches=used))
        return after.replace(caches={**state.caches, **after.caches})

    context = state.context
    if not isinstance(decoder.drafter, Selected) or context.length.shape[0] > 1:
        return run(decoder, state)
    for arm in range(len(decoder.drafter.arms)):
        state = run(decoder.alone(arm), state, context.memory.arm[0] == arm)
    return state


begin_jitted = jax.jit(begin, static_argnames="decoder")
"""`begin` as one dispatch, for streaming."""

advance_jitted = jax.jit(advance, static_argnames=("decoder", "rounds"), donate_argnames="state")
"""`advance` by a fixed number of rounds as one dispatch; the state handed in is consumed."""


def finish(state: State) -> Generation:
    """The result held in a state."""
    context = state.context
    embedding = None if context.memory is None else context.memory.embedding
    return Generation(context.tokens, context.begin, context.length, state.trace, embedding)


def round_(decoder: Decoder, params: dict[str, Any], state: State) -> State:
    """One round: draft, verify, commit."""
    draft, caches = draft_tokens(decoder, params, state)
    verdict, caches, width = review(decoder, params, state, draft, caches)
    return commit(decoder, state, draft, verdict, caches, width)


def draft_tokens(decoder: Decoder, params: dict[str, Any], state: State) -> tuple[Draft, Caches]:
    """The drafter's proposal, cut at its first EOS and at the row's end.

    It leaves no place to the target's own token: which of the two writes the last token, with
    which key, would then depend on where the row ends.
    """
    context = state.context
    keys = fold(fold(state.keys, context.length), DRAFT)
    draft, caches = decoder.drafter.draft(decoder.models, params, state.caches, context, keys)
    return cut(draft, context.room, decoder.target_model.eos), caches


def review(
    decoder: Decoder, params: dict[str, Any], state: State, draft: Draft, caches: Caches
) -> tuple[Verdict, Caches, jax.Array]:
    """`verify`, but for rows whose draft is final: it stands, and ends them."""
    if draft.final is None:
        check = verify_fitting if decoder.widths or decoder.invariant else verify
        return check(decoder, params, state, draft, caches)
    if decoder.rule.lossless:
        raise ValueError(f"{decoder.drafter} ends rows without review: {decoder.rule} needs one")
    verdict, caches, width = verify_fitting(decoder, params, state, draft, caches)
    accepted = jnp.where(draft.final, draft.length, verdict.accepted)
    adds = ~draft.final if verdict.adds is None else verdict.adds & ~draft.final
    return verdict.replace(accepted=accepted, adds=adds), caches, width


def verify(
    decoder: Decoder, params: dict[str, Any], state: State, draft: Draft, caches: Caches
) -> tuple[Verdict, Caches, jax.Array]:
    """One parallel pass of the target over the pending token and the draft, then the rule.

    Returns the width of the draft too: the drafted tokens that the pass had room for.
    """
    context, target = state.context, decoder.target
    fed = jnp.concatenate([last_token(context)[:, None], draft.tokens], axis=1)
    layers = None
    if decoder.calm:
        logits, layers, cache = decoder.calm.extend(
            decoder.target_model, params[target], fed, caches[target], context
        )
    else:
        output, cache = decoder.target_model.extend(
            params[target], fed, caches[target], resume=draft.resume, resume_from=draft.resume_from
        )
        logits = output.logits
    keys = fold(fold(state.keys, context.length), VERIFY)
    verdict = decoder.rule.verify(draft, logits, context.options, keys)
    verdict = verdict.replace(probs=None, layers=layers)
    return verdict, {**caches, target: cache}, jnp.int32(draft.tokens.shape[1])


def verify_fitting(
    decoder: Decoder, params: dict[str, Any], state: State, draft: Draft, caches: Caches
) -> tuple[Verdict, Caches, jax.Array]:
    """`verify` at the narrowest of the decoder's widths that holds every draft to be reviewed.

    The target does not run when there is no such draft. With one width for all decoders it runs all
    of its layers on drafts of its own first ones too.
    """
    widths = decoder.target_widths
    if decoder.invariant:
        draft = draft.replace(resume=None, resume_from=0)
    reviewed = reviewed_rows(draft, state.context)
    longest = jnp.max(jnp.where(reviewed, draft.length, 0))
    choice = jnp.argmax(jnp.array(widths) >= longest)
    judge = functools.partial(verify, decoder, params, state)
    shapes, *_ = jax.eval_shape(judge, draft, caches)
    verdict = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    carry = verdict, caches[decoder.target]

    for index, width in enumerate(widths):

        def turn(carry: tuple, width: int = width) -> tuple:
            held = {**caches, decoder.target: carry[1]}
            verdict, after, _ = judge(fitted(draft, width), held)
            return verdict, after[decoder.target]

        carry = when(jnp.any(reviewed) & (choice == index), turn, carry)
    verdict, cache = carry
    return verdict, {**caches, decoder.target: cache}, jnp.array(widths)[choice]


def reviewed_rows(draft: Draft, context: Context) -> jax.Array:
    """Rows [B] that the target judges: the active ones whose draft is not final."""
    return context.active if draft.final is None else context.active & ~draft.final


def fitted(draft: Draft, width: int) -> Draft:
    """The draft in `width` columns, which hold all that is reviewed: cut, or filled up."""
    names = "tokens", "probs", "source", "score", "logits"
    room = max(width - draft.tokens.shape[1], 0)

    def fit(column: jax.Array) -> jax.Array:
        return jnp.pad(column[:, :width], ((0, 0), (0, room), *((0, 0),) * (column.ndim - 2)))

    columns = jax.tree.map(fit, {name: getattr(draft, name) for name in names})
    resume = None if draft.resume is None else draft.resume[:, : width + 1]
    return draft.replace(**columns, resume=resume)


def commit(
    decoder: Decoder,
    state: State,
    draft: Draft,
    verdict: Verdict,
    caches: Caches,
    width: jax.Array,
) -> State:
    """Appends what stands to each row, rewinds the caches, freezes the rows that ended."""
    context = state.context
    eos = decoder.target_model.eos
    step = jnp.arange(draft.tokens.shape[1] + 1)
    accepted = verdict.accepted[:, None]
    drafted = jnp.pad(draft.tokens, ((0, 0), (0, 1)))
    emitted = jnp.where(step < accepted, drafted, verdict.next_token[:, None])
    added = 1 if verdict.adds is None else verdict.adds
    count = jnp.minimum(verdict.accepted + added, context.limit - context.length)
    count = jnp.where(context.active, jnp.minimum(count, until_eos(emitted, eos)), 0)
    length = context.length + count
    ended = ends_text(emitted, count, eos) | (length >= context.limit)
    ended = ended if draft.final is None else ended | draft.final
    drafter = jnp.pad(draft.source, ((0, 0), (0, 1))) + FIRST_DRAFTER
    writer = jnp.where(step < accepted, drafter, TARGET)
    tests = (
        jnp.minimum(verdict.accepted, count),
        tested(verdict.accepted, draft.length) * context.active,
    )
    memory = context.memory
    if memory is not None:
        memory = decoder.drafter.after(memory, draft, *tests, context.options)
    return State(
        context=context.replace(
            tokens=append(context.tokens, context.length, emitted, count),
            length=length,
            active=context.active & ~ended,
            running=context.running.after(*tests),
            rejected=verdict.accepted < draft.length,
            memory=memory,
        ),
        caches=rewind(caches, state.caches, length, context.active),
        keys=state.keys,
        trace=record(state, draft, verdict, count, writer, width, decoder.target),
    )


def record(
    state: State,
    draft: Draft,
    verdict: Verdict,
    count: jax.Array,
    writer: jax.Array,
    width: jax.Array,
    target: str,
) -> Trace:
    """The trace with this round added; finished rows add nothing."""
    trace, context = state.trace, state.context
    active = context.active.astype(jnp.int32)
    reviewed = reviewed_rows(draft, context)
    calls = {target: reviewed, **{name: n * active for name, n in draft.calls.items()}}

    def put(rows: jax.Array, value: jax.Array) -> jax.Array:
        update = value[:, None].astype(rows.dtype)
        return jax.lax.dynamic_update_slice_in_dim(rows, update, trace.rounds, axis=1)

    reason = jnp.arange(trace.stops.shape[1]) == draft.stop_reason[:, None]
    return Trace(
        rounds=trace.rounds + 1,
        drafted=put(trace.drafted, draft.length * active),
        accepted=put(trace.accepted, jnp.minimum(verdict.accepted, count)),
        committed=put(trace.committed, count),
        reviewed=put(trace.reviewed, reviewed),
        overlap=put(trace.overlap, verdict.overlap * reviewed),
        proposed=put(trace.proposed, draft.tokens),
        proposer=put(trace.proposer, draft.source),
        calls={name: total + calls.get(name, 0) for name, total in trace.calls.items()},
        runs={name: total + jnp.max(calls.get(name, 0)) for name, total in trace.runs.items()},
        stops=trace.stops + reason * active[:, None],
        tested=trace.tested + tested(verdict.accepted, draft.length) * reviewed,
        width=put(trace.width, width * reviewed),
        layers=None if trace.layers is None else put(trace.layers, verdict.layers * active),
        arm=None if trace.arm is None else put(trace.arm, draft.arm * active),
        writer=append(trace.writer, context.length, writer, count),
    )
