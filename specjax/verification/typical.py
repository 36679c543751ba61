"""Typical acceptance: accepts tokens by probability relative to the target's entropy.

Cai et al., "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads"
(2024), section 2.3.1 (docs/methods/typical_acceptance.md).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from specjax.contracts import fields
from specjax.contracts.context import Options
from specjax.contracts.distribution import pick, pick_tokens
from specjax.contracts.draft import Draft
from specjax.contracts.registry import RULES
from specjax.contracts.rule import Reading, Rule, Verdict, count_leading, make_verdict
from specjax.sampling import adjust, draw
from specjax.verification.speculative_sampling import match_greedily


@RULES.register("typical", example={})
@dataclasses.dataclass(frozen=True)
class TypicalAcceptance(Rule):
    """Accepts iff `p(x) > min(epsilon, delta * exp(-entropy of p))`; greedily the argmax.

    The next token is drawn from p. The draft's distribution is not used.
    """

    epsilon: str = fields.number(
        0.09,
        bounds="[0, 1]",
        traced="epsilon",
        help="probability above which a token is always accepted",
    )
    delta: str = fields.number(
        0.3,
        bounds="[0, inf]",
        traced="delta",
        help="share of exp(-entropy) above which a token is accepted",
    )

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        if options.sampling.greedy:
            return match_greedily(draft, reading.logits)
        p = adjust(reading.logits, options.sampling)
        threshold = compute_typical_threshold(
            p[:, :-1], options.numbers[self.epsilon], options.numbers[self.delta]
        )
        accepted = count_leading(pick_tokens(p[:, :-1], draft.tokens) > threshold, draft.length)
        return make_verdict(draft, accepted, draw(keys, pick(p, accepted)))


def compute_typical_threshold(
    p: Float[Array, "*B V"], epsilon: Float[Array, ""], delta: Float[Array, ""]
) -> Float[Array, "*B"]:
    """Computes the probability [B, K] above which tokens are accepted, from p [B, K, V]."""
    entropy = -jnp.sum(jax.scipy.special.xlogy(p, p), axis=-1)
    return jnp.minimum(epsilon, delta * jnp.exp(-entropy))
