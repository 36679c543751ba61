"""Lenience: accept more, at a bounded distance from the target (docs/methods/lenience.md).

Leviathan et al. (2023), appendix A.5; inside a cascade Chen et al., "Cascade Speculative Drafting"
(2024), Algorithm 1. Outputs change: never a default at the outermost level.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.sampling import adjust, argmax
from specjax.verification.base import Verdict, leading_run, of_tokens, pick, probability
from specjax.verification.exact import NO_RESIDUAL, sampled_match


@dataclasses.dataclass(frozen=True)
class Lenient:
    """Sampling: accept iff `r * l * q(x) < p(x)`. Greedy: accept iff `p(x) >= l * max p`.

    `relative`, for reviews inside a cascade: drafts without a finite `Draft.score` get no lenience,
    and greedy accepts iff `p(x) > l * q(x)`, q the proposer's probability (docs/methods/cascade.md,
    "Lenient reviews").

    The greedy forms compare plain temperature-1 probabilities; correction and bonus are argmax p.
    `lenience` names the traced option that holds l in (0, 1]; 1 is the strict rule.
    """

    lenience: str = "lenience"
    relative: bool = False
    lossless: ClassVar[bool] = False
    nestable: ClassVar[bool] = True

    def verify(self, draft, logits: jax.Array, options, keys: jax.Array) -> Verdict:
        value = options.numbers[self.lenience]
        if options.sampling.greedy:
            near = near_proposer if self.relative else near_best
            return greedy_lenient(draft, logits, near(draft, logits[:, :-1], value))
        each = jnp.broadcast_to(value, draft.tokens.shape)
        if self.relative:
            each = jnp.where(jnp.isfinite(scores(draft)), value, 1.0)
        p = adjust(logits, options.sampling)
        return sampled_match(draft, p, each, keys).replace(probs=induced_law(draft, p, each))


def near_best(draft, logits: jax.Array, lenience: jax.Array) -> jax.Array:
    """Whether [B, K] p(x) >= lenience * max p, from logits [B, K, V]."""
    # Without a softmax: the normaliser cancels.
    return of_tokens(logits, draft.tokens) >= jnp.max(logits, axis=-1) + jnp.log(lenience)


def near_proposer(draft, logits: jax.Array, lenience: jax.Array) -> jax.Array:
    """Whether [B, K] p(x) > lenience * q(x), from logits [B, K, V]; q is the draft's score."""
    return probability(logits, draft.tokens) > lenience * scores(draft)


def greedy_lenient(draft, logits: jax.Array, near: jax.Array) -> Verdict:
    """Drafted tokens stand while they are argmax p or `near` [B, K]."""
    best = argmax(logits)
    accepted = leading_run((draft.tokens == best[:, :-1]) | near, draft.length)
    return Verdict(accepted, pick(best, accepted), accepted.astype(jnp.float32))


def induced_law(draft, p: jax.Array, lenience: jax.Array) -> jax.Array:
    """The law [B, K+1, V] of the tokens that a lenient review lets through.

    See docs/methods/cascade.md, "Induced distributions".

    min(q, p/l) + (1 - sum min(q, p/l)) norm([p - q]_+) where a token was drafted, else p: with
    lenience [B, K] of 1 it is p.
    """
    vocabulary, at_p = p.shape[-1], p[:, :-1]
    one_hot = draft.probs is None
    q = jax.nn.one_hot(draft.tokens, vocabulary, dtype=p.dtype) if one_hot else draft.probs
    kept = jnp.minimum(q, at_p / lenience[..., None])
    rest = jnp.maximum(at_p - q, 0.0)
    total = jnp.sum(rest, axis=-1, keepdims=True)
    corrected = jnp.where(total > NO_RESIDUAL, rest / jnp.maximum(total, NO_RESIDUAL), at_p)
    rejected = jnp.maximum(1.0 - jnp.sum(kept, axis=-1, keepdims=True), 0.0)
    law = kept + rejected * corrected
    drafted = jnp.arange(draft.tokens.shape[1]) < draft.length[:, None]
    return jnp.concatenate([jnp.where(drafted[..., None], law, at_p), p[:, -1:]], axis=1)


def scores(draft) -> jax.Array:
    """`Draft.score` [B, K], infinite where there is none."""
    return jnp.full(draft.tokens.shape, jnp.inf) if draft.score is None else draft.score
