"""Acceptance by position of drafts on a text, which drafters on the target are measured by.

`acceptance_t_at_k` is the rate at which token k of a draft stands at temperature t, 0 or 1, where
those before it are the text's; `tokens_0` the mean number of tokens of a greedy round that begins
anywhere in the text.
"""

from __future__ import annotations

from collections.abc import Iterable

import jax
import jax.numpy as jnp

from specjax.training.objective import masked_sum, shift_right

Step = tuple[jax.Array, jax.Array, jax.Array]
"""Of token k of drafts, by place [B, T]: whether it is the target's own greedily, the chance that
it stands at temperature 1, and whether the place counts."""


def figures(steps: int) -> tuple[str, ...]:
    """Their names, for drafts of so many tokens."""
    places = range(1, steps + 1)
    return "tokens_0", *(f"acceptance_{t}_at_{place}" for t in (0, 1) for place in places)


def overlap(p: jax.Array, logits: jax.Array) -> jax.Array:
    """sum_x min(p, q) [B, T] of probabilities p [B, T, U] and logits [B, T, U] of q."""
    return jnp.sum(jnp.minimum(p, jax.nn.softmax(logits, axis=-1)), axis=-1)


def measured(steps: Iterable[Step], apart: int = 1) -> dict[str, tuple[jax.Array, jax.Array]]:
    """Sum [] and count [] of every figure; one step's arrays are needed at a time.

    The next token of a draft is `apart` places on: 1 where places are those of the tokens in the
    text, 0 where each is of one draft.
    """
    made, stood, tokens, rounds = {}, None, jnp.int32(0), jnp.int32(0)
    for place, (hits, chance, mask) in enumerate(steps, start=1):
        count = jnp.sum(mask)
        made[f"acceptance_0_at_{place}"] = masked_sum(hits, mask), count
        made[f"acceptance_1_at_{place}"] = masked_sum(chance, mask), count
        if stood is None:
            stood, tokens, rounds = mask, count, count
        else:
            stood = shift_right(stood, apart)
        stood = stood & hits & mask
        tokens += jnp.sum(stood)
    return {"tokens_0": (tokens, rounds), **made}
