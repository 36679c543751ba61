"""Parallel heads: each predicts the token at its own distance (Stern et al. 2018)."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.registry import OBJECTIVES
from specjax.models.base import LanguageModel, Params
from specjax.models.heads import Heads
from specjax.training.loss import cross_entropy
from specjax.training.objective import (
    TRUNK,
    Frozen,
    Objective,
    TrainingBatch,
    masked_sum,
    shift_left,
)

FROZEN, TRAINED = "frozen", "trained"


@OBJECTIVES.register("blockwise", example={"heads": 2})
@dataclasses.dataclass(frozen=True)
class Blockwise(Objective[LanguageModel]):
    """Cross-entropy of parallel heads on a model, each with the label at its own offset.

    Head j at position t learns `labels[t + j - 1]` where both positions are of the output. The loss
    is the mean over all such (position, head) pairs. A frozen trunk runs without dropout.
    """

    heads: int = fields.integer(4, help="tokens that one call of the trunk proposes")
    head_width: int = fields.integer(
        0, least=0, help="width of each head's network; 0: the model's own"
    )
    trunk: str = fields.choice((FROZEN, TRAINED), FROZEN, help="the model below the heads")

    @property
    def trains_model(self) -> bool:
        return self.trunk == TRAINED

    def heads_on(self, model: LanguageModel) -> Heads:
        width = model.config.d_model
        return Heads(self.heads, width, self.head_width or width)

    def sums(
        self,
        model: LanguageModel,
        params: Params,
        frozen: Frozen,
        batch: TrainingBatch,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        if self.trains_model:
            trunk, heads = params["trunk"], params["heads"]
        else:
            trunk, heads, key = jax.lax.stop_gradient(frozen[TRUNK].params), params, None
        shape, hidden = self.heads_on(model), model.states(trunk, batch, key=key)
        total, count = jnp.float32(0), jnp.int32(0)
        # One head after another: the logits of all of them at once would be [B, T, k, V].
        for head in range(1, self.heads + 1):
            logits = model.read_out(trunk, shape.compute_state(heads, hidden, head))
            labels, mask = (shift_left(batch[name], head - 1) for name in ("labels", "mask"))
            mask &= batch["mask"]
            total += masked_sum(cross_entropy(logits, labels), mask)
            count += jnp.sum(mask)
        return total, count
