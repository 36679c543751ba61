"""Weights of a draft's tokens by what the drafter itself says; no gradient goes through them.

Lists have one array [B, N] for each token of drafts, in their order. The next token of a draft is
`apart` places on: 1 where places are those of the tokens in the text, 0 where each is of one draft;
then later arrays may lack the last drafts.
Tokens outside of its mask neither count nor reduce the weights of others.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from specjax.training.objective import shift_left, shift_right

DECAY, PREFIX, DPACE = WEIGHTINGS = ("decay", "prefix", "dpace")


def prefix_weights(
    acceptances: Sequence[jax.Array], masks: Sequence[jax.Array], apart: int
) -> list[jax.Array]:
    """The chance that all tokens before are accepted: prod_{j<k} a_j.

    Each a_j is the acceptance rate of token j where those before it are the text's.
    """
    reached = jnp.ones(acceptances[0].shape, jnp.float32)
    weights = []
    for accepted, mask in zip(acceptances, masks, strict=True):
        reached = reached[:, : mask.shape[1]]
        weights.append(reached)
        accepted = jax.lax.stop_gradient(accepted)
        reached = shift_right(reached * jnp.where(mask, accepted, 1.0), apart)
    return weights


def dpace_weights(
    chances: Sequence[jax.Array], masks: Sequence[jax.Array], apart: int, alpha: float = 0.5
) -> list[jax.Array]:
    """D-PACE: w_k = sum_{j>=k} P_j with P_k = prod_{j<=k} s_j and s_j = (1 - alpha) q_j + alpha.

    `chances` are the drafter's probabilities q_j of the labels.
    """
    reached = jnp.ones(chances[0].shape, jnp.float32)
    products = []
    for chance, mask in zip(chances, masks, strict=True):
        smooth = (1.0 - alpha) * jax.lax.stop_gradient(chance) + alpha
        reached = reached[:, : mask.shape[1]] * jnp.where(mask, smooth, 1.0)
        products.append(jnp.where(mask, reached, 0.0))
        reached = shift_right(reached, apart)
    weights, after = [], jnp.zeros_like(reached)
    for product in reversed(products):
        lacking = product.shape[1] - after.shape[1]
        after = product + shift_left(jnp.pad(after, ((0, 0), (0, lacking))), apart)
        weights.append(after)
    return weights[::-1]
