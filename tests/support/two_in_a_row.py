"""A newcomer's rule, whole: a drafted token stands when the one behind it does too."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp

from specjax.contracts import Rule
from specjax.contracts.distribution import pick
from specjax.contracts.registry import RULES
from specjax.contracts.rule import count_leading, make_verdict
from specjax.sampling import argmax


@RULES.register("two_in_a_row")
@dataclasses.dataclass(frozen=True)
class TwoInARow(Rule):
    """Argmax matching of pairs of tokens: needlessly strict, and lossless when greedy."""

    lossless = True

    def judge(self, draft, reading, options, keys):
        best = argmax(reading.logits)
        right = count_leading(draft.tokens == best[:, :-1], draft.length)
        accepted = right - right % 2
        return make_verdict(draft, accepted, pick(best, jnp.int32(accepted)))
