"""What training minimises: functions of a batch that sum over its positions.

An objective is frozen and hashable. `sums` returns the summed loss and the number of positions, so
that micro-batches and devices add up to exactly the loss of the whole batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

import jax
import jax.numpy as jnp

from specjax.models.base import LanguageModel, Params
from specjax.models.heads import Heads
from specjax.training.loss import DIVERGENCES, cross_entropy

Batch = Mapping[str, jax.Array]


class Objective(Protocol):
    """A loss of a model on a batch."""

    def sums(
        self,
        model: LanguageModel,
        params: Params,
        frozen: Mapping[str, Params],
        batch: Batch,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        """Summed loss [] and number of positions []; `frozen` holds other models' parameters.

        `batch` has `labels` and `mask` [B, T] beside what `LanguageModel.teach` reads; `key` turns
        dropout on.
        """


def masked_sum(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Sum of values [B, T] where mask [B, T]; what is masked may be anything but NaN."""
    return jnp.sum(jnp.where(mask, values, 0.0))


@dataclasses.dataclass(frozen=True)
class CrossEntropy:
    """Cross-entropy with the labels, after the last layer or weighted over several.

    `exits` are 1-based decoder layers with the shared norm and head: BiLD's early exit trains the
    first and last with equal weights (docs/methods/early_exit.md), CALM all with weights i / sum
    (docs/methods/calm.md).
    """

    smoothing: float = 0.0
    exits: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()  # of the exits, summing to one; empty: equal

    def sums(
        self,
        model: LanguageModel,
        params: Params,
        frozen: Mapping[str, Params],
        batch: Batch,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        logits = model.teach(params, batch, key=key, exits=self.exits or None)
        weights = self.weights or (1.0 / len(logits),) * len(logits)
        losses = (
            weight * masked_sum(cross_entropy(one, batch["labels"], self.smoothing), batch["mask"])
            for weight, one in zip(weights, logits, strict=True)
        )
        return sum(losses), jnp.sum(batch["mask"])


def exit_weights(exits: tuple[int, ...], kind: str) -> tuple[float, ...]:
    """Weights of exits: "equal" (BiLD), or "linear" in the layer's number (CALM)."""
    parts = exits if kind == "linear" else (1,) * len(exits)
    return tuple(part / sum(parts) for part in parts)


@dataclasses.dataclass(frozen=True)
class Distillation:
    """Divergence of the model's law from a teacher's at every position.

    `teacher` runs on `frozen["teacher"]`; both laws are those at `temperature`. Vocabularies padded
    to different widths are compared on the common ids. `label_weight` mixes the cross-entropy with
    the labels in.
    """

    teacher: LanguageModel
    divergence: str = "forward_kl"  # a name of `loss.DIVERGENCES`
    temperature: float = 1.0
    label_weight: float = 0.0

    def sums(
        self,
        model: LanguageModel,
        params: Params,
        frozen: Mapping[str, Params],
        batch: Batch,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        (ours,) = model.teach(params, batch, key=key)
        (theirs,) = self.teacher.teach(frozen["teacher"], batch)
        width = min(model.vocab_size, self.teacher.vocab_size)
        p, q = (
            jax.nn.log_softmax(logits[..., :width] / self.temperature, axis=-1)
            for logits in (jax.lax.stop_gradient(theirs), ours)
        )
        loss = DIVERGENCES[self.divergence](p, q)
        if self.label_weight:
            labels = cross_entropy(ours, batch["labels"])
            loss = (1.0 - self.label_weight) * loss + self.label_weight * labels
        return masked_sum(loss, batch["mask"]), jnp.sum(batch["mask"])


@dataclasses.dataclass(frozen=True)
class Blockwise:
    """Cross-entropy of parallel heads, each with the label at its own offset (Stern et al. 2018).

    Head j at position t learns `labels[t + j - 1]` where both positions are of the output. The loss
    is the mean over all such (position, head) pairs. `params` is `{"trunk": ..., "heads": ...}`;
    with a frozen trunk it is the heads' tree alone, and `frozen["trunk"]` runs without dropout.
    """

    heads: Heads
    trunk_trained: bool

    def sums(
        self,
        model: LanguageModel,
        params: Params,
        frozen: Mapping[str, Params],
        batch: Batch,
        key: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array]:
        if self.trunk_trained:
            trunk, heads = params["trunk"], params["heads"]
        else:
            trunk, heads, key = jax.lax.stop_gradient(frozen["trunk"]), params, None
        hidden = model.states(trunk, batch, key=key)
        total, count = jnp.float32(0), jnp.int32(0)
        # One head after another: the logits of all of them at once would be [B, T, k, V].
        for head in range(1, self.heads.count + 1):
            logits = model.read_out(trunk, self.heads.state(heads, hidden, head))
            labels, mask = (ahead(batch[name], head - 1) for name in ("labels", "mask"))
            mask &= batch["mask"]
            total += masked_sum(cross_entropy(logits, labels), mask)
            count += jnp.sum(mask)
        return total, count


def ahead(values: jax.Array, offset: int) -> jax.Array:
    """values[b, t + offset] of values [B, T]; zero, or False, beyond the end."""
    return jnp.pad(values, ((0, 0), (0, offset)))[:, offset:]
