"""Shared parts of drafters that choose among several drafters (arms).

Context-aware assistant selection (docs/methods/selection.md). Rows of different arms run side by
side: each arm drafts for the rows that chose it and does not run without such rows. All arms see
the same committed tokens; an arm that did not run lags and catches up (`contracts.catching_up`).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.contracts.context import Context
from specjax.contracts.distribution import Categorical, OneHot
from specjax.contracts.draft import LENGTH, Draft
from specjax.contracts.drafter import (
    STOP,
    Alternative,
    Drafter,
    Log,
    Memory,
    Outcome,
    count_calls,
    list_distinct,
)
from specjax.contracts.env import Env, Models
from specjax.contracts.reader import Reader
from specjax.contracts.rows import Caches, run_if, select_rows
from specjax.contracts.spec import Spec, list_parts
from specjax.models.base import Cache, PromptReading

ARM = "arm"
"""Trace column: the arm of the round."""

CHOOSE = 2**31 - 1
"""Folded into the keys for choosing; larger than any length or drafted position."""

Turn = tuple[Draft, Log, Caches, Memory]
"""Changes of an arm's draft."""


@dataclasses.dataclass(frozen=True)
class Arm:
    """A named drafter, and the reader of its drafts when it drafts alone."""

    name: str
    drafter: Drafter
    reader: Reader


