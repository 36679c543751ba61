"""Lossless rules: token matching when greedy, speculative sampling otherwise.

Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding" (2023),
Algorithm 1 (docs/methods/speculative_sampling.md).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from specjax.contracts.context import Options
from specjax.contracts.distribution import NO_RESIDUAL, Categorical, Distribution, OneHot, pick
from specjax.contracts.draft import Draft
from specjax.contracts.registry import RULES
from specjax.contracts.rule import (
    NestableRule,
    Reading,
    Verdict,
    count_leading,
    count_tested,
    make_verdict,
)
from specjax.sampling import adjust, argmax, draw
from specjax.verification.tree import match_tree_by_sampling, match_tree_greedily


@RULES.register("lossless")
@dataclasses.dataclass(frozen=True)
class SpeculativeSampling(NestableRule):
    """Accepts x with probability min(1, p(x)/q(x)); greedily iff x is the argmax.

    A rejected token is replaced by a draw from norm([p - q]_+). At temperature 0 the rule compares
    tokens and never builds a distribution.
    """

    lossless = True
    trees = True

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        if draft.parents is not None:
            return self._judge_tree(draft, reading, options, keys)
        if options.sampling.greedy:
            return match_greedily(draft, reading.logits)
        return match_by_sampling(draft, adjust(reading.logits, options.sampling), 1.0, keys)

    def _judge_tree(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        if options.sampling.greedy:
            return match_tree_greedily(draft, reading.logits)
        accept_keys, draw_keys = split_keys(keys)
        p = adjust(reading.logits, options.sampling)
        return match_tree_by_sampling(draft, p, draw_uniform(accept_keys, draft.width), draw_keys)

    def distribution(self, draft: Draft, reading: Reading, options: Options) -> Distribution:
        if options.sampling.greedy:
            return OneHot(argmax(reading.logits))
        return Categorical(adjust(reading.logits, options.sampling))


def match_greedily(draft: Draft, logits: Float[Array, "B K1 V"]) -> Verdict:
    """Accepts drafted tokens while they equal the target's argmax."""
    best = argmax(logits)
    accepted = count_leading(draft.tokens == best[:, :-1], draft.length)
    return make_verdict(draft, accepted, pick(best, accepted))


def match_by_sampling(
    draft: Draft,
    p: Float[Array, "B K1 V"],
    lenience: Float[Array, "B K"] | Float[Array, ""] | float,
    keys: Key[Array, " B"],
) -> Verdict:
    """Verifies a draft against p [B, K+1, V] by speculative sampling.

    Accepts iff `r * lenience * q(x) < p(x)`, r uniform, without a division: q <= p is always
    accepted, p = 0 never. `lenience` is a number or [B, K]; 1 is lossless
    (docs/methods/lenience.md).
    """
    accept_keys, draw_keys = split_keys(keys)
    p_drafted = _get_drafted_probs(p, draft)
    q_drafted = draft.distribution.prob(draft.tokens)
    drawn = draw_uniform(accept_keys, draft.width)
    accepted = count_leading(drawn * lenience * q_drafted < p_drafted, draft.length)
    own = draw(draw_keys, compute_residual(draft, p, accepted))
    return make_verdict(draft, accepted, own, compute_overlap(draft, p, accepted))


def compute_residual(
    draft: Draft, p: Float[Array, "B K1 V"], accepted: Int[Array, " B"]
) -> Float[Array, "B V"]:
    """Returns weights [B, V] of the correction, [p - q]_+, or of the bonus token, p."""
    at_p = pick(p, accepted)
    if draft.width == 0:
        return at_p
    rest = draft.distribution.residual(at_p, accepted)
    corrected = (accepted < draft.length) & (jnp.sum(rest, axis=-1) > NO_RESIDUAL)
    return jnp.where(corrected[:, None], rest, at_p)


def compute_overlap(
    draft: Draft, p: Float[Array, "B K1 V"], accepted: Int[Array, " B"]
) -> Float[Array, " B"]:
    """Sums [B] the expected acceptance sum_x min(p, q) over the tested positions."""
    beta = draft.distribution.overlap(p[:, :-1])
    inside = jnp.arange(beta.shape[1]) < count_tested(accepted, draft.length)[:, None]
    return jnp.sum(jnp.where(inside, beta, 0.0), axis=1)


def _get_drafted_probs(p: Float[Array, "B K1 V"], draft: Draft) -> Float[Array, "B K"]:
    return Categorical(p[:, :-1]).prob(draft.tokens)


def draw_uniform(keys: Key[Array, " B"], count: int) -> Float[Array, "B {count}"]:
    """Draws uniform numbers [B, count]; a column does not depend on `count`."""

    def one(key: jax.Array, position: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(key, position))

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(keys, jnp.arange(count))


def split_keys(keys: Key[Array, " B"]) -> tuple[Key[Array, " B"], Key[Array, " B"]]:
    """Splits each row's key into two, [B] each."""
    pair = jax.vmap(jax.random.split)(keys)
    return pair[:, 0], pair[:, 1]
