"""Oracle engagement of the large model, by its own probabilities (docs/methods/bild.md).

Kim et al., "Speculative Decoding with Big Little Decoder" (2023), Figure 2.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Key

from specjax.contracts import fields
from specjax.contracts.context import Options
from specjax.contracts.distribution import compute_probability, pick
from specjax.contracts.draft import Draft
from specjax.contracts.registry import RULES
from specjax.contracts.rule import Reading, Rule, Verdict, count_leading, make_verdict
from specjax.sampling import argmax


@RULES.register("oracle", example={"engage": 0.3})
@dataclasses.dataclass(frozen=True)
class Oracle(Rule):
    """Accepts drafted tokens while their target probability is at least `engage`.

    The first rejected token is replaced by the target's argmax. After a fully accepted draft the
    target adds no token, so that both models see every prefix. 0 accepts all drafts, above 1 none.
    Greedy only: it compares plain distributions.
    """

    engage: str = fields.number(
        bounds="[0, inf]",
        traced="engage",
        help="probability below which the target replaces a token",
    )

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        drafted = compute_probability(reading.logits[:, :-1], draft.tokens)
        accepted = count_leading(drafted >= options.numbers[self.engage], draft.length)
        adds = (accepted < draft.length) | (draft.length == 0)
        verdict = make_verdict(draft, accepted, pick(argmax(reading.logits), accepted))
        return verdict.replace(count=accepted + adds.astype(jnp.int32))

    def check_sampling(self, greedy: bool) -> None:
        if not greedy:
            raise ValueError("rule 'oracle' needs temperature 0: it compares plain distributions")