@dataclasses.dataclass(frozen=True)
class Arms(Drafter):
    """Base of drafters that draft with one of `arms`.

    Side by side, the whole target reads the drafts of early exits, because the rows of other arms
    need its first layers anyway.
    """

    arms: tuple[Arm, ...]

    whole_texts: ClassVar[bool] = False
    """Whether an arm drafts all rounds of a text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        names = self.names
        if not names or len(set(names)) < len(names):
            raise ValueError(f"arms are {names}; they must have names, each its own")
        for arm in self.arms:
            if arm.drafter.spec.features and not self.whole_texts:
                raise ValueError(
                    f"arm {arm.name!r} reads the target's states at every round; arms must do"
                    " without if others draft some of the rounds"
                )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(arm.name for arm in self.arms)

    @property
    def drafters(self) -> tuple[Drafter, ...]:
        return tuple(arm.drafter for arm in self.arms)

    @property
    def choice(self) -> Arms:
        return self

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the numbers per row that the caller must pass."""
        return ()

    @property
    def members(self) -> tuple[Alternative, ...]:
        return tuple(Alternative(arm.drafter, arm.reader) for arm in self.arms)

    @property
    def spec(self) -> Spec:
        """The spec; `calls` are those of all arms, although no draft makes all of them."""
        specs = [drafter.spec for drafter in self.drafters]
        return Spec(
            width=max(spec.width for spec in specs),
            reach=max(spec.reach for spec in specs),
            calls=tuple(call for spec in specs for call in spec.calls),
            models=list_distinct(spec.models for spec in specs),
            resources=list_distinct(spec.resources for spec in specs),
            writers=list_distinct(spec.writers for spec in specs),
            features=list_distinct(spec.features for spec in specs),
            columns=(ARM, *list_distinct(spec.columns for spec in specs)),
        )

    def bind_models(self, models: Models) -> Arms:
        arms = (
            dataclasses.replace(arm, drafter=arm.drafter.bind_models(models)) for arm in self.arms
        )
        return dataclasses.replace(self, arms=tuple(arms))

    def check(self, env: Env) -> None:
        for drafter in self.drafters:
            drafter.check(env)

    def find_needed_models(
        self, env: Env, context: Context, prompt: PromptReading, keys: jax.Array
    ) -> dict[str, jax.Array]:
        """All models read all prompts."""
        return {}

    def list_alternatives(self, rows: int) -> tuple[Alternative, ...]:
        """All arms share one loop."""
        return ()

    def get_alternative(self, memory: Memory) -> jax.Array:
        raise NotImplementedError

    def begin_arms(
        self, env: Env, caches: Caches, context: Context, prompt: PromptReading, keys: jax.Array
    ) -> tuple[tuple[Memory, ...], Caches]:
        """The memories of all arms, and the caches."""
        memories = []
        for drafter in self.drafters:
            own = prompt.replace(features=self._of(drafter, prompt.features))
            memory, caches = drafter.begin(env, caches, context, own, keys)
            memories.append(memory)
        return tuple(memories), caches

    def _of(self, drafter: Drafter, features: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Selects one arm's layers from the states that arms observe."""
        known = dict(zip(self.spec.features, features, strict=False))
        return tuple(known[layer] for layer in drafter.spec.features if layer in known)

    def observe_arms(
        self, memories: tuple[Memory, ...], outcome: Outcome, arm: jax.Array
    ) -> tuple[Memory, ...]:
        """The memories after a round; each arm observes only its own rows `arm` [B]."""
        updated = []
        for index, (drafter, memory) in enumerate(zip(self.drafters, memories, strict=True)):
            features = self._of(drafter, outcome.reading.features)
            own = outcome.replace(reading=outcome.reading.replace(features=features))
            after = drafter.observe(memory, own)
            updated.append(_in_rows(arm == index, after, memory))
        return tuple(updated)

    def propose_alone(
        self,
        index: int,
        env: Env,
        caches: Caches,
        memory: Memory,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches, Memory, Log]:
        """One arm's draft, with its writers' indices among those of all arms."""
        drafter, writers = self.drafters[index], self.spec.writers
        draft, caches, memory, log = drafter.propose(env, caches, memory, context, keys)
        own = [writers.index(name) for name in drafter.spec.writers]
        if own:
            draft = draft.replace(drafted_by=jnp.array(own, jnp.int32)[draft.drafted_by])
        return draft, caches, memory, log

    def propose_side_by_side(
        self,
        env: Env,
        caches: Caches,
        memories: tuple[Memory, ...],
        context: Context,
        keys: jax.Array,
        arm: jax.Array,
    ) -> tuple[Draft, Caches, tuple[Memory, ...], Log]:
        """The draft of each row's `arm` [B]; an arm only runs for its rows."""
        draft, log = self._empty(env, context)
        log[ARM] = arm
        after = list(memories)
        for index, drafter in enumerate(self.drafters):
            spec = drafter.spec
            if not spec.width:
                continue
            row_mask = context.active & (arm == index)
            inside = context.replace(
                active=row_mask, most=jnp.where(row_mask, jnp.minimum(context.most, spec.width), 0)
            )

            def turn(carry: Turn, index: int = index, inside: Context = inside) -> Turn:
                draft, log, caches, memory = carry
                made, moved, kept, own = self.propose_alone(
                    index, env, caches, memory, inside, keys
                )
                rows = inside.active
                return (
                    _merge_drafts(draft, made.cut(inside.most, env.target.info.eos), rows),
                    {name: jnp.where(rows, own.get(name, old), old) for name, old in log.items()},
                    _advance_caches(caches, moved, rows),
                    _in_rows(rows, kept, memory),
                )

            own = {name: caches[name] for name in spec.models}
            carry = draft, log, own, memories[index]
            draft, log, own, after[index] = run_if(jnp.any(row_mask), turn, carry)
            caches = {**caches, **own}
        return draft, caches, tuple(after), log

    def _empty(self, env: Env, context: Context) -> tuple[Draft, Log]:
        """An empty draft in all rows."""
        spec, rows = self.spec, context.length.shape[0]
        tokens, zero = jnp.zeros((rows, spec.width), jnp.int32), jnp.zeros((rows,), jnp.int32)
        distribution = None
        if not context.options.sampling.greedy:
            shape = (*tokens.shape, env.target.info.vocab_size)
            distribution = Categorical(jnp.zeros(shape, jnp.float32))
        draft = Draft.chain(tokens, zero, distribution)
        log = {STOP: zero + LENGTH, **dict.fromkeys(spec.columns, zero)}
        log |= count_calls(dict.fromkeys(list_parts(spec.calls), zero))
        return draft, log


def _merge_drafts(draft: Draft, made: Draft, row_mask: jax.Array) -> Draft:
    """Merges the draft of one arm into its rows `mine` [B]."""
    room = draft.width - made.width

    def put(old: jax.Array, new: jax.Array) -> jax.Array:
        new = jnp.pad(new, ((0, 0), (0, room), *((0, 0),) * (new.ndim - 2)))
        return select_rows(row_mask, new.astype(old.dtype), old)

    tokens = put(draft.tokens, made.tokens)
    distribution = OneHot(tokens)
    if isinstance(draft.distribution, Categorical):
        old = draft.distribution.probs
        distribution = Categorical(put(old, made.distribution.categorical(old.shape[-1]).probs))
    return draft.replace(
        tokens=tokens,
        length=jnp.where(row_mask, made.length, draft.length),
        distribution=distribution,
        drafted_by=put(draft.drafted_by, made.drafted_by),
    )


def _in_rows(row_mask: jax.Array, new: Memory, old: Memory) -> Memory:
    """Updates a memory only in the rows `mine` [B]."""
    return jax.tree.map(lambda new, old: select_rows(row_mask, new, old), new, old)


def _advance_caches(before: Caches, after: Caches, row_mask: jax.Array) -> Caches:
    """An arm's caches after its draft; the pointer stays in rows of other arms."""

    def one(old: Cache, new: Cache) -> Cache:
        return new.replace(length=jnp.where(row_mask, new.length, old.length))

    return {name: one(before[name], after[name]) for name in before}
