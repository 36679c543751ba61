"""Blockwise parallel drafting: one model call gives the laws of all drafted tokens.

Stern et al. (2018), as a drafter of speculative sampling (docs/methods/blockwise.md). Tokens are
drawn independently given the prefix, which the lossless rules allow: they test each token against
the law it was drawn from.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from specjax.drafting.base import (
    LENGTH,
    Caches,
    Call,
    Context,
    Draft,
    Models,
    fold,
    lookup,
    propose,
    until_eos,
)
from specjax.drafting.sync import catch_up, last_hidden
from specjax.models.heads import LoadedHeads


@dataclasses.dataclass(frozen=True)
class Blockwise:
    """Drafts `length` tokens with one call of the trunk called `model` and its first heads.

    `heads` names the `LoadedHeads` in `params`.
    """

    model: str
    length: int
    heads: str = "heads"

    @property
    def width(self) -> int:
        return self.length

    @property
    def reach(self) -> int:
        return self.length

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,)

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.heads,)

    @property
    def writers(self) -> tuple[str, ...]:
        return (self.model,)

    @property
    def schedule(self) -> tuple[Call, ...]:
        return (Call(self.model, self._lag, self.length),)

    @property
    def _lag(self) -> int:
        """Tokens fed: after a fully accepted draft the trunk has seen neither it nor the bonus."""
        return self.length + 1

    def check(self, models: Models, params: Mapping[str, Any]) -> None:
        """Refuses heads that do not fit.

        Raises:
          ValueError: when there are fewer heads than `length`, or they were made for another
            width.
        """
        loaded = params[self.heads]
        if not isinstance(loaded, LoadedHeads):
            raise ValueError(f"{self.heads!r} is a {type(loaded).__name__}; it must be LoadedHeads")
        heads = loaded.heads
        if self.length > heads.count:
            raise ValueError(
                f"length is {self.length}; {self.heads!r} holds {heads.count} heads, so it must be"
                f" at most {heads.count}"
            )
        width = lookup(models, self.model).config.d_model
        if heads.d_model != width:
            raise ValueError(
                f"{self.heads!r} was made for a model of width {heads.d_model}; {self.model!r} has"
                f" {width}"
            )

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        model, weights = lookup(models, self.model), params[self.model]
        cache = catch_up(model, weights, caches[self.model], context, self._lag)
        hidden, cache = last_hidden(model, weights, cache, context, self._lag)
        loaded = params[self.heads]
        used = dataclasses.replace(loaded.heads, count=self.length)
        logits = model.read_out(weights, used.states(loaded.params, hidden))
        each = jax.vmap(fold, in_axes=(None, 0), out_axes=1)(keys, jnp.arange(self.length))
        per_head = jax.vmap(propose, in_axes=(1, None, 1), out_axes=1)
        tokens, laws = per_head(logits, context.options.sampling, each)
        draft = Draft(
            tokens=tokens,
            length=jnp.minimum(until_eos(tokens, model.eos), context.room),
            probs=laws,
            source=jnp.zeros_like(tokens),
            calls={self.model: context.active.astype(jnp.int32)},
            stop_reason=jnp.full(context.length.shape, LENGTH, jnp.int32),
        )
        return draft, {**caches, self.model: cache}
