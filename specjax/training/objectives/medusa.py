"""Parallel heads on the target's own states: its distributions, each at its own distance.

Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads"
(2024), section 2.2.1, "Medusa-1": the target is frozen (docs/methods/medusa.md).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.registry import OBJECTIVES
from specjax.models.base import LanguageModel, Params
from specjax.models.heads import Heads
from specjax.sampling import argmax
from specjax.training import acceptance
from specjax.training.divergence import DivergenceFields
from specjax.training.loss import from_target, one_by_one
from specjax.training.objective import (
    TRUNK,
    Frozen,
    Objective,
    TrainingBatch,
    shift_right,
)

ACTIVATION = "silu"
"""Activation of the networks, as published."""


@OBJECTIVES.register("medusa", example={"heads": 2})
@dataclasses.dataclass(frozen=True)
class Medusa(DivergenceFields, Objective[LanguageModel]):
    """Divergence of parallel heads on the target from it, head j with weight decay**(j - 1).

    Head j drafts token t from the target's state j + 1 tokens before it, which was known when the
    token j before it was pending; from zeros if there is no such token.
    """

    on_target: ClassVar[bool] = True
    sequential: ClassVar[bool] = False
    """Whether heads read the text's previous tokens in place of drafted ones."""

    heads: int = fields.integer(4, help="tokens that are drafted from one state")
    head_width: int = fields.integer(
        0, least=0, help="width of each head's network; 0: the model's own"
    )
    decay: float = fields.number(0.8, bounds="(0, 1]", help="weight of a head by that before it")

    @property
    def trains_model(self) -> bool:
        return False

    def figures(self, model: LanguageModel) -> tuple[str, ...]:
        return acceptance.figures(self.heads)

    def heads_on(self, model: LanguageModel) -> Heads:
        width = model.config.d_model
        return Heads(
            self.heads, width, self.head_width or width, ACTIVATION,
            state_lag=1, sequential=self.sequential, normed=model.info.drops_scale,
        )  # fmt: skip

    def sums(
        self,
        model: LanguageModel,
        params: Params,
        frozen: Frozen,
        batch: TrainingBatch,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        target, hidden, p, _ = self._target(model, frozen, batch)
        states, masks = self._drafts(model, target, params, batch, hidden)
        decayed = self.decay ** jnp.arange(self.heads, dtype=jnp.float32)

        def loss(state: jax.Array, weights: jax.Array) -> jax.Array:
            more = self.arguments(batch["labels"], weights > 0)
            far = from_target(self.divergence, p, model.read_out(target, state), **more)
            return jnp.sum(jnp.where(weights > 0, weights * far, 0.0))

        # The logits of all heads at once would be [B, T, k, V].
        total = one_by_one(loss, states, decayed[:, None, None] * masks)
        return total / jnp.sum(decayed), jnp.sum(batch["mask"])

    def measure(
        self, model: LanguageModel, params: Params, frozen: Frozen, batch: TrainingBatch
    ) -> dict[str, tuple[jax.Array, jax.Array]]:
        target, hidden, p, best = self._target(model, frozen, batch)
        states, masks = self._drafts(model, target, params, batch, hidden)

        def measure_head(state: jax.Array) -> tuple[jax.Array, jax.Array]:
            logits = model.read_out(target, state)
            return argmax(logits) == best, acceptance.overlap(p, logits)

        return acceptance.measure_acceptance(
            zip(*jax.lax.map(measure_head, states), masks, strict=True)
        )

    def _target(
        self, model: LanguageModel, frozen: Frozen, batch: TrainingBatch
    ) -> tuple[Params, jax.Array, jax.Array, jax.Array]:
        """Target parameters, states [B, T, D], probabilities [B, T, V], top ids [B, T]."""
        target = jax.lax.stop_gradient(frozen[TRUNK].params)
        hidden = model.states(target, batch)
        logits = model.read_out(target, hidden)
        return target, hidden, jax.nn.softmax(logits, axis=-1), argmax(logits)

    def _drafts(
        self,
        model: LanguageModel,
        target: Params,
        params: Params,
        batch: TrainingBatch,
        hidden: jax.Array,
    ) -> tuple[jax.Array, jax.Array]:
        """States [k, B, T, D] of all heads, aligned with the target's distributions.

        Also a mask [k, B, T] of the positions whose draft began inside of the output.
        """
        shape, mask, drafts = self.heads_on(model), batch["mask"], []
        embedded = model.embed(target, batch["inputs"]) if self.sequential else None
        for head in range(1, self.heads + 1):
            tokens = None
            if embedded is not None:
                # The pending token comes first, `head - 1` positions before the last token the head
                # reads.
                places = range(head - 1, -1, -1)
                tokens = jnp.stack([shift_right(embedded, place) for place in places], axis=-2)
            state = shift_right(hidden, head - 1 + shape.state_lag)
            state = shape.compute_state(params, state, head, tokens)
            drafts.append((state, mask & shift_right(mask, head - 1)))
        states, masks = zip(*drafts, strict=True)
        return jnp.stack(states), jnp.stack(masks)
