"""Speculative cascades: verification against a mixture of drafter and target.

Narasimhan et al., "Faster Cascades via Speculative Decoding" (2025)
(docs/methods/speculative_cascade.md).
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from specjax.contracts import fields
from specjax.contracts.context import Options
from specjax.contracts.draft import Draft
from specjax.contracts.registry import RULES
from specjax.contracts.rule import Reading, Rule, Verdict
from specjax.sampling import adjust
from specjax.verification.speculative_sampling import match_by_sampling

CHOW, DIFF, OPT, TOKEN = DEFERRALS = ("chow", "diff", "opt", "token")
"""Deferral rules: when the target decides; the last one decides for each token of V."""


@RULES.register("speculative_cascade", example={"margin": 0.2})
@dataclasses.dataclass(frozen=True)
class SpeculativeCascade(Rule):
    """Speculative sampling from a cascade of the drafter's and the target's distributions.

    The cascade has the drafter's distribution where a deferral rule accepts it, else the target's.
    For sampling only; greedily the token rule equals lenience.
    """

    margin: str = fields.number(
        bounds="[0, 1]",
        traced="margin",
        help="how much worse than the target the drafter may be",
    )
    defer: str = fields.choice(DEFERRALS, OPT, help="rule that defers to the target")

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        p = adjust(reading.logits, options.sampling)
        return match_by_sampling(draft, self.mix(draft, p, options.numbers[self.margin]), 1.0, keys)

    def mix(
        self, draft: Draft, p: Float[Array, "B K1 V"], margin: Float[Array, ""]
    ) -> Float[Array, "B K1 V"]:
        """Computes the output distributions [B, K+1, V] from p of the same shape.

        After the draft they are the target's.
        """
        q, own = draft.distribution.categorical(p.shape[-1]).probs, p[:, :-1]
        if self.defer == TOKEN:
            mixed = mix_by_token(q, own, margin)
        else:
            mixed = jnp.where(is_deferred(self.defer, q, own, margin)[..., None], own, q)
        drafted = jnp.arange(draft.width) < draft.length[:, None]
        mixed = jnp.where(drafted[..., None], mixed, own)
        return jnp.concatenate([mixed, p[:, -1:]], axis=1)

    def check_sampling(self, greedy: bool) -> None:
        """Refuses greedy decoding, where both distributions are one-hot.

        Raises:
          ValueError: at temperature 0.
        """
        if greedy:
            raise ValueError(
                "rule 'speculative_cascade' needs a temperature above 0; greedily its token rule is"
                " rule 'lenient' with a lenience of 1 - margin"
            )


def is_deferred(
    rule: str, q: Float[Array, "B K V"], p: Float[Array, "B K V"], margin: Float[Array, ""]
) -> Bool[Array, "B K"]:
    """Returns whether [B, K] the target decides, from q and p [B, K, V]."""
    confidence = jnp.max(q, axis=-1)
    if rule == CHOW:
        return confidence < 1.0 - margin
    gain = jnp.max(p, axis=-1) - confidence
    if rule == DIFF:
        return gain > margin
    return gain > margin * 0.5 * jnp.sum(jnp.abs(p - q), axis=-1)


def mix_by_token(
    q: Float[Array, "B K V"], p: Float[Array, "B K V"], margin: Float[Array, ""]
) -> Float[Array, "B K V"]:
    """Returns q where p is at least (1 - margin) max p; other mass follows p, [B, K, V]."""
    good = p >= (1.0 - margin) * jnp.max(p, axis=-1, keepdims=True)
    kept = jnp.where(good, q, 0.0)
    moved = jnp.sum(jnp.where(good, 0.0, q), axis=-1, keepdims=True)
    return kept + moved * p
