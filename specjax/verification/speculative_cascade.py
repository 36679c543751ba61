"""Speculative cascades: drafts are verified against a mixture of drafter and target.

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
from specjax.verification.speculative_sampling import sampled_match

CHOW, DIFF, OPT, TOKEN = DEFERRALS = ("chow", "diff", "opt", "token")
"""When the target has the word; the last one decides token by token."""


@RULES.register("speculative_cascade", example={"margin": 0.2})
@dataclasses.dataclass(frozen=True)
class SpeculativeCascade(Rule):
    """Outputs of a cascade: the drafter's distribution where it is good enough, else the target's.

    Speculative sampling against that mixture. For sampling; greedily the token rule is lenience.
    """

    margin: str = fields.number(
        bounds="[0, 1]",
        traced="margin",
        help="how much worse than the target the drafter may be",
    )
    defer: str = fields.choice(DEFERRALS, OPT, help="what must hold for the target to decide")

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        p = adjust(reading.logits, options.sampling)
        return sampled_match(draft, self.mixture(draft, p, options.numbers[self.margin]), 1.0, keys)

    def mixture(
        self, draft: Draft, p: Float[Array, "B K1 V"], margin: Float[Array, ""]
    ) -> Float[Array, "B K1 V"]:
        """The distributions [B, K+1, V] that outputs have, from p of the same shape.

        Behind the draft the target's own.
        """
        q, own = draft.distribution.categorical(p.shape[-1]).probs, p[:, :-1]
        if self.defer == TOKEN:
            mixed = by_token(q, own, margin)
        else:
            mixed = jnp.where(is_deferred(self.defer, q, own, margin)[..., None], own, q)
        drafted = jnp.arange(draft.width) < draft.length[:, None]
        mixed = jnp.where(drafted[..., None], mixed, own)
        return jnp.concatenate([mixed, p[:, -1:]], axis=1)

    def check_sampling(self, greedy: bool) -> None:
        """Refuses temperature 0, where both distributions are certain.

        Raises:
          ValueError: then.
        """
        if greedy:
            raise ValueError(
                "rule 'speculative_cascade' needs a temperature above 0; greedily its token rule is"
                " rule 'lenient' with a lenience of 1 - margin"
            )


def is_deferred(
    rule: str, q: Float[Array, "B K V"], p: Float[Array, "B K V"], margin: Float[Array, ""]
) -> Bool[Array, "B K"]:
    """Whether [B, K] the target decides, from the drafter's q and the target's p [B, K, V]."""
    sure = jnp.max(q, axis=-1)
    if rule == CHOW:
        return sure < 1.0 - margin
    gain = jnp.max(p, axis=-1) - sure
    if rule == DIFF:
        return gain > margin
    return gain > margin * 0.5 * jnp.sum(jnp.abs(p - q), axis=-1)


def by_token(
    q: Float[Array, "B K V"], p: Float[Array, "B K V"], margin: Float[Array, ""]
) -> Float[Array, "B K V"]:
    """q where the target gives at least (1 - margin) max p; the mass of the rest follows p."""
    good = p >= (1.0 - margin) * jnp.max(p, axis=-1, keepdims=True)
    kept = jnp.where(good, q, 0.0)
    moved = jnp.sum(jnp.where(good, 0.0, q), axis=-1, keepdims=True)
    return kept + moved * p
