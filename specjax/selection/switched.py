"""Switches the drafter and the draft length at every round (docs/methods/selection.md)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts.context import Context, fold_keys
from specjax.contracts.draft import NO_MATCH, Draft
from specjax.contracts.drafter import STOP, Log, Memory, Outcome, list_distinct
from specjax.contracts.env import Env
from specjax.contracts.rows import Caches
from specjax.contracts.spec import Spec
from specjax.drafting.adaptive_length import Running
from specjax.models.base import PromptReading
from specjax.selection import switching
from specjax.selection.arms import CHOOSE, Arms
from specjax.selection.choosing import POLICY, Logits


class SwitchedMemory(struct.PyTreeNode):
    """Statistics of a row about its arms."""

    arm: jax.Array  # [B] int32: of the last round
    missed: jax.Array  # [B] bool: it found nothing to copy
    embedding: jax.Array  # [B, D] float32, of the prompt
    acceptance_counts: Running  # [B, A]: tests of every arm
    arms: tuple[Memory, ...]  # of every arm


@dataclasses.dataclass(frozen=True)
class SwitchedArms(Arms):
    """Chooses the arm and draft length of highest expected speed at every round (`switching`).

    A draft may have any of `lengths` up to its arm's width. `thompson` samples noise instead of
    adding a bonus. `logits` of a policy, on the tree called `table`, give the initial expectation.
    """

    lengths: tuple[int, ...]
    thompson: bool = False
    logits: Logits | None = None
    table: str = POLICY

    @property
    def spec(self) -> Spec:
        spec, tables = super().spec, (self.table,) if self.logits else ()
        return dataclasses.replace(spec, resources=list_distinct((spec.resources, tables)))

    @property
    def choices(self) -> tuple[tuple[int, int], ...]:
        """All options (arm, length)."""
        return tuple(
            (index, length)
            for index, drafter in enumerate(self.drafters)
            for length in sorted({min(length, drafter.spec.width) for length in self.lengths})
        )

    def begin(
        self, env: Env, caches: Caches, context: Context, prompt: PromptReading, keys: jax.Array
    ) -> tuple[SwitchedMemory, Caches]:
        """The initial expectation of the arms, from the embeddings [B, D] of the prompts."""
        rows = context.length.shape[0]
        if self.logits is None:
            counts = switching.empty_running(rows, len(self.arms))
        else:
            logits = self.logits(env.params[self.table], prompt.embedding)
            counts = switching.policy_prior(logits, context.options.numbers)
        zero = jnp.zeros((rows,), jnp.int32)
        arms, caches = self.begin_arms(env, caches, context, prompt, keys)
        return SwitchedMemory(zero, zero > 0, prompt.embedding, counts, arms), caches

    def propose(
        self, env: Env, caches: Caches, memory: SwitchedMemory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, SwitchedMemory, Log]:
        numbers = context.options.numbers
        arms, lengths = zip(*self.choices, strict=True)
        chance = fold_keys(keys, CHOOSE) if self.thompson else None
        acceptance = switching.optimistic_acceptance(memory.acceptance_counts, numbers, chance)
        best = jnp.argmax(switching.speeds(acceptance, arms, lengths, numbers), axis=1)
        arm, length = jnp.array(arms)[best], jnp.array(lengths)[best]
        inside = context.replace(most=jnp.minimum(context.most, length))
        draft, caches, own, log = self.propose_side_by_side(
            env, caches, memory.arms, inside, keys, arm
        )
        memory = memory.replace(arm=arm, missed=log[STOP] == NO_MATCH, arms=own)
        return draft, caches, memory, log

    def observe(self, memory: SwitchedMemory, outcome: Outcome) -> SwitchedMemory:
        """Adds a round's tests; a draft without anything to copy counts as a failed test."""
        tested = jnp.maximum(outcome.tested, memory.missed)
        numbers = outcome.context.options.numbers
        counts = switching.after(
            memory.acceptance_counts, memory.arm, outcome.accepted, tested, numbers
        )
        return memory.replace(
            acceptance_counts=counts, arms=self.observe_arms(memory.arms, outcome, memory.arm)
        )
