"""Rollback of the Big Little Decoder: drafted tokens stand unless the target finds them far off.

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
from specjax.contracts.rule import Reading, Rule, Verdict, leading_run, make_verdict
from specjax.sampling import adjust, argmax, draw
from specjax.verification.distances import DISTANCES

PAPER, OFFICIAL = COMPAT = ("paper", "official")
"""Whose BiLD: the paper's, or the published code's without its bugs (docs/methods/bild.md)."""


@RULES.register("rollback", example={"rollback": 2.0})
@dataclasses.dataclass(frozen=True)
class Rollback(Rule):
    """Everything falls from the first drafted token whose distance exceeds the threshold.

    The token that follows is the target's own: its argmax when greedy, else a draw from its
    adjusted distribution. When greedy and `equal_argmax`, a token that is the target's argmax
    stands however flat the distribution. `compat="official"` is the authors' form: when the first
    token beyond the threshold is the argmax, all stand.
    """

    rollback: str = fields.number(
        bounds="[0, inf]", traced="rollback", help="distance beyond which a token falls; inf: never"
    )
    distance: str = fields.choice(tuple(DISTANCES), "cross_entropy", help="of a draft's token")
    equal_argmax: bool = fields.flag(True, help="greedy: the target's argmax always stands")
    compat: str = fields.choice(COMPAT, PAPER, help="whose BiLD")

    def judge(
        self, draft: Draft, reading: Reading, options: Options, keys: Key[Array, " B"]
    ) -> Verdict:
        logits = reading.logits
        far = DISTANCES[self.distance](draft, logits[:, :-1]) > options.numbers[self.rollback]
        if options.sampling.greedy:
            best = argmax(logits)
            accepted = self._standing(far, draft.tokens == best[:, :-1], draft.length)
            own = pick(best, accepted)
        else:
            accepted = leading_run(~far, draft.length)
            own = draw(keys, adjust(pick(logits, accepted), options.sampling))
        return make_verdict(draft, accepted, own)

    def check_sampling(self, greedy: bool) -> None:
        """The published code is greedy.

        Raises:
          ValueError: at a temperature above 0.
        """
        if self.compat == OFFICIAL and not greedy:
            raise ValueError(f"compat is {OFFICIAL!r}; it must be 'paper' at a temperature above 0")

    def _standing(
        self, far: Bool[Array, "B K"], agreed: Bool[Array, "B K"], length: Int[Array, " B"]
    ) -> Int[Array, " B"]:
        """How many tokens [B] stand when greedy."""
        if not self.equal_argmax:
            return leading_run(~far, length)
        if self.compat == PAPER:
            return leading_run(~far | agreed, length)
        first = leading_run(~far, length)
        at_first = jnp.arange(far.shape[1]) == first[:, None]
        return jnp.where(jnp.any(at_first & agreed, axis=1), length, first)
