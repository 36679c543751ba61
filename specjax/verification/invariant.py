"""Target calls of one width through all layers, for bitwise reproducible logits.

Rounding depends on operand shapes. Decodes with this reader, equal cache capacities and equal batch
shapes compute bitwise equal logits for a token however it was decoded, in half precision too
(docs/how_to/half_precision.md).
"""

from __future__ import annotations

import dataclasses

from jaxtyping import Array, Int

from specjax.contracts.context import Context
from specjax.contracts.draft import Draft
from specjax.contracts.env import Env
from specjax.contracts.reader import Judge, Reader
from specjax.contracts.rule import Reading, Verdict
from specjax.models.base import Cache
from specjax.verification.fitted import FittedReader
from specjax.verification.whole import WholeReader


@dataclasses.dataclass(frozen=True)
class InvariantReader(Reader):
    """Target calls of `width` drafted tokens, padded if drafts are shorter.

    The call is in a loop of its own, so that the surrounding program does not change how it is
    compiled.
    """

    width: int

    overrides = True

    def list_widths(self, width: int) -> tuple[int, ...]:
        return (self.width,)

    def check(self, width: int) -> None:
        if width > self.width:
            raise ValueError(
                f"the target's calls have room for {self.width} drafted tokens; the drafter"
                f" proposes {width}"
            )

    def read(
        self,
        env: Env,
        cache: Cache,
        draft: Draft,
        context: Context,
        judge: Judge,
        features: tuple[int, ...] = (),
    ) -> tuple[Verdict, Reading, Cache, dict[str, Int[Array, " B"]]]:
        inner = FittedReader((self.width,), WholeReader(self.width))
        return inner.read(env, cache, draft, context, judge, features)
