"""Typical acceptance: a token stands if the target finds it likely enough for its own uncertainty.

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
from specjax.contracts.rule import Reading, Rule, Verdict, leading_run, make_verdict
from specjax.sampling import adjust, draw
from specjax.verification.speculative_sampling import greedy_match


@RULES.register("typical", example={})
@dataclasses.dataclass(frozen=True)
class TypicalAcceptance(Rule):
    """Tokens stand iff `p(x) > min(epsilon, delta * exp(-entropy of p))`; greedily the argmax.

    The token that follows is drawn from p. It asks the drafter for tokens only.
    """

    epsilon: str = fields.number(
        0.09,
        bounds="[0, 1]",
        traced="epsilon",
        help="probability that is always enough",
    )
    delta: str = fields.number(
        0.3,
        bounds="[0, inf]",
        traced="delta",
        help="share of exp(-entropy) that is enough where the target is unsure",
    )

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        if options.sampling.greedy:
            return greedy_match(draft, reading.logits)
        p = adjust(reading.logits, options.sampling)
        enough = typical_threshold(
            p[:, :-1], options.numbers[self.epsilon], options.numbers[self.delta]
        )
        accepted = leading_run(pick_tokens(p[:, :-1], draft.tokens) > enough, draft.length)
        return make_verdict(draft, accepted, draw(keys, pick(p, accepted)))


def typical_threshold(
    p: Float[Array, "*B V"], epsilon: Float[Array, ""], delta: Float[Array, ""]
) -> Float[Array, "*B"]:
    """The probability [B, K] above which tokens stand, from p [B, K, V]."""
    entropy = -jnp.sum(jax.scipy.special.xlogy(p, p), axis=-1)
    return jnp.minimum(epsilon, delta * jnp.exp(-entropy))
