"""What a decode carries from round to round, and what it leaves behind."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from specjax.decoding.calm import Calm
from specjax.drafting.base import (
    MOST_DRAFTED,
    STOP_REASONS,
    Caches,
    Call,
    Context,
    Drafter,
    Models,
    lookup,
    parts,
    touched,
)
from specjax.drafting.selected import Arms
from specjax.models.base import LanguageModel
from specjax.parallel.sharding import Layout
from specjax.verification.base import Rule

NOBODY, TARGET, FIRST_DRAFTER = 0, 1, 2
"""Values of `Trace.writer`: prompt or unwritten, the target, then the drafter's `writers`."""


@struct.dataclass
class Trace:
    """Fixed-size record of a decode; every figure and table is computed from it.

    R is the largest possible number of rounds: each one commits at least one token. K is the
    drafter's width.
    """

    rounds: jax.Array  # [] int32: rounds run, the same for all rows
    drafted: jax.Array  # [B, R] int32: tokens put before the target
    accepted: jax.Array  # [B, R] int32: of those, how many stood
    committed: jax.Array  # [B, R] int32: tokens the round added, 0 for a finished row
    reviewed: jax.Array  # [B, R] bool: the target ran for the row
    overlap: jax.Array  # [B, R] float32: sum of min(p, q) over the tested positions
    proposed: jax.Array  # [B, R, K] int32: drafted tokens, rejected ones too; see `drafted`
    proposer: jax.Array  # [B, R, K] int8: index of who drafted them into the drafter's `writers`
    calls: dict[str, jax.Array]  # [B] int32 runs by `Call.part` while the row was active
    runs: dict[str, jax.Array]  # [] int32 runs of the batch: the busiest row of a round
    stops: jax.Array  # [B, len(STOP_REASONS)] int32: rounds by reason why drafting stopped
    tested: jax.Array  # [B] int32: positions that an acceptance test looked at
    width: jax.Array  # [B, R] int32: drafted tokens that the target call had room for
    layers: jax.Array | None  # [B, R] int32: decoder layers that the token ran, under CALM
    writer: jax.Array  # [B, L] int8: who wrote each token
    arm: jax.Array | None  # [B, R] int8: which of several drafters had the round


@struct.dataclass
class State:
    """Carry of the decode loop."""

    context: Context
    caches: Caches
    keys: jax.Array  # [B] one key per row; folded, never replaced
    trace: Trace


@struct.dataclass
class Generation:
    """What a decode returns."""

    tokens: jax.Array  # [B, L] int32, trusted up to `length`
    begin: jax.Array  # [B] int32: first generated position
    length: jax.Array  # [B] int32
    trace: Trace
    embedding: jax.Array | None = None  # [B, D] float32 of the prompts, where arms are chosen by it


