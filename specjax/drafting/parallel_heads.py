"""What drafters by parallel heads share: heads that fit, and the state that they read.

Of a trunk that is called for it, or of the target itself: then the state is the drafter's memory,
left by the last verification (docs/methods/medusa.md).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from specjax.core.adjustment import adjusting
from specjax.core.calls import Call
from specjax.core.catching_up import catch_up, last_hidden
from specjax.core.context import Context, fold
from specjax.core.distribution import Distribution
from specjax.core.drafter import Drafter, Memory, Outcome
from specjax.core.env import Env, Models
from specjax.core.proposing import drawn_from, propose
from specjax.core.rows import Caches, of_rows, pick_last
from specjax.drafting.on_target import stood
from specjax.models.base import PromptReading
from specjax.models.heads import Heads, LoadedHeads
from specjax.models.residual_heads import ResidualHeads
from specjax.models.shared_vocabulary import unwrapped

TARGET = "target"
"""The model whose states are there without a call."""


class _OnModel(Drafter):
    """A drafter on a model; no dataclass, so that `model` is a field only where one declares it."""

    model: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class ParallelHeads(_OnModel):
    """A drafter by heads on `model`. `heads` names the `LoadedHeads` in `params`.

    On the target its memory is the target's last state [B, D] at the token before the pending one;
    zeros where no token is before it.
    """

    heads: str = "heads"
    layers: tuple[int, ...] = ()  # of the target, known with the models (`of_models`)

    sequential: ClassVar[bool] = False
    """Whether its heads read the tokens before theirs."""

    @property
    def reads_target(self) -> bool:
        return self.model == TARGET

    @property
    def used(self) -> int:
        """Heads asked for in a round: how far it looks ahead."""
        raise NotImplementedError

    @property
    def asking(self) -> str:
        """What says how many, for a refusal."""
        raise NotImplementedError

    @property
    def runs(self) -> tuple[int, ...]:
        """On how many states each head runs in a round."""
        return (1,) * self.used

    @property
    def lag(self) -> int:
        """Tokens fed: after a fully accepted draft the trunk has seen neither it nor the bonus."""
        return self.used + 1

    @property
    def calls(self) -> tuple[Call, ...]:
        """One of the trunk, or none but the read-out of all heads' states."""
        if self.reads_target:
            return (Call(self.model, self.used, self.used, read_out=True),)
        return (Call(self.model, self.lag, self.used),)

    def _common(self) -> dict[str, Any]:
        """What the specs of all such drafters say."""
        return {
            "calls": self.calls,
            "models": () if self.reads_target else (self.model,),
            "resources": (self.heads,),
            "writers": (self.calls[0].part,),
            "features": self.layers,
        }

    def of_models(self, models: Models) -> ParallelHeads:
        target = dict(models).get(TARGET)
        if not self.reads_target or target is None:
            return self
        return dataclasses.replace(self, layers=(target.depth,))

    def check(self, env: Env) -> None:
        """Refuses heads that do not fit.

        Raises:
          ValueError: when there are too few, or they were made for other states.
        """
        loaded = env.params[self.heads]
        if not isinstance(loaded, LoadedHeads):
            raise ValueError(f"{self.heads!r} is a {type(loaded).__name__}; it must be LoadedHeads")
        heads = loaded.heads
        if self.used > heads.count:
            raise ValueError(
                f"{self.asking}; {self.heads!r} holds {heads.count} heads, so it must be"
                f" at most {heads.count}"
            )
        width = env[self.model].model.config.d_model
        if heads.d_model != width:
            raise ValueError(
                f"{self.heads!r} was made for a model of width {heads.d_model}; {self.model!r} has"
                f" {width}"
            )
        self._check_vocabulary(env, heads)
        if heads.behind != self.reads_target:
            state = ("of the pending token", "before the pending token")[heads.behind]
            allowed = "the target" if heads.behind else "a model that is called for them"
            raise ValueError(
                f"{self.heads!r} reads states {state}; model is {self.model!r}, it must be"
                f" {allowed}"
            )
        if heads.sequential != self.sequential:
            allowed = "hydra or hydra_tree" if heads.sequential else "blockwise or medusa"
            raise ValueError(
                f"{self.heads!r} {'reads' if heads.sequential else 'does not read'} the tokens"
                f" before a head's own; its drafter must be {allowed}"
            )

    def _check_vocabulary(self, env: Env, heads: Heads | ResidualHeads) -> None:
        if not isinstance(heads, ResidualHeads) or heads.vocab_size is None:
            return
        ids = unwrapped(env[self.model].model).vocab_size
        if heads.vocab_size != ids:
            raise ValueError(
                f"{self.heads!r} was made for a model of {heads.vocab_size} ids; {self.model!r} has"
                f" {ids}"
            )

    def begin(self, env: Env, context: Context, prompt: PromptReading, keys: jax.Array) -> Memory:
        if not self.reads_target:
            return ()
        loaded = env.params[self.heads]
        dtype = jax.tree.leaves(loaded.params)[0].dtype
        state = jnp.zeros((context.length.shape[0], loaded.heads.d_model), dtype)
        if not prompt.features:
            return state
        last = pick_last(prompt.features[0], context.length - 1).astype(dtype)
        return of_rows(context.length > 1, last, state)

    def observe(self, memory: Memory, outcome: Outcome) -> Memory:
        if not self.reads_target:
            return ()
        (states,) = outcome.reading.features
        # The last token that was written is pending: the state is that of the one before it.
        return pick_last(stood(states, outcome.verdict), outcome.committed).astype(memory.dtype)

    def state(
        self, env: Env, caches: Caches, memory: Memory, context: Context
    ) -> tuple[jax.Array, Caches]:
        """The state [B, D] that heads read behind the text."""
        if self.reads_target:
            return memory, caches
        trunk = env[self.model]
        cache = catch_up(trunk, caches[self.model], context, self.lag)
        hidden, cache = last_hidden(trunk, cache, context, self.lag)
        return hidden, {**caches, self.model: cache}


def head_keys(keys: jax.Array, count: int) -> jax.Array:
    """Keys [B, count] of the heads from keys [B]."""
    return jax.vmap(fold, in_axes=(None, 0), out_axes=1)(keys, jnp.arange(count))


def drawn_apart(
    logits: jax.Array, context: Context, keys: jax.Array
) -> tuple[jax.Array, Distribution]:
    """Tokens [B, K], each from its own logits [B, K, V], and their laws; folds keys [B].

    Of settings they obey what the committed tokens say, and how long the text is.
    """
    logits = adjusting(context, logits.shape[-1]).in_parallel(logits)
    per_head = jax.vmap(propose, in_axes=(1, None, 1), out_axes=1)
    tokens, probs = per_head(logits, context.options.sampling, head_keys(keys, logits.shape[1]))
    return tokens, drawn_from(tokens, probs)
