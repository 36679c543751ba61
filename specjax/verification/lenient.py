"""Lenience: a lossy rule that accepts more tokens (docs/methods/lenience.md).

Leviathan et al. (2023), appendix A.5; inside a cascade Chen et al., "Cascade Speculative Drafting"
(2024), Algorithm 1. Outputs change, so it is never the default of the target.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from specjax.contracts import fields
from specjax.contracts.context import Options
from specjax.contracts.distribution import (
    NO_RESIDUAL,
    Categorical,
    Distribution,
    OneHot,
    compute_probability,
    pick,
    pick_tokens,
)
from specjax.contracts.draft import Draft
from specjax.contracts.registry import RULES
from specjax.contracts.rule import NestableRule, Reading, Verdict, count_leading, make_verdict
from specjax.sampling import adjust, argmax
from specjax.verification.speculative_sampling import match_by_sampling

SCORE = "score"
"""Entry of `Draft.aux`, [B, K]: the drafter's probability of each token at temperature 1, for
relative lenience; infinity: reviewed without lenience."""


@RULES.register("lenient", example={"lenience": 0.5})
@dataclasses.dataclass(frozen=True)
class Lenient(NestableRule):
    """Accepts iff `r * l * q(x) < p(x)`, r uniform; greedily iff `p(x) >= l * max p`.

    `relative`, for reviews inside a cascade: tokens without a finite score get no lenience, and
    greedy accepts iff `p(x) > l * q(x)`, q the drafter's probability (docs/methods/cascade.md).

    The greedy forms compare plain temperature-1 probabilities; correction and bonus are argmax p.
    """

    lenience: str = fields.number(
        bounds="(0, 1]",
        traced="lenience",
        help="l: the factor by which a token may be less probable; 1: lossless",
    )
    relative: bool = False

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        logits, value = reading.logits, options.numbers[self.lenience]
        if options.sampling.greedy:
            near = is_near_proposer if self.relative else is_near_best
            return match_leniently(draft, logits, near(draft, logits[:, :-1], value))
        p = adjust(logits, options.sampling)
        return match_by_sampling(draft, p, self._by_token(draft, value), keys)

    def distribution(self, draft: Draft, reading: Reading, options: Options) -> Distribution:
        if options.sampling.greedy:
            return OneHot(argmax(reading.logits))
        lenience = self._by_token(draft, options.numbers[self.lenience])
        return Categorical(
            compute_induced_distribution(draft, adjust(reading.logits, options.sampling), lenience)
        )

    def _by_token(self, draft: Draft, value: Float[Array, ""]) -> Float[Array, "B K"]:
        """Returns the lenience [B, K] of every drafted token."""
        if not self.relative:
            return jnp.broadcast_to(value, draft.tokens.shape)
        return jnp.where(jnp.isfinite(get_scores(draft)), value, 1.0)


def is_near_best(
    draft: Draft, logits: Float[Array, "B K V"], lenience: Float[Array, ""]
) -> Bool[Array, "B K"]:
    """Returns whether [B, K] p(x) >= lenience * max p, from logits [B, K, V]."""
    # Without a softmax: the normalizer cancels.
    return pick_tokens(logits, draft.tokens) >= jnp.max(logits, axis=-1) + jnp.log(lenience)


def is_near_proposer(
    draft: Draft, logits: Float[Array, "B K V"], lenience: Float[Array, ""]
) -> Bool[Array, "B K"]:
    """Returns whether [B, K] p(x) > lenience * q(x), q the score, from logits [B, K, V]."""
    return compute_probability(logits, draft.tokens) > lenience * get_scores(draft)


def match_leniently(
    draft: Draft, logits: Float[Array, "B K1 V"], near: Bool[Array, "B K"]
) -> Verdict:
    """Accepts drafted tokens while they are argmax p or `near` [B, K]."""
    best = argmax(logits)
    accepted = count_leading((draft.tokens == best[:, :-1]) | near, draft.length)
    return make_verdict(draft, accepted, pick(best, accepted))


def compute_induced_distribution(
    draft: Draft, p: Float[Array, "B K1 V"], lenience: Float[Array, "B K"]
) -> Float[Array, "B K1 V"]:
    """Computes the output distribution [B, K+1, V] of lenient review.

    min(q, p/l) + (1 - sum min(q, p/l)) norm([p - q]_+) at drafted positions, else p; with lenience
    [B, K] of 1 it is p (docs/methods/cascade.md).
    """
    at_p = p[:, :-1]
    q = draft.distribution.categorical(p.shape[-1]).probs
    enough = at_p / lenience[..., None]
    kept = jnp.minimum(q, enough)
    rest = jnp.maximum(at_p - q, 0.0)
    total = jnp.sum(rest, axis=-1, keepdims=True)
    corrected = jnp.where(total > NO_RESIDUAL, rest / jnp.maximum(total, NO_RESIDUAL), at_p)
    # Not 1 - sum kept, which has no significant digits if nearly all is kept.
    rejected = jnp.sum(jnp.maximum(q - enough, 0.0), axis=-1, keepdims=True)
    drafted = jnp.arange(draft.width) < draft.length[:, None]
    output = jnp.where(drafted[..., None], kept + rejected * corrected, at_p)
    return jnp.concatenate([output, p[:, -1:]], axis=1)


def get_scores(draft: Draft) -> Float[Array, "B K"]:
    """Returns the draft's scores [B, K], infinite if it has none."""
    own = (draft.aux or {}).get(SCORE)
    return jnp.full(draft.tokens.shape, jnp.inf) if own is None else own
