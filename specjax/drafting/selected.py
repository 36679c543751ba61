"""One drafter out of several, the arms: for a whole text, or anew at every round.

Context-aware assistant selection (docs/methods/selection.md). Rows of different arms run side by
side: each arm drafts for the rows that chose it and does not run when there are none. All arms see
the same committed tokens; one that was not asked lags behind and catches up (`drafting/sync.py`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from specjax.drafting import switching
from specjax.drafting.base import (
    LENGTH,
    NO_MATCH,
    Caches,
    Call,
    Context,
    Draft,
    Drafter,
    Models,
    Options,
    distinct,
    fold,
    parts,
)
from specjax.drafting.choosing import POLICY, Chooser, Given, Logits
from specjax.drafting.running import Running
from specjax.drafting.turns import when
from specjax.models.base import Cache

CHOOSE = 2**31 - 1
"""Folded into keys to choose by: no length and no drafted position is so large."""


@dataclasses.dataclass(frozen=True)
class Arm:
    """A drafter by its name; `widths` are those of `Decoder` where it drafts alone."""

    name: str
    drafter: Drafter
    widths: tuple[int, ...] = ()


@struct.dataclass
class Memory:
    """What a row knows of its arms; it outlives rounds and is never rewound."""

    arm: jax.Array  # [B] int32: of the text, or of the last round
    embedding: jax.Array  # [B, D] float32, of the prompt
    seen: Running | None = None  # [B, A]: tests of every arm, where rounds choose


@dataclasses.dataclass(frozen=True)
class Only:
    """One of several arms alone; its tokens and rounds are told apart as those of all arms are."""

    arm: int
    drafter: Drafter
    writers: tuple[str, ...]

    @property
    def width(self) -> int:
        return self.drafter.width

    @property
    def reach(self) -> int:
        return self.drafter.reach

    @property
    def models(self) -> tuple[str, ...]:
        return self.drafter.models

    @property
    def tables(self) -> tuple[str, ...]:
        return self.drafter.tables

    @property
    def schedule(self) -> tuple[Call, ...]:
        return self.drafter.schedule

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        draft, caches = self.drafter.draft(models, params, caches, context, keys)
        named = [self.writers.index(name) for name in self.drafter.writers]
        source = jnp.array(named, jnp.int32)[draft.source] if named else draft.source
        arm = jnp.full(context.length.shape, self.arm, jnp.int32)
        return draft.replace(source=source, arm=arm), caches

    def after(self, memory: Memory, draft: Draft, *tests: Any) -> Memory:
        return memory


@dataclasses.dataclass(frozen=True)
class Arms:
    """What all have in common that draft with one of `arms`.

    Side by side, drafts of early exits are reviewed by the whole target: the rows of other arms
    need its first layers anyway.
    """

    arms: tuple[Arm, ...]
    reviewed_whole: ClassVar[bool] = True

    def __post_init__(self) -> None:
        names = self.names
        if not names or len(set(names)) < len(names):
            raise ValueError(f"arms are {names}; they must have names, each its own")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(arm.name for arm in self.arms)

    @property
    def drafters(self) -> tuple[Drafter, ...]:
        return tuple(arm.drafter for arm in self.arms)

    @property
    def width(self) -> int:
        return max(drafter.width for drafter in self.drafters)

    @property
    def reach(self) -> int:
        return max(drafter.reach for drafter in self.drafters)

    @property
    def models(self) -> tuple[str, ...]:
        return distinct(drafter.models for drafter in self.drafters)

    @property
    def tables(self) -> tuple[str, ...]:
        return distinct(drafter.tables for drafter in self.drafters)

    @property
    def writers(self) -> tuple[str, ...]:
        return distinct(drafter.writers for drafter in self.drafters)

    @property
    def schedule(self) -> tuple[Call, ...]:
        """Of all arms, one after another: no draft has them all."""
        return tuple(call for drafter in self.drafters for call in drafter.schedule)

    def only(self, arm: int) -> Only:
        """One of the arms."""
        return Only(arm, self.drafters[arm], self.writers)

    def _side_by_side(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
        arm: jax.Array,
    ) -> tuple[Draft, Caches]:
        """The draft of each row's `arm` [B]. An arm runs if a row has it, for those rows."""
        draft = self._empty(models, context, arm)
        for index, drafter in enumerate(self.drafters):
            if not drafter.width:
                continue
            alone = self.only(index)
            inside = context.replace(active=context.active & (arm == index))

            def turn(
                carry: tuple[Draft, Caches], alone: Only = alone, inside: Context = inside
            ) -> tuple[Draft, Caches]:
                draft, own = carry
                made, after = alone.draft(models, params, own, inside, keys)
                return _merged(draft, made, inside.active), _advanced(own, after, inside.active)

            own = {name: caches[name] for name in drafter.models}
            draft, own = when(jnp.any(inside.active), turn, (draft, own))
            caches = {**caches, **own}
        return draft, caches

    def _empty(self, models: Models, context: Context, arm: jax.Array) -> Draft:
        """A draft of nothing in all rows."""
        rows = context.length.shape[0]
        drafted = rows, self.width
        zero = jnp.zeros((rows,), jnp.int32)
        probs = None
        if not context.options.sampling.greedy:
            probs = jnp.zeros((*drafted, models[0][1].vocab_size), jnp.float32)
        return Draft(
            tokens=jnp.zeros(drafted, jnp.int32),
            length=zero,
            probs=probs,
            source=jnp.zeros(drafted, jnp.int32),
            calls=dict.fromkeys(parts(self), zero),
            stop_reason=zero + LENGTH,
            arm=arm,
        )