@dataclasses.dataclass(frozen=True)
class Decoder:
    """A (drafter, rule) pair with its models: everything static of a decode.

    `widths` are the numbers of drafted tokens, in rising order up to the drafter's width, that a
    target call is compiled for: it takes the narrowest that holds the drafts of all rows.

    With `invariant` every call of the target feeds that many tokens through all of its layers,
    whatever was drafted and by whom. Decoders that share it, and their batches' shape, give a token
    the same logits to the bit, in any dtype: kernels round by the shapes of their operands.
    """

    models: Models
    drafter: Drafter
    rule: Rule
    max_new_tokens: int
    target: str = "target"
    layout: Layout | None = None  # None: everything on one device
    widths: tuple[int, ...] = ()  # empty: the drafter's alone
    calm: Calm | None = None  # None: every token runs all of the target's layers
    invariant: int = 0  # tokens that every call of the target feeds; 0: as many as are needed

    def __post_init__(self) -> None:
        known = dict(self.models)
        for name in (self.target, *self.drafter.models):
            if name not in known:
                raise ValueError(f"model {name!r} is not among {', '.join(map(repr, known))}")
        if self.drafter.width > MOST_DRAFTED:
            raise ValueError(
                f"drafts have {self.drafter.width:,} tokens; they must have at most"
                f" {MOST_DRAFTED:,}"
            )
        for call in self.drafter.schedule:
            self._check_exit(call)
        if self.calm and self.drafter.width:
            raise ValueError(f"CALM decodes alone, without drafts; the drafter is {self.drafter}")
        for name in self.used:
            if (known[name].start_token is None) != (self.target_model.start_token is None):
                raise ValueError(
                    f"model {name!r} is {_kind(known[name])}, the target"
                    f" {_kind(self.target_model)}; they must be alike"
                )
        if self.widths and (
            list(self.widths) != sorted(set(self.widths)) or self.widths[-1] != self.drafter.width
        ):
            raise ValueError(
                f"widths are {self.widths}; they must rise to the drafter's, {self.drafter.width}"
            )
        if self.invariant:
            self._check_invariant()

    def _check_invariant(self) -> None:
        """One call holds whatever a round may write, and runs all layers."""
        least = touched(self.drafter)
        if self.invariant < least:
            raise ValueError(
                f"invariant is {self.invariant}; it must be 0 (off) or at least {least}, the tokens"
                " that a round may touch"
            )
        if self.calm:
            raise ValueError(
                f"invariant is {self.invariant}; it must be 0 (off) under CALM, which runs layers"
                " one by one"
            )

    def _check_exit(self, call: Call) -> None:
        """The drafter runs other models whole, and of the target only first layers."""
        own = call.model == self.target
        if own and call.exit is None:
            raise ValueError(
                f"the drafter's model is {self.target!r}, whose cache the verification needs as it"
                " was; it must be another one, or an early exit"
            )
        if call.exit is not None and not own:
            raise ValueError(
                f"exit is {call.exit} of model {call.model!r}; only {self.target!r} may draft with"
                " its first layers"
            )
        if own and not 1 <= call.exit < self.target_model.depth:
            depth = self.target_model.depth
            raise ValueError(
                f"exit is {call.exit}; it must be from 1 to {depth - 1}, below the {depth} decoder"
                f" layers of {self.target!r}"
            )

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the models that run, the target first."""
        return tuple(dict.fromkeys((self.target, *self.drafter.models)))

    @property
    def parts(self) -> tuple[str, ...]:
        """What runs are counted of: the models, and early exits apart from the whole target."""
        return tuple(dict.fromkeys((*self.used, *parts(self.drafter))))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the parameter trees that a decode needs."""
        return self.used + self.drafter.tables

    @property
    def target_widths(self) -> tuple[int, ...]:
        """Drafted tokens that a target call may have room for, in rising order."""
        return (self.invariant - 1,) if self.invariant else self.widths or (self.drafter.width,)

    @property
    def target_model(self) -> LanguageModel:
        return lookup(self.models, self.target)

    def alone(self, arm: int) -> Decoder:
        """The decode of rows that all have the same one of several drafters."""
        widths = self.drafter.arms[arm].widths
        return dataclasses.replace(self, drafter=self.drafter.only(arm), widths=widths)

    def buffer(self, prompt_width: int) -> int:
        """Slots of the token buffer and the caches.

        Beyond the longest output: what a last draft may touch, and one for the pending token.
        """
        head = 1 if self.target_model.start_token is not None else prompt_width
        return head + self.max_new_tokens + (self.invariant or touched(self.drafter))


def _kind(model: LanguageModel) -> str:
    return "decoder-only" if model.start_token is None else "encoder-decoder"


def empty_trace(decoder: Decoder, batch: int, buffer: int) -> Trace:
    """A trace of no rounds."""
    zero = jnp.zeros((batch,), jnp.int32)
    per_round = jnp.zeros((batch, decoder.max_new_tokens), jnp.int32)
    per_draft = jnp.zeros((*per_round.shape, decoder.drafter.width), jnp.int32)
    return Trace(
        rounds=jnp.int32(0),
        drafted=per_round,
        accepted=per_round,
        committed=per_round,
        reviewed=per_round.astype(bool),
        overlap=per_round.astype(jnp.float32),
        proposed=per_draft,
        proposer=per_draft.astype(jnp.int8),
        calls=dict.fromkeys(decoder.parts, zero),
        runs=dict.fromkeys(decoder.parts, jnp.int32(0)),
        stops=jnp.zeros((batch, len(STOP_REASONS)), jnp.int32),
        tested=zero,
        width=per_round,
        layers=per_round if decoder.calm else None,
        writer=jnp.zeros((batch, buffer), jnp.int8),
        arm=per_round.astype(jnp.int8) if isinstance(decoder.drafter, Arms) else None,
    )
