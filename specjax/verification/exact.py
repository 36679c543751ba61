"""Lossless rules: token matching when greedy, speculative sampling otherwise.

Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding" (2023),
Algorithm 1.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.sampling import adjust, argmax, draw
from specjax.verification.base import Verdict, leading_run, of_tokens, pick, tested

NO_RESIDUAL = 1e-12
"""A residual this small is rounding of p = q; the correction is then drawn from p itself."""


@dataclasses.dataclass(frozen=True)
class SpeculativeSampling:
    """Accepts x with probability min(1, p(x)/q(x)), corrects from norm([p - q]_+).

    At temperature 0 this is argmax matching, which runs on tokens and never builds a law.
    """

    lossless: ClassVar[bool] = True
    nestable: ClassVar[bool] = True

    def verify(self, draft, logits: jax.Array, options, keys: jax.Array) -> Verdict:
        if options.sampling.greedy:
            return greedy_match(draft, logits)
        return sampled_match(draft, adjust(logits, options.sampling), 1.0, keys)


def greedy_match(draft, logits: jax.Array) -> Verdict:
    """Drafted tokens stand while they equal the target's argmax."""
    best = argmax(logits)
    accepted = leading_run(draft.tokens == best[:, :-1], draft.length)
    return Verdict(accepted, pick(best, accepted), accepted.astype(jnp.float32))


def sampled_match(draft, p: jax.Array, lenience: jax.Array | float, keys: jax.Array) -> Verdict:
    """Speculative sampling against laws p [B, K+1, V]; lenience 1 is exact.

    See docs/methods/lenience.md.

    `lenience` is one number or [B, K]. Accepts iff `r * lenience * q(x) < p(x)`: division-free,
    q <= p always passes, p = 0 never.
    """
    accept_keys, draw_keys = _split(keys)
    p_drafted = of_tokens(p[:, :-1], draft.tokens)
    q_drafted = 1.0 if draft.probs is None else of_tokens(draft.probs, draft.tokens)
    uniform = _uniform(accept_keys, draft.tokens.shape[1])
    passed = uniform * lenience * q_drafted < p_drafted
    accepted = leading_run(passed, draft.length)
    next_token = draw(draw_keys, residual(draft, p, accepted))
    return Verdict(accepted, next_token, overlap(draft, p, p_drafted, accepted), probs=p)


def residual(draft, p: jax.Array, accepted: jax.Array) -> jax.Array:
    """Weights [B, V] of the token after `accepted` drafted ones: [p - q]_+, or p for the bonus."""
    at_p = pick(p, accepted)
    if draft.tokens.shape[1] == 0:
        return at_p
    if draft.probs is None:
        rejected = jax.nn.one_hot(pick(draft.tokens, accepted), p.shape[-1], dtype=p.dtype)
        rest = at_p * (1.0 - rejected)
    else:
        rest = jnp.maximum(at_p - pick(draft.probs, accepted), 0.0)
    corrected = (accepted < draft.length) & (jnp.sum(rest, axis=-1) > NO_RESIDUAL)
    return jnp.where(corrected[:, None], rest, at_p)


def overlap(draft, p: jax.Array, p_drafted: jax.Array, accepted: jax.Array) -> jax.Array:
    """Sum [B] of sum_x min(p, q) over the tested positions (the analytic acceptance)."""
    if draft.probs is None:
        beta = p_drafted
    else:
        beta = jnp.sum(jnp.minimum(p[:, :-1], draft.probs), axis=-1)
    inside = jnp.arange(beta.shape[1]) < tested(accepted, draft.length)[:, None]
    return jnp.sum(jnp.where(inside, beta, 0.0), axis=1)


def _uniform(keys: jax.Array, count: int) -> jax.Array:
    """Uniform numbers [B, count], the first of which do not depend on `count`."""

    def one(key: jax.Array, position: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(key, position))

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(keys, jnp.arange(count))


def _split(keys: jax.Array) -> tuple[jax.Array, jax.Array]:
    pair = jax.vmap(jax.random.split)(keys)
    return pair[:, 0], pair[:, 1]
