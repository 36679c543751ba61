"""Online adaptation between rounds: a bias on the drafter's logits, moved towards the target.

Follows the gradient of a divergence between the target's distribution p and the drafter's q, at the
positions that the last round tested (docs/methods/online.md; the idea of Liu et al., "Online
Speculative Decoding" (2023), within a text). Every row learns for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts import fields
from specjax.contracts.drafter import Outcome
from specjax.sampling import find_largest

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


LEAST_ACCEPTANCE, KL_DECAY, TOP_K, CE_WEIGHT, L1_WEIGHT = 1e-5, 3.0, 10, 0.1, 0.9
"""Numbers of the acceptance-aware losses: the defaults of training (`training.divergence`)."""


def lk_alpha_gradient(p: jax.Array, q: jax.Array) -> jax.Array:
    """Gradient [..., V] of -log sum min(p, q) by the logits of q."""
    return total_variation_gradient(p, q) / jnp.maximum(_acceptance_rate(p, q), LEAST_ACCEPTANCE)


def lk_lambda_gradient(p: jax.Array, q: jax.Array) -> jax.Array:
    """Gradient [..., V] of KL and total variation, mixed by each position's acceptance rate."""
    share = jnp.exp(-KL_DECAY * _acceptance_rate(p, q))
    return share * forward_kl_gradient(p, q) + (1 - share) * total_variation_gradient(p, q)


def _acceptance_rate(p: jax.Array, q: jax.Array) -> jax.Array:
    return jnp.sum(jnp.minimum(p, q), axis=-1, keepdims=True)


def top_k_gradient(p: jax.Array, q: jax.Array) -> jax.Array:
    """Gradient [..., V] of the cross-entropy over the `TOP_K` most probable ids of p."""
    ids = find_largest(p, min(TOP_K, p.shape[-1]))
    best = jnp.take_along_axis(p, ids, axis=-1)
    kept = jnp.put_along_axis(jnp.zeros_like(p), ids, best, axis=-1, inplace=False)
    return forward_kl_gradient(kept, q)


def tv_ce_gradient(p: jax.Array, q: jax.Array, written: jax.Array) -> jax.Array:
    """Gradient [..., V] of the L1 distance and the cross-entropy with the written tokens [...]."""
    text = jnp.where(q > 0, jax.nn.one_hot(written, q.shape[-1]), 0.0)
    distance = 2 * total_variation_gradient(p, q)
    return CE_WEIGHT * forward_kl_gradient(text, q) + L1_WEIGHT * distance


TV_CE = "tv_ce"

GRADIENTS = {
    "forward_kl": forward_kl_gradient,
    "total_variation": total_variation_gradient,
    "lk_alpha": lk_alpha_gradient,
    "lk_lambda": lk_lambda_gradient,
    TV_CE: tv_ce_gradient,
    "top_k": top_k_gradient,
}
"""Gradients by the names of the divergences in `training.loss`."""

DEFAULT = "forward_kl"


def rate_field() -> Any:
    """The config field of the learning rate; without one nothing is learned."""
    return fields.number(
        None,
        bounds="[0, inf)",
        traced=RATE,
        help="step of what each row learns between rounds; off: nothing",
    )


def divergence_field() -> Any:
    """The config field of the divergence that the steps reduce."""
    text = "divergence from the target that the steps reduce"
    return fields.choice(tuple(GRADIENTS), DEFAULT, help=text)


def check_online(values: Mapping[str, Any]) -> None:
    """Refuses a divergence where nothing is learned.

    Raises:
      ValueError: naming the field.
    """
    if DIVERGENCE in values and RATE not in values:
        raise ValueError(f"{DIVERGENCE} needs {RATE}, without which nothing is learned")


class LearnedBias(struct.PyTreeNode):
    """The learned bias of every row, and its draft distributions of the last round."""

    bias: jax.Array  # [B, V] float32, added to the drafter's logits
    drafted: jax.Array  # [B, K, V] float32: plain probabilities, the bias included

    def after(self, outcome: Outcome, divergence: str) -> LearnedBias:
        """Takes a step for the tested positions of a round and ignores the others.

        After a rejected token the target has read a text that it did not write.
        """
        width = self.drafted.shape[1]
        p = jax.nn.softmax(outcome.reading.logits[:, :width], axis=-1)
        p = jnp.where(self.drafted > 0, p, 0.0)  # ids that the drafter cannot propose
        written = (outcome.verdict.tokens[:, :width],) if divergence == TV_CE else ()
        gradient = GRADIENTS[divergence](p, self.drafted, *written)
        tested = jnp.arange(width) < outcome.tested[:, None]
        step = jnp.sum(jnp.where(tested[..., None], gradient, 0.0), axis=1)
        return self.replace(bias=self.bias - outcome.context.options.numbers[RATE] * step)


def empty_learned(rows: int, width: int, vocabulary: int) -> LearnedBias:
    """The state before the first round of drafts of up to `width` tokens."""
    return LearnedBias(
        jnp.zeros((rows, vocabulary), jnp.float32),
        jnp.zeros((rows, width, vocabulary), jnp.float32),
    )
