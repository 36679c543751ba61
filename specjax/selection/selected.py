"""Drafts a whole text with one of several drafters (docs/methods/selection.md)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts.context import Context, fold_keys
from specjax.contracts.draft import Draft
from specjax.contracts.drafter import Alternative, Drafter, Log, Memory, Outcome, list_distinct
from specjax.contracts.env import Env
from specjax.contracts.rows import Caches
from specjax.contracts.spec import Spec
from specjax.models.base import PromptReading
from specjax.selection.arms import ARM, CHOOSE, Arms
from specjax.selection.choosing import Chooser


class SelectedMemory(struct.PyTreeNode):
    """Memory of a row about its arms."""

    arm: jax.Array  # [B] int32: of the text
    embedding: jax.Array  # [B, D] float32, of the prompt
    arms: tuple[Memory, ...]  # of every arm


@dataclasses.dataclass(frozen=True)
class SelectedArms(Arms):
    """Drafts each whole text with the arm that `chooser` selects.

    Models that only other arms use do not read the row's prompt, unless its batch needs them. A
    single row runs its arm's own loop; the loops of the other arms take no turn and cost nothing.
    """

    chooser: Chooser

    whole_texts = True

    @property
    def spec(self) -> Spec:
        spec = super().spec
        return dataclasses.replace(
            spec, resources=list_distinct((spec.resources, self.chooser.tables))
        )

    @property
    def rows(self) -> tuple[str, ...]:
        return self.chooser.rows

    def _arm(self, env: Env, context: Context, prompt: PromptReading, keys: jax.Array) -> jax.Array:
        """Of each row [B]."""
        chance, arms = fold_keys(keys, CHOOSE), len(self.arms)
        return self.chooser.choose(env.params, prompt.embedding, context.options, chance, arms)

    def begin(
        self, env: Env, caches: Caches, context: Context, prompt: PromptReading, keys: jax.Array
    ) -> tuple[SelectedMemory, Caches]:
        arm = self._arm(env, context, prompt, keys)
        memories, caches = self.begin_arms(env, caches, context, prompt, keys)
        return SelectedMemory(arm, prompt.embedding, memories), caches

    def find_needed_models(
        self, env: Env, context: Context, prompt: PromptReading, keys: jax.Array
    ) -> dict[str, jax.Array]:
        """Models that the arms of active rows use."""
        arm = self._arm(env, context, prompt, keys)

        def users(model: str) -> jax.Array:
            return jnp.array([model in drafter.spec.models for drafter in self.drafters])

        return {
            model: jnp.any(context.active & users(model)[arm])
            for model in self.spec.models
            if model != "target"
        }

    def propose(
        self, env: Env, caches: Caches, memory: SelectedMemory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, SelectedMemory, Log]:
        draft, caches, arms, log = self.propose_side_by_side(
            env, caches, memory.arms, context, keys, memory.arm
        )
        return draft, caches, memory.replace(arms=arms), log

    def observe(self, memory: SelectedMemory, outcome: Outcome) -> SelectedMemory:
        return memory.replace(arms=self.observe_arms(memory.arms, outcome, memory.arm))

    def list_alternatives(self, rows: int) -> tuple[Alternative, ...]:
        if rows > 1:
            return ()
        return tuple(
            Alternative(Only(self, index), arm.reader) for index, arm in enumerate(self.arms)
        )

    def get_alternative(self, memory: SelectedMemory) -> jax.Array:
        return memory.arm[0]


@dataclasses.dataclass(frozen=True)
class Only(Drafter):
    """A single arm, with the memory of all arms."""

    of: SelectedArms
    index: int

    @property
    def spec(self) -> Spec:
        """The spec, with writers and features of all arms, which the shared memory needs."""
        whole = self.of.spec
        own = self.of.drafters[self.index].spec
        return dataclasses.replace(own, writers=whole.writers, features=whole.features)

    def propose(
        self, env: Env, caches: Caches, memory: SelectedMemory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, SelectedMemory, Log]:
        draft, caches, own, log = self.of.propose_alone(
            self.index, env, caches, memory.arms[self.index], context, keys
        )
        arms = (*memory.arms[: self.index], own, *memory.arms[self.index + 1 :])
        arm = jnp.full(context.length.shape, self.index, jnp.int32)
        return draft, caches, memory.replace(arms=arms), {**log, ARM: arm}

    def observe(self, memory: SelectedMemory, outcome: Outcome) -> SelectedMemory:
        return self.of.observe(memory, outcome)
