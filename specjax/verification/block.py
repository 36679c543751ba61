"""Block verification: accepts the draft jointly (docs/methods/block_verification.md).

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
    compute_overlap,
    draw_uniform,
    match_greedily,
    split_keys,
)


@RULES.register("block")
@dataclasses.dataclass(frozen=True)
class BlockVerification(Rule):
    """Lossless joint verification of a draft, which accepts as many tokens as possible.

    It accepts at least as many tokens as `lossless` on average, and as many for one-hot drafts.
    Greedy drafts are matched token by token.
    """

    lossless = True

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        if options.sampling.greedy:
            return match_greedily(draft, reading.logits)
        return verify_block(draft, adjust(reading.logits, options.sampling), keys)


def verify_block(draft: Draft, p: Float[Array, "B K1 V"], keys: Key[Array, " B"]) -> Verdict:
    """Verifies a draft against the target's distributions p [B, K+1, V]."""
    accept_keys, draw_keys = split_keys(keys)
    weights = compute_prefix_weights(draft, p)
    passed = draw_uniform(accept_keys, draft.width) < compute_acceptance_probs(draft, p, weights)
    lengths = jnp.arange(1, draft.width + 1)
    accepted = jnp.max(jnp.where(passed, lengths, 0), axis=1, initial=0)
    own = draw(draw_keys, compute_residual(draft, p, weights, accepted))
    return make_verdict(draft, accepted, own, compute_overlap(draft, p, accepted))


def compute_prefix_weights(draft: Draft, p: Float[Array, "B K1 V"]) -> Float[Array, "B K1"]:
    """Computes P_0 ... P_K [B, K+1]: P_0 = 1, P_i = min(1, P_{i-1} p(x_i) / q(x_i))."""
    p_drafted, q_drafted = (
        Categorical(p[:, :-1]).prob(draft.tokens),
        draft.distribution.prob(draft.tokens),
    )
    # Drawn tokens have q > 0; entries after a draft's end are ignored, but must not be NaN.
    ratio = p_drafted / jnp.maximum(q_drafted, jnp.finfo(jnp.float32).tiny)

    def step(weight: jax.Array, ratio: jax.Array) -> tuple[jax.Array, jax.Array]:
        weight = jnp.minimum(1.0, weight * ratio)
        return weight, weight

    first = jnp.ones(draft.length.shape, jnp.float32)
    _, rest = jax.lax.scan(step, first, ratio.T, unroll=True)
    return jnp.concatenate([first[:, None], rest.T], axis=1)


def compute_acceptance_probs(
    draft: Draft, p: Float[Array, "B K1 V"], weights: Float[Array, "B K1"]
) -> Float[Array, "B K"]:
    """Computes h_i [B, K], the probability to accept i tokens if no more are accepted.

    h_i = S_i / (S_i + 1 - P_i) with S_i = sum_x [P_i p(x) - q(x)]_+, and P_i for the whole draft.
    """
    inner = weights[:, 1:-1]  # P_1 ... P_{K-1}
    scaled = weights[:, :-1, None] * p[:, :-1]
    rest = draft.distribution.excess(scaled)[:, 1:]
    total = rest + (1.0 - inner)
    within = jnp.where(total > 0.0, rest / jnp.where(total > 0.0, total, 1.0), 1.0)
    position, length = jnp.arange(1, draft.width + 1), draft.length[:, None]
    within = jnp.pad(within, ((0, 0), (0, 1)))
    return jnp.where(position < length, within, jnp.where(position == length, weights[:, 1:], 0.0))


def compute_residual(
    draft: Draft,
    p: Float[Array, "B K1 V"],
    weights: Float[Array, "B K1"],
    accepted: Int[Array, " B"],
) -> Float[Array, "B V"]:
    """Weights [B, V] of the correction [P_i p - q]_+, or of the bonus token, p.

    As in `lossless`, a residual of rounding errors is replaced by p.
    """
    at_p = pick(p, accepted)
    if draft.width == 0:
        return at_p
    rest = draft.distribution.residual(pick(weights, accepted)[:, None] * at_p, accepted)
    corrected = (accepted < draft.length) & (jnp.sum(rest, axis=-1) > NO_RESIDUAL)
    return jnp.where(corrected[:, None], rest, at_p)
