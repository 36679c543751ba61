"""A chain of tokens of one layer that goes on from the target's states.

Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time
Test" (2025) (docs/methods/eagle.md).
"""

from __future__ import annotations

import dataclasses

import jax

from specjax.core import fields
from specjax.core.calls import Call
from specjax.core.context import Context
from specjax.core.env import Bound
from specjax.core.registry import DRAFTERS
from specjax.core.spec import Spec
from specjax.drafting.neural import StoppingEarly
from specjax.drafting.on_target import OnOwnStates
from specjax.drafting.token_by_token import Progress
from specjax.models.base import Cache


@DRAFTERS.register("eagle", example={"length": 3})
@dataclasses.dataclass(frozen=True)
class Eagle(OnOwnStates, StoppingEarly):
    """Tokens of one decoder layer that reads the target's states."""

    length: int = fields.draft_length(help="drafted tokens, at most")
    model: str = fields.name("drafter", help="the feature drafter, trained for this target")
    layers: tuple[int, ...] = ()

    @property
    def spec(self) -> Spec:
        return dataclasses.replace(super().spec, features=self.layers)

    @property
    def lag(self) -> int:
        return self.length + 1

    def _calls(self) -> tuple[Call, ...]:
        later = (Call(self.model, 1, 1),) * (self.length - 1)
        return Call(self.model, self.lag, 1), *later

    def _open(self, model: Bound, cache: Cache, context: Context) -> tuple[jax.Array, Progress]:
        logits, cache = self.feed_text(model, cache, context)
        return logits, self._empty(context, cache, logits, None)
