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
    count_tested,
    leading_run,
    make_verdict,
)
from specjax.sampling import adjust, argmax, draw
from specjax.verification.tree import greedy_tree, sampled_tree


@RULES.register("lossless")
@dataclasses.dataclass(frozen=True)
class SpeculativeSampling(NestableRule):
    """The target's tokens: x stands with probability min(1, p(x)/q(x)), greedily if the argmax.

    A rejected token is replaced by a draw from norm([p - q]_+). At temperature 0 the rule runs on
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
            return greedy_match(draft, reading.logits)
        return sampled_match(draft, adjust(reading.logits, options.sampling), 1.0, keys)

    def _judge_tree(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        if options.sampling.greedy:
            return greedy_tree(draft, reading.logits)
        accept_keys, draw_keys = split(keys)
        p = adjust(reading.logits, options.sampling)
        return sampled_tree(draft, p, uniform(accept_keys, draft.width), draw_keys)

    def distribution(self, draft: Draft, reading: Reading, options: Options) -> Distribution:
        if options.sampling.greedy:
            return OneHot(argmax(reading.logits))
        return Categorical(adjust(reading.logits, options.sampling))


def greedy_match(draft: Draft, logits: Float[Array, "B K1 V"]) -> Verdict:
    """Drafted tokens stand while they equal the target's argmax."""
    best = argmax(logits)
    accepted = leading_run(draft.tokens == best[:, :-1], draft.length)
    return make_verdict(draft, accepted, pick(best, accepted))


def sampled_match(
    draft: Draft,
    p: Float[Array, "B K1 V"],
    lenience: Float[Array, "B K"] | Float[Array, ""] | float,
    keys: Key[Array, " B"],
) -> Verdict:
    """Speculative sampling against p [B, K+1, V]; lenience 1 is exact (docs/methods/lenience.md).

    `lenience` is one number or [B, K]. Accepts iff `r * lenience * q(x) < p(x)`: division-free,
    q <= p always passes, p = 0 never.
    """
    accept_keys, draw_keys = split(keys)
    p_drafted = _of_drafted(p, draft)
    q_drafted = draft.distribution.of(draft.tokens)
    drawn = uniform(accept_keys, draft.width)
    accepted = leading_run(drawn * lenience * q_drafted < p_drafted, draft.length)
    own = draw(draw_keys, residual(draft, p, accepted))
    return make_verdict(draft, accepted, own, overlap(draft, p, accepted))


def residual(
    draft: Draft, p: Float[Array, "B K1 V"], accepted: Int[Array, " B"]
) -> Float[Array, "B V"]:
    """Weights [B, V] of the token after `accepted` drafted ones: [p - q]_+, or p for the bonus."""
    at_p = pick(p, accepted)
    if draft.width == 0:
        return at_p
    rest = draft.distribution.residual(at_p, accepted)
    corrected = (accepted < draft.length) & (jnp.sum(rest, axis=-1) > NO_RESIDUAL)
    return jnp.where(corrected[:, None], rest, at_p)


def overlap(
    draft: Draft, p: Float[Array, "B K1 V"], accepted: Int[Array, " B"]
) -> Float[Array, " B"]:
    """Sum [B] of sum_x min(p, q) over the tested positions (the analytic acceptance)."""
    beta = draft.distribution.overlap(p[:, :-1])
    inside = jnp.arange(beta.shape[1]) < count_tested(accepted, draft.length)[:, None]
    return jnp.sum(jnp.where(inside, beta, 0.0), axis=1)


def _of_drafted(p: Float[Array, "B K1 V"], draft: Draft) -> Float[Array, "B K"]:
    return Categorical(p[:, :-1]).of(draft.tokens)


def uniform(keys: Key[Array, " B"], count: int) -> Float[Array, "B {count}"]:
    """Uniform numbers [B, count], the first of which do not depend on `count`."""

    def one(key: jax.Array, position: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(key, position))

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(keys, jnp.arange(count))


def split(keys: Key[Array, " B"]) -> tuple[Key[Array, " B"], Key[Array, " B"]]:
    pair = jax.vmap(jax.random.split)(keys)
    return pair[:, 0], pair[:, 1]
