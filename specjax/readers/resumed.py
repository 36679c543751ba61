"""The target goes on from states that its own first layers gave while they drafted.

Kim et al., "Speculative Decoding with Big Little Decoder" (2023), section 3.5.2
(docs/methods/early_exit.md): layers that drafted never run twice on a token.
"""

from __future__ import annotations

import dataclasses

import jax

from specjax.core.calls import Call
from specjax.core.context import Context
from specjax.core.draft import Draft
from specjax.core.env import Env
from specjax.core.reader import Judge, Reader
from specjax.core.verdict import Reading, Verdict
from specjax.models.base import Cache, Resume
from specjax.readers.whole import read_from

STATES = "states"
"""Entry of `Draft.aux`, [B, K + 1, D]: the pending and the drafted tokens after those layers."""


@dataclasses.dataclass(frozen=True)
class Resumed(Reader):
    """The layers above the first `layers` run on `Draft.aux[STATES]`."""

    layers: int

    def call(self, target: str, drafted: int) -> Call:
        return Call(target, drafted + 1, drafted + 1, resume_from=self.layers)

    def read(
        self,
        env: Env,
        cache: Cache,
        draft: Draft,
        context: Context,
        judge: Judge,
        features: tuple[int, ...] = (),
    ) -> tuple[Verdict, Reading, Cache, dict[str, jax.Array]]:
        resume = Resume(draft.aux[STATES], self.layers)
        return read_from(env, cache, draft, context, judge, features, resume=resume)
