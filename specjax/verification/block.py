"""Block verification: the draft is judged as a whole (docs/methods/block_verification.md).

Sun et al., "Block Verification Accelerates Speculative Decoding" (2024), Algorithm 2.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from specjax.contracts.context import Options
from specjax.contracts.distribution import NO_RESIDUAL, Categorical, pick
from specjax.contracts.draft import Draft
from specjax.contracts.registry import RULES
from specjax.contracts.rule import Reading, Rule, Verdict, make_verdict
from specjax.sampling import adjust, draw
from specjax.verification.speculative_sampling import (
    greedy_match,
    overlap,
    split,
    uniform,
)


@RULES.register("block")
@dataclasses.dataclass(frozen=True)
class BlockVerification(Rule):
    """The target's distribution, with the longest part of the draft that may stand.

    No fewer tokens than `lossless` on average. A draft of certain tokens gains nothing, and a
    greedy one is matched token by token.
    """

    lossless = True

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        if options.sampling.greedy:
            return greedy_match(draft, reading.logits)
        return block_match(draft, adjust(reading.logits, options.sampling), keys)


def block_match(draft: Draft, p: Float[Array, "B K1 V"], keys: Key[Array, " B"]) -> Verdict:
    """Judges a draft against p [B, K+1, V], the target's distributions at its positions."""
    accept_keys, draw_keys = split(keys)
    weights = prefix_weights(draft, p)
    stands = uniform(accept_keys, draft.width) < block_chances(draft, p, weights)
    lengths = jnp.arange(1, draft.width + 1)
    accepted = jnp.max(jnp.where(stands, lengths, 0), axis=1, initial=0)
    own = draw(draw_keys, residual(draft, p, weights, accepted))
    return make_verdict(draft, accepted, own, overlap(draft, p, accepted))


def prefix_weights(draft: Draft, p: Float[Array, "B K1 V"]) -> Float[Array, "B K1"]:
    """P_0 ... P_K [B, K+1]: P_0 = 1 and P_i = min(1, P_{i-1} p(x_i) / q(x_i))."""
    p_drafted, q_drafted = (
        Categorical(p[:, :-1]).of(draft.tokens),
        draft.distribution.of(draft.tokens),
    )
    # What was drawn has q > 0; entries behind a draft's end mean nothing, but must not be NaN.
    ratio = p_drafted / jnp.maximum(q_drafted, jnp.finfo(jnp.float32).tiny)

    def step(weight: jax.Array, ratio: jax.Array) -> tuple[jax.Array, jax.Array]:
        weight = jnp.minimum(1.0, weight * ratio)
        return weight, weight

    first = jnp.ones(draft.length.shape, jnp.float32)
    _, rest = jax.lax.scan(step, first, ratio.T, unroll=True)
    return jnp.concatenate([first[:, None], rest.T], axis=1)


def block_chances(
    draft: Draft, p: Float[Array, "B K1 V"], weights: Float[Array, "B K1"]
) -> Float[Array, "B K"]:
    """h_1 ... h_K [B, K]: the chance that the first i tokens stand, if no longer part does.

    h_i = S_i / (S_i + 1 - P_i) with S_i = sum_x [P_i p(x) - q(x)]_+, and P_i for the whole draft.
    """
    inner = weights[:, 1:-1]  # P_1 ... P_{K-1}
    scaled = weights[:, :-1, None] * p[:, :-1]
    rest = draft.distribution.excess(scaled)[:, 1:]
    falls = rest + (1.0 - inner)
    within = jnp.where(falls > 0.0, rest / jnp.where(falls > 0.0, falls, 1.0), 1.0)
    position, length = jnp.arange(1, draft.width + 1), draft.length[:, None]
    within = jnp.pad(within, ((0, 0), (0, 1)))
    return jnp.where(position < length, within, jnp.where(position == length, weights[:, 1:], 0.0))


def residual(
    draft: Draft,
    p: Float[Array, "B K1 V"],
    weights: Float[Array, "B K1"],
    accepted: Int[Array, " B"],
) -> Float[Array, "B V"]:
    """Weights [B, V] of the token after `accepted` drafted ones: [P_i p - q]_+, or p for the bonus.

    As in `lossless`, p itself where nothing is left but rounding.
    """
    at_p = pick(p, accepted)
    if draft.width == 0:
        return at_p
    rest = draft.distribution.residual(pick(weights, accepted)[:, None] * at_p, accepted)
    corrected = (accepted < draft.length) & (jnp.sum(rest, axis=-1) > NO_RESIDUAL)
    return jnp.where(corrected[:, None], rest, at_p)
