"""The least time of a round on a chip, and the speedup that acceptance makes of it.

A round reads the weights and the cache of a model at every call, of experts as many as the call's
tokens are expected to have (theory/operations.py). It takes at least the time of
these reads, or of its arithmetic. Collectives, the launch of kernels, writes and what is done once
for each text (prompts) are left out: times are lower bounds, speedups those of the rounds alone.
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
"""Of a call, as far as `free_tokens` looks."""


@dataclasses.dataclass(frozen=True)
class Share:
    """What one device has of a model that runs in a round."""

    model: LanguageModel
    weights: WeightReads
    cache: int  # bytes, full to its end
    ways: int  # devices that share the work of a row
    rows: int  # on each of them
    itemsize: float = 4  # bytes of an expert's weight, its share of the scales included

    def bytes(self, calls: Sequence[Call]) -> float:
        """Bytes that the calls of a round read; one that goes on from states adds no turn."""
        whole = transformer_shape(self.model).layers
        caches = sum(part_shape(self.model, call).layers / whole for call in calls) * self.cache
        turns = sum(not (call.resume_from or call.read_out) for call in calls)
        return self.weights.of(turns) + caches + sum(map(self.expert_bytes, calls))

    def expert_bytes(self, call: Call) -> float:
        """Bytes of experts that a call is expected to read."""
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
    """What a round of full width reads and does on one device."""

    bytes: float
    operations: float

    def seconds(self, chip: Chip) -> float:
        """The least time that it takes."""
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

    So many nodes may a tree have, the pending token among them, before arithmetic is the bound.
    """

    def beyond(tokens: int) -> float:
        call = [Call(name, tokens, tokens)]
        arithmetic = share.operations(call, cached, source) / chip.flops
        return arithmetic - share.bytes(call) / chip.bandwidth

    return bisect.bisect_right(range(1, MOST_TOKENS + 1), 0.0, key=beyond)


def speedup(acceptance: float, width: int, seconds: float, baseline: float) -> float:
    """Theorem 3.8 with the times of rounds: independent acceptance, drafts of full width."""
    return float(improvement(expected_tokens(acceptance, width), 0.0, seconds / baseline))
