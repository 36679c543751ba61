"""Acceptance by draft position on a text, the score of drafters on the target.

`acceptance_t_at_k` is the acceptance rate of token k of a draft at temperature t, 0 or 1, given
that the tokens before it are the text's. `tokens_0` is the mean number of tokens of a greedy round
that begins anywhere in the text.
"""

from __future__ import annotations

from collections.abc import Iterable

import jax
import jax.numpy as jnp

from specjax.training.objective import masked_sum, shift_right

Step = tuple[jax.Array, jax.Array, jax.Array]
"""For token k of drafts, by position [B, T]: whether it is the target's greedy token, its
acceptance probability at temperature 1, and whether the position counts."""


def figures(steps: int) -> tuple[str, ...]:
    """Names of the figures for drafts of `length` tokens."""
    places = range(1, steps + 1)
    return "tokens_0", *(f"acceptance_{t}_at_{place}" for t in (0, 1) for place in places)


def overlap(p: jax.Array, logits: jax.Array) -> jax.Array:
    """sum_x min(p, q) [B, T] of probabilities p [B, T, U] and logits [B, T, U] of q."""
    return jnp.sum(jnp.minimum(p, jax.nn.softmax(logits, axis=-1)), axis=-1)


def measure_acceptance(
    steps: Iterable[Step], apart: int = 1
) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Sum [] and count [] of every figure; needs the arrays of one step at a time.

    The next token of a draft is `apart` positions later: 1 if positions are those of tokens in the
    text, 0 if each position belongs to one draft; then later steps may lack the last drafts.
    """
    made, accepted, tokens, rounds = {}, None, jnp.int32(0), jnp.int32(0)
    for place, (hits, chance, mask) in enumerate(steps, start=1):
        count = jnp.sum(mask)
        made[f"acceptance_0_at_{place}"] = masked_sum(hits, mask), count
        made[f"acceptance_1_at_{place}"] = masked_sum(chance, mask), count
        if accepted is None:
            accepted, tokens, rounds = mask, count, count
        else:
            accepted = shift_right(accepted[:, : mask.shape[1]], apart)
        accepted = accepted & hits & mask
        tokens += jnp.sum(accepted)
    return {"tokens_0": (tokens, rounds), **made}