@dataclasses.dataclass(frozen=True)
class Selected(Arms):
    """The arm that `chooser` names for a text drafts all of it.

    Models that only other arms use do not read the row's prompt, unless its batch needs them.
    """

    chooser: Chooser

    @property
    def tables(self) -> tuple[str, ...]:
        return distinct((super().tables, self.chooser.tables))

    def begin(
        self, params: dict[str, Any], embedding: jax.Array, context: Context, keys: jax.Array
    ) -> Memory:
        """The choice, from the embeddings [B, D] of the prompts; folds `keys` [B]."""
        chance = fold(keys, CHOOSE)
        arm = self.chooser.choose(params, embedding, context.options, chance, len(self.arms))
        return Memory(arm, embedding)

    def wanted(self, model: str, context: Context) -> jax.Array:
        """Whether [] an active row chose an arm that uses the model."""
        users = [model in drafter.models for drafter in self.drafters]
        return jnp.any(context.active & jnp.array(users)[context.memory.arm])

    def after(self, memory: Memory, draft: Draft, *tests: Any) -> Memory:
        """The memory after a round: a choice stays."""
        return memory

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        arm = context.memory.arm
        return self._side_by_side(models, params, caches, context, keys, arm)


@dataclasses.dataclass(frozen=True)
class Switched(Arms):
    """At every round the arm and the draft length that promise the most speed (`switching`).

    A draft may have any of `lengths` up to its arm's width. `thompson` draws what to hope for
    instead of adding a bonus. `logits` of a policy, on the tree called `table`, say what to expect
    at first.
    """

    lengths: tuple[int, ...]
    thompson: bool = False
    logits: Logits | None = None
    table: str = POLICY

    @property
    def tables(self) -> tuple[str, ...]:
        return distinct((super().tables, (self.table,) if self.logits else ()))

    @property
    def choices(self) -> tuple[tuple[int, int], ...]:
        """All (arm, length)."""
        return tuple(
            (index, length)
            for index, drafter in enumerate(self.drafters)
            for length in sorted({min(length, drafter.width) for length in self.lengths})
        )

    def begin(
        self, params: dict[str, Any], embedding: jax.Array, context: Context, keys: jax.Array
    ) -> Memory:
        """What is expected of the arms, from the embeddings [B, D] of the prompts."""
        rows = context.length.shape[0]
        if self.logits is None:
            seen = switching.nothing_seen(rows, len(self.arms))
        else:
            logits = self.logits(params[self.table], embedding)
            seen = switching.told(logits, context.options.numbers)
        return Memory(jnp.zeros((rows,), jnp.int32), embedding, seen)

    def wanted(self, model: str, context: Context) -> None:
        """None: every model may be."""

    def after(
        self,
        memory: Memory,
        draft: Draft,
        accepted: jax.Array,
        tested: jax.Array,
        options: Options,
    ) -> Memory:
        """The memory after a round with its tests [B]; finding nothing to copy is a failed one."""
        tested = jnp.maximum(tested, draft.stop_reason == NO_MATCH)
        seen = switching.after(memory.seen, draft.arm, accepted, tested, options.numbers)
        return memory.replace(arm=draft.arm, seen=seen)

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        numbers = context.options.numbers
        arms, lengths = zip(*self.choices, strict=True)
        chance = fold(keys, CHOOSE) if self.thompson else None
        hoped = switching.hoped(context.memory.seen, numbers, chance)
        best = jnp.argmax(switching.speeds(hoped, arms, lengths, numbers), axis=1)
        arm, length = jnp.array(arms)[best], jnp.array(lengths)[best]
        inside = context.replace(limit=jnp.minimum(context.limit, context.length + length))
        draft, caches = self._side_by_side(models, params, caches, inside, keys, arm)
        return draft.replace(length=jnp.minimum(draft.length, inside.room)), caches


def members(drafter: Drafter) -> tuple[Drafter, ...]:
    """The drafters that one of them is chosen from, or the only one."""
    return drafter.drafters if isinstance(drafter, Arms) else (drafter,)


def arms_are_given(drafter: Drafter) -> bool:
    """Whether the caller must say the arm of every row, as `Options.arms`."""
    return isinstance(drafter, Selected) and isinstance(drafter.chooser, Given)


def _merged(draft: Draft, made: Draft, mine: jax.Array) -> Draft:
    """The draft with that of one arm in its rows `mine` [B]."""
    room = draft.tokens.shape[1] - made.tokens.shape[1]

    def put(old: jax.Array, new: jax.Array) -> jax.Array:
        new = jnp.pad(new, ((0, 0), (0, room), *((0, 0),) * (new.ndim - 2)))
        return jnp.where(mine.reshape(-1, *(1,) * (new.ndim - 1)), new.astype(old.dtype), old)

    probs = draft.probs
    if probs is not None:
        law = made.probs
        if law is None:
            law = jax.nn.one_hot(made.tokens, probs.shape[-1], dtype=probs.dtype)
        probs = put(probs, law)
    return draft.replace(
        tokens=put(draft.tokens, made.tokens),
        length=jnp.where(mine, made.length, draft.length),
        probs=probs,
        source=put(draft.source, made.source),
        calls={part: n + mine * made.calls.get(part, 0) for part, n in draft.calls.items()},
        stop_reason=jnp.where(mine, made.stop_reason, draft.stop_reason),
    )


def _advanced(before: Caches, after: Caches, mine: jax.Array) -> Caches:
    """An arm's caches after its draft; in rows that it did not draft for the pointer stays."""

    def one(old: Cache, new: Cache) -> Cache:
        return new.replace(length=jnp.where(mine, new.length, old.length))

    return {name: one(before[name], after[name]) for name in before}
