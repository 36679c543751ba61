"""Choosers of an arm for every row, before its first round.

Context-aware assistant selection (docs/methods/selection.md). A chooser is a frozen, hashable
dataclass; its parameters are in `params`, like a drafter's tables. A choice is a function of the
row's own prompt and key, so that a row does not depend on its batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from specjax.contracts.context import Options

GREEDY, DYNAMIC, RANDOM, FIXED, ONLINE = MODES = (
    "greedy",
    "dynamic",
    "random",
    "fixed",
    "online",
)
"""Modes of choosing: a policy's most probable arm, a sample of its distribution, a uniformly random
arm, arms of the caller, or a bandit that learns from earlier texts."""

ARMS = "arms"
"""Name of the arms that a caller passes."""

POLICY = "policy"
"""Name of the parameter tree that choosers read by default."""

Logits = Callable[[Any, jax.Array], jax.Array]
"""Scores [B, A] of arms from a parameter tree and embeddings [B, D]."""


class Chooser(Protocol):
    """Anything that chooses one of A arms for each row."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the parameter trees it reads."""
        ...

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the numbers per row that the caller must give (`Options.rows`)."""
        ...

    def choose(
        self,
        params: dict[str, Any],
        embedding: jax.Array,
        options: Options,
        keys: jax.Array,
        arms: int,
    ) -> jax.Array:
        """Arm [B] int32 of each row from the embeddings [B, D] of the prompts; consumes `keys`."""
        ...


@dataclasses.dataclass(frozen=True)
class ByPolicy:
    """The arm of the largest logit, or `dynamic`: an arm drawn from their softmax."""

    logits: Logits
    dynamic: bool = False
    table: str = POLICY
    rows = ()

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.table,)

    def choose(
        self,
        params: dict[str, Any],
        embedding: jax.Array,
        options: Options,
        keys: jax.Array,
        arms: int,
    ) -> jax.Array:
        logits = self.logits(params[self.table], embedding)
        if self.dynamic:
            return jax.vmap(jax.random.categorical)(keys, logits).astype(jnp.int32)
        return jnp.argmax(logits, axis=-1).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class ByRule:
    """Chooses by a pure function `rule(params[table], embedding [B, D], keys [B]) -> arm [B]`.

    Used for online bandits, whose state is a tree that changes from call to call.
    """

    rule: Callable[[Any, jax.Array, jax.Array], jax.Array]
    table: str = POLICY
    rows = ()

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.table,)

    def choose(
        self,
        params: dict[str, Any],
        embedding: jax.Array,
        options: Options,
        keys: jax.Array,
        arms: int,
    ) -> jax.Array:
        return self.rule(params[self.table], embedding, keys).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class ByChance:
    """A uniformly random arm."""

    tables = ()
    rows = ()

    def choose(
        self,
        params: dict[str, Any],
        embedding: jax.Array,
        options: Options,
        keys: jax.Array,
        arms: int,
    ) -> jax.Array:
        return jax.vmap(lambda key: jax.random.randint(key, (), 0, arms))(keys)


@dataclasses.dataclass(frozen=True)
class Given:
    """The arms that the caller passes with the prompts: `Options.rows[ARMS]`."""

    tables = ()
    rows = (ARMS,)

    def choose(
        self,
        params: dict[str, Any],
        embedding: jax.Array,
        options: Options,
        keys: jax.Array,
        arms: int,
    ) -> jax.Array:
        return jnp.clip(options.rows[ARMS], 0, arms - 1)
