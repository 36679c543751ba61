"""Predicts the least time of a round on a chip, and the speedup at a given acceptance.

A round reads the weights and the cache of a model at every call, with as many experts as the call's
tokens are expected to use (theory/operations.py). It takes at least the time of these reads, or of
its arithmetic. Collectives, kernel launches, writes and prefill are left out: times are lower
bounds, and speedups are those of the rounds only.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping, Sequence

from specjax.accelerators.chips import Chip
from specjax.accelerators.program import WeightReads
from specjax.contracts.spec import Call
from specjax.metrics.operations import part_shape, transformer_shape
from specjax.models.base import LanguageModel
from specjax.parallel.sharding import find_undivided
from specjax.theory.operations import decoder_call
from specjax.theory.speculative import expected_tokens, improvement

MOST_TOKENS = 4096
"""Most tokens of a call that `free_tokens` considers."""


@dataclasses.dataclass(frozen=True)
class Share:
    """The share of a model on one device in a round."""

    model: LanguageModel
    weights: WeightReads
    cache: int  # bytes of a full cache
    ways: int  # devices that share the work of a row
    rows: int  # on each of them
    itemsize: float = 4  # bytes of an expert's weight, its share of the scales included

    def bytes(self, calls: Sequence[Call]) -> float:
        """Bytes that the calls of a round read; a call that continues from states adds no turn."""
        whole = transformer_shape(self.model).layers
        caches = sum(part_shape(self.model, call).layers / whole for call in calls) * self.cache
        turns = sum(not (call.resume_from or call.read_out) for call in calls)
        return self.weights.count_bytes(turns) + caches + sum(map(self.expert_bytes, calls))

    def expert_bytes(self, call: Call) -> float:
        """Expected bytes of experts that a call reads."""
        shape = part_shape(self.model, call)
        whole = "expert_width" in find_undivided(self.model, self.ways)
        read = float(shape.read_experts(call.tokens * self.rows)) * self.itemsize
        return read if whole else read / self.ways

    def operations(self, calls: Sequence[Call], cached: int, source: int) -> float:
        """Arithmetic operations of the calls after `cached` tokens."""
        total = 0.0
        for call in calls:
            shape = part_shape(self.model, call)
            operations = decoder_call(shape, call.tokens, cached, source * shape.cross, call.logits)
            total += float(operations.flops)
        return total * self.rows / self.ways


@dataclasses.dataclass(frozen=True)
class Round:
    """Bytes and operations of a round of full width on one device."""

    bytes: float
    operations: float

    def seconds(self, chip: Chip) -> float:
        """The least time of the round."""
        return chip.seconds(self.bytes, self.operations)


def build_round(
    calls: Sequence[Call], shares: Mapping[str, Share], cached: int, source: int
) -> Round:
    """The round that makes these calls."""
    own = {name: [call for call in calls if call.model == name] for name in shares}
    return Round(
        sum(share.bytes(own[name]) for name, share in shares.items()),
        sum(share.operations(own[name], cached, source) for name, share in shares.items()),
    )


def free_tokens(share: Share, name: str, chip: Chip, cached: int, source: int) -> int:
    """Most tokens that a call of a whole model feeds in the time that its reads take.

    A tree may have this many nodes, including the pending token, before arithmetic is the bound.
    """

    def beyond(tokens: int) -> float:
        call = [Call(name, tokens, tokens)]
        arithmetic = share.operations(call, cached, source) / chip.flops
        return arithmetic - share.bytes(call) / chip.bandwidth

    return bisect.bisect_right(range(1, MOST_TOKENS + 1), 0.0, key=beyond)


def speedup(acceptance: float, width: int, seconds: float, baseline: float) -> float:
    """The speedup of Theorem 3.8 with times of rounds: independent acceptance, full drafts."""
    return float(improvement(expected_tokens(acceptance, width), 0.0, seconds / baseline))
