"""Lenience: accept more, at a bounded distance from the target (docs/methods/lenience.md).

Leviathan et al. (2023), appendix A.5; inside a cascade Chen et al., "Cascade Speculative Drafting"
(2024), Algorithm 1. Outputs change: never a default at the outermost level.
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
from specjax.contracts.rule import NestableRule, Reading, Verdict, leading_run, make_verdict
from specjax.sampling import adjust, argmax
from specjax.verification.speculative_sampling import sampled_match

SCORE = "score"
"""Entry of `Draft.aux`, [B, K]: the proposer's own probability of each token at temperature 1, for
relative lenience; infinity: reviewed without lenience."""


@RULES.register("lenient", example={"lenience": 0.5})
@dataclasses.dataclass(frozen=True)
class Lenient(NestableRule):
    """Tokens stand more easily: iff `r * l * q(x) < p(x)`, greedily iff `p(x) >= l * max p`.

    `relative`, for reviews inside a cascade: drafts without a finite score get no lenience, and
    greedy accepts iff `p(x) > l * q(x)`, q the proposer's probability (docs/methods/cascade.md).

    The greedy forms compare plain temperature-1 probabilities; correction and bonus are argmax p.
    """

    lenience: str = fields.number(
        bounds="(0, 1]", traced="lenience", help="l: how much less likely a token may be; 1: strict"
    )
    relative: bool = False

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        logits, value = reading.logits, options.numbers[self.lenience]
        if options.sampling.greedy:
            near = near_proposer if self.relative else near_best
            return greedy_lenient(draft, logits, near(draft, logits[:, :-1], value))
        p = adjust(logits, options.sampling)
        return sampled_match(draft, p, self._by_token(draft, value), keys)

    def distribution(self, draft: Draft, reading: Reading, options: Options) -> Distribution:
        if options.sampling.greedy:
            return OneHot(argmax(reading.logits))
        lenience = self._by_token(draft, options.numbers[self.lenience])
        return Categorical(
            induced_distribution(draft, adjust(reading.logits, options.sampling), lenience)
        )

    def _by_token(self, draft: Draft, value: Float[Array, ""]) -> Float[Array, "B K"]:
        """The lenience [B, K] of every drafted token."""
        if not self.relative:
            return jnp.broadcast_to(value, draft.tokens.shape)
        return jnp.where(jnp.isfinite(scores(draft)), value, 1.0)


def near_best(
    draft: Draft, logits: Float[Array, "B K V"], lenience: Float[Array, ""]
) -> Bool[Array, "B K"]:
    """Whether [B, K] p(x) >= lenience * max p, from logits [B, K, V]."""
    # Without a softmax: the normaliser cancels.
    return pick_tokens(logits, draft.tokens) >= jnp.max(logits, axis=-1) + jnp.log(lenience)


def near_proposer(
    draft: Draft, logits: Float[Array, "B K V"], lenience: Float[Array, ""]
) -> Bool[Array, "B K"]:
    """Whether [B, K] p(x) > lenience * q(x), from logits [B, K, V]; q is the draft's score."""
    return compute_probability(logits, draft.tokens) > lenience * scores(draft)


def greedy_lenient(
    draft: Draft, logits: Float[Array, "B K1 V"], near: Bool[Array, "B K"]
) -> Verdict:
    """Drafted tokens stand while they are argmax p or `near` [B, K]."""
    best = argmax(logits)
    accepted = leading_run((draft.tokens == best[:, :-1]) | near, draft.length)
    return make_verdict(draft, accepted, pick(best, accepted))


def induced_distribution(
    draft: Draft, p: Float[Array, "B K1 V"], lenience: Float[Array, "B K"]
) -> Float[Array, "B K1 V"]:
    """The distribution [B, K+1, V] of the tokens that a lenient review lets through.

    min(q, p/l) + (1 - sum min(q, p/l)) norm([p - q]_+) where a token was drafted, else p: with
    lenience [B, K] of 1 it is p (docs/methods/cascade.md).
    """
    at_p = p[:, :-1]
    q = draft.distribution.categorical(p.shape[-1]).probs
    enough = at_p / lenience[..., None]
    kept = jnp.minimum(q, enough)
    rest = jnp.maximum(at_p - q, 0.0)
    total = jnp.sum(rest, axis=-1, keepdims=True)
    corrected = jnp.where(total > NO_RESIDUAL, rest / jnp.maximum(total, NO_RESIDUAL), at_p)
    # Not 1 - sum kept, which has no digits where nearly all is kept.
    rejected = jnp.sum(jnp.maximum(q - enough, 0.0), axis=-1, keepdims=True)
    drafted = jnp.arange(draft.width) < draft.length[:, None]
    through = jnp.where(drafted[..., None], kept + rejected * corrected, at_p)
    return jnp.concatenate([through, p[:, -1:]], axis=1)


def scores(draft: Draft) -> Float[Array, "B K"]:
    """The draft's scores [B, K], infinite where there are none."""
    own = (draft.aux or {}).get(SCORE)
    return jnp.full(draft.tokens.shape, jnp.inf) if own is None else own
