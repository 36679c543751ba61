"""A drafter that learns between rounds: a bias on its logits, moved towards the target.

The gradient of a divergence between the target's distribution p and the drafter's q, at the
positions that the last round put to the test (docs/methods/online.md; the idea of Liu et al.,
"Online Speculative Decoding" (2023), within a text). Every row learns for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts import fields
from specjax.contracts.drafter import Outcome

RATE = "online_rate"
"""Option: how far the bias moves against the gradient of a tested position."""

DIVERGENCE = "online_divergence"


def forward_kl_gradient(p: jax.Array, q: jax.Array) -> jax.Array:
    """Gradient [..., V] of KL(p || q) by the logits of q.

    Both are probabilities [..., V]; p may lack mass where q can have none.
    """
    return q * jnp.sum(p, axis=-1, keepdims=True) - p


def total_variation_gradient(p: jax.Array, q: jax.Array) -> jax.Array:
    """Gradient [..., V] of half the L1 distance by the logits of q."""
    away = jnp.sign(q - p)
    return 0.5 * q * (away - jnp.sum(away * q, axis=-1, keepdims=True))


GRADIENTS = {
    "forward_kl": forward_kl_gradient,
    "total_variation": total_variation_gradient,
}
"""By the names that training has for the divergences (`training.loss`)."""

DEFAULT = "forward_kl"


def rate_field() -> Any:
    """The config field of the rate; without one nothing is learned."""
    return fields.number(
        None,
        bounds="[0, inf)",
        traced=RATE,
        help="step of what each row learns between rounds; off: nothing",
    )


def divergence_field() -> Any:
    """The config field of what the steps lessen."""
    said = "divergence from the target that the steps lessen"
    return fields.choice(tuple(GRADIENTS), DEFAULT, help=said)


def check_online(values: Mapping[str, Any]) -> None:
    """Refuses a divergence where nothing is learned.

    Raises:
      ValueError: naming the field.
    """
    if DIVERGENCE in values and RATE not in values:
        raise ValueError(f"{DIVERGENCE} needs {RATE}, without which nothing is learned")


class Learned(struct.PyTreeNode):
    """What every row has learned, and what it drafted from in the last round."""

    bias: jax.Array  # [B, V] float32, added to the drafter's logits
    drafted: jax.Array  # [B, K, V] float32: plain probabilities, the bias included

    def after(self, outcome: Outcome, divergence: str) -> Learned:
        """With a step for the positions of a round that were tested; the others say nothing.

        Behind a rejected token the target has read a text that it did not write.
        """
        width = self.drafted.shape[1]
        p = jax.nn.softmax(outcome.reading.logits[:, :width], axis=-1)
        p = jnp.where(self.drafted > 0, p, 0.0)  # ids that the drafter cannot say
        gradient = GRADIENTS[divergence](p, self.drafted)
        tested = jnp.arange(width) < outcome.tested[:, None]
        step = jnp.sum(jnp.where(tested[..., None], gradient, 0.0), axis=1)
        return self.replace(bias=self.bias - outcome.context.options.numbers[RATE] * step)


def empty_learned(rows: int, width: int, vocabulary: int) -> Learned:
    """Before the first round of drafts of up to `width` tokens."""
    return Learned(
        jnp.zeros((rows, vocabulary), jnp.float32),
        jnp.zeros((rows, width, vocabulary), jnp.float32),
    )
