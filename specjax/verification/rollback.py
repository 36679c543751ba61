"""Rollback of the Big Little Decoder: rejects drafted tokens far from the target.

Kim et al., "Speculative Decoding with Big Little Decoder" (2023), section 3.3
(docs/methods/bild.md).
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from specjax.contracts import fields
from specjax.contracts.context import Options
from specjax.contracts.distribution import pick
from specjax.contracts.draft import Draft
from specjax.contracts.registry import RULES
from specjax.contracts.rule import Reading, Rule, Verdict, count_leading, make_verdict
from specjax.sampling import adjust, argmax, draw
from specjax.verification.distances import DISTANCES

PAPER, OFFICIAL = COMPAT = ("paper", "official")
"""Version of BiLD: the paper's, or the published code's without bugs (docs/methods/bild.md)."""


@RULES.register("rollback", example={"rollback": 2.0})
@dataclasses.dataclass(frozen=True)
class Rollback(Rule):
    """Rejects from the first drafted token on whose distance exceeds the threshold.

    The next token is the target's: its argmax when greedy, else a draw from its adjusted
    distribution. When greedy and `equal_argmax`, a token that is the target's argmax is always
    accepted. `compat="official"` is the published code: if the first token beyond the threshold is
    the argmax, all tokens are accepted.
    """

    rollback: str = fields.number(
        bounds="[0, inf]",
        traced="rollback",
        help="distance above which a token is rejected; inf: never",
    )
    distance: str = fields.choice(
        tuple(DISTANCES), "cross_entropy", help="distance of a drafted token"
    )
    equal_argmax: bool = fields.flag(True, help="greedy: the target's argmax is always accepted")
    compat: str = fields.choice(COMPAT, PAPER, help="version of BiLD")

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        logits = reading.logits
        far = DISTANCES[self.distance](draft, logits[:, :-1]) > options.numbers[self.rollback]
        if options.sampling.greedy:
            best = argmax(logits)
            accepted = self._count_accepted(far, draft.tokens == best[:, :-1], draft.length)
            own = pick(best, accepted)
        else:
            accepted = count_leading(~far, draft.length)
            own = draw(keys, adjust(pick(logits, accepted), options.sampling))
        return make_verdict(draft, accepted, own)

    def check_sampling(self, greedy: bool) -> None:
        """Checks that the published code's version is greedy.

        Raises:
          ValueError: if it is sampled.
        """
        if self.compat == OFFICIAL and not greedy:
            raise ValueError(f"compat is {OFFICIAL!r}; it must be 'paper' at a temperature above 0")

    def _count_accepted(
        self, far: Bool[Array, "B K"], agreed: Bool[Array, "B K"], length: Int[Array, " B"]
    ) -> Int[Array, " B"]:
        """Counts accepted tokens [B] when greedy."""
        if not self.equal_argmax:
            return count_leading(~far, length)
        if self.compat == PAPER:
            return count_leading(~far | agreed, length)
        first = count_leading(~far, length)
        at_first = jnp.arange(far.shape[1]) == first[:, None]
        return jnp.where(jnp.any(at_first & agreed, axis=1), length, first)
