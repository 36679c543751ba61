"""Every call of the target feeds as many tokens, through all of its layers.

Kernels round by the shapes of their operands. Decodes that share this reader, the slots of their
caches and the shape of their batches give a token the same logits to the bit however it was
decoded, in half precision too (docs/how_to/half_precision.md).
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
from specjax.verification.fitted import Fitted
from specjax.verification.whole import Whole


@dataclasses.dataclass(frozen=True)
class Invariant(Reader):
    """Calls with room for `width` drafted tokens.

    The call stands in a loop of its own, so that what is compiled around it does not change it.
    """

    width: int

    overrides = True

    def widths(self, width: int) -> tuple[int, ...]:
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
        inner = Fitted((self.width,), Whole(self.width))
        return inner.read(env, cache, draft, context, judge, features)
