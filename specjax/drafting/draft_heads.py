"""Shared parts of proposers by draft heads: checks of heads, and the state they read.

The state comes from a call of a trunk, or from the target's last verification; then it is the
proposer's memory (docs/methods/medusa.md).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.contracts.context import Context
from specjax.contracts.drafter import Memory, Outcome
from specjax.contracts.env import Env, Models
from specjax.contracts.rows import Caches, pick_last, select_rows
from specjax.contracts.spec import UNBOUND, Call
from specjax.drafting.on_target import gather_accepted_states
from specjax.drafting.proposer import Proposer
from specjax.models.base import PromptReading
from specjax.models.heads import Heads, LoadedHeads, ResidualHeads
from specjax.models.vocabularies import unwrap

TARGET = "target"
"""The model whose states are available without a call."""


@dataclasses.dataclass(frozen=True)
class DraftHeads(Proposer):
    """A proposer by heads on `trunk`. `heads` names the `LoadedHeads` in `params`.

    On the target its memory is the target's state [B, D] at the token before the pending one; zeros
    if there is no such token.
    """

    _: dataclasses.KW_ONLY
    heads: str = "heads"
    layers: tuple[int, ...] = UNBOUND  # of the target, set by `bind_models`

    sequential: ClassVar[bool] = False
    """Whether its heads read the tokens before their own."""

    @property
    def trunk(self) -> str:
        """The model whose states the heads read."""
        raise NotImplementedError

    @property
    def on_target(self) -> bool:
        return self.trunk == TARGET

    @property
    def models(self) -> tuple[str, ...]:
        return () if self.on_target else (self.trunk,)

    @property
    def resources(self) -> tuple[str, ...]:
        return (self.heads,)

    @property
    def features(self) -> tuple[int, ...]:
        return self.layers if self.on_target else ()

    @property
    def lag(self) -> int:
        """After a whole accepted draft the trunk has seen neither it nor the bonus."""
        return self.levels + 1

    def call(self, tokens: int, logits: int) -> Call:
        """A call of the trunk, or only the read-out of the heads' states."""
        if self.on_target:
            return Call(self.trunk, logits, logits, read_out=True)
        return Call(self.trunk, tokens, logits)

    def bind_models(self, models: Models) -> DraftHeads:
        target = dict(models).get(TARGET)
        if not self.on_target or target is None:
            return self
        return dataclasses.replace(self, layers=(target.info.depth,))

    def check(self, env: Env) -> None:
        """Refuses heads that do not fit.

        Raises:
          ValueError: when there are too few, or they were made for other states.
        """
        loaded = env.params[self.heads]
        if not isinstance(loaded, LoadedHeads):
            raise ValueError(f"{self.heads!r} is a {type(loaded).__name__}; it must be LoadedHeads")
        heads = loaded.heads
        if self.depth > heads.count:
            raise ValueError(
                f"{self.depth_words}; {self.heads!r} holds {heads.count} heads, so it must be"
                f" at most {heads.count}"
            )
        width = env[self.trunk].model.config.d_model
        if heads.d_model != width:
            raise ValueError(
                f"{self.heads!r} was made for a model of width {heads.d_model}; {self.trunk!r} has"
                f" {width}"
            )
        self._check_vocabulary(env, heads)
        if heads.state_lag != self.on_target:
            state = ("of the pending token", "before the pending token")[heads.state_lag]
            allowed = "the target" if heads.state_lag else "a model that is called for them"
            raise ValueError(
                f"{self.heads!r} reads states {state}; model is {self.trunk!r}, it must be"
                f" {allowed}"
            )
        if heads.sequential != self.sequential:
            allowed = "hydra" if heads.sequential else "medusa"
            raise ValueError(
                f"{self.heads!r} {'reads' if heads.sequential else 'does not read'} the tokens"
                f" before a head's own; its drafter must be {allowed}"
            )
        super().check(env)

    def _check_vocabulary(self, env: Env, heads: Heads | ResidualHeads) -> None:
        if not isinstance(heads, ResidualHeads) or heads.vocab_size is None:
            return
        ids = unwrap(env[self.trunk].model).info.vocab_size
        if heads.vocab_size != ids:
            raise ValueError(
                f"{self.heads!r} was made for a model of {heads.vocab_size} ids; {self.trunk!r} has"
                f" {ids}"
            )

    def start(
        self, env: Env, caches: Caches, context: Context, prompt: PromptReading
    ) -> tuple[Memory, Caches]:
        if not self.on_target:
            return (), caches
        loaded = env.params[self.heads]
        dtype = jax.tree.leaves(loaded.params)[0].dtype
        state = jnp.zeros((context.length.shape[0], loaded.heads.d_model), dtype)
        if prompt.features:
            last = pick_last(prompt.features[0], context.length - 1).astype(dtype)
            state = select_rows(context.length > 1, last, state)
        return state, caches

    def update(self, memory: Memory, outcome: Outcome) -> Memory:
        if not self.on_target:
            return ()
        (states,) = outcome.reading.features
        # The last written token is pending, so the state is that of the token before it.
        states = gather_accepted_states(states, outcome.verdict)
        return pick_last(states, outcome.committed).astype(memory.dtype)
