"""Prices rounds in the decode loop itself, by short decodes among the measured ones.

Calls timed alone differ from calls between drafts, and a round is more than its calls: it includes
the rule, the bookkeeping, and weights that two models evict from the processor's caches. So every
strategy decodes some prompts up to `TOKENS` and without new tokens: the difference is its rounds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from specjax.decoding.state import Decoder, Generation
from specjax.decoding.summary import summarize
from specjax.measuring.cost import Costs, Reads
from specjax.metrics.traces import collect_rounds

TOKENS = 24
"""New tokens of each row in a decode that prices rounds."""


@dataclasses.dataclass(frozen=True)
class Work:
    """Rounds of decodes and their model calls, each counted once for its batch."""

    tokens: int  # of all rows
    rounds: int
    runs: Mapping[str, int]  # by `Call.part`
    widths: Mapping[int, int]  # target calls by their width in drafted tokens


def sum_work(decoder: Decoder, traces: Sequence[tuple[Generation, int]]) -> Work:
    """The work of the first `rows` rows of every (generation, rows)."""
    rounds, statistics = collect_rounds(traces), summarize(decoder, traces)
    return Work(statistics.tokens, rounds.turns, rounds.runs, statistics.widths)


def calls_ms(costs: Costs, work: Work, one: Reads, target: str) -> float:
    """Milliseconds of all calls of some work, as they cost when timed alone."""
    review = costs.verification_ms(work.widths, one.reader, target)
    return work.runs[target] * review + costs.drafting_ms(one.drafter, work.rounds, work.runs)


@dataclasses.dataclass(frozen=True)
class Sample:
    """Total time of the rounds of one decode."""

    milliseconds: float  # beyond those of the same decode without new tokens
    work: Work


@dataclasses.dataclass(frozen=True)
class RoundPrice:
    """Milliseconds of a round in place, and of its calls when they are timed alone."""

    round_ms: float
    calls_ms: float

    @property
    def beyond_calls_ms(self) -> float:
        """Time of a round beyond its separately timed calls; negative if those cost more."""
        return self.round_ms - self.calls_ms


def round_price(
    samples: Sequence[Sample],
    baseline: Sequence[Sample],
    costs: Costs,
    one: Reads,
    target: str,
) -> RoundPrice | None:
    """The price of a strategy's rounds; None when no decode had any.

    `baseline` are the baseline's decodes in the same passes. A pass in which its rounds were slower
    than in the median pass was slower for all strategies, and is scaled to the median. Rounds
    differ in their calls, which have their separately timed prices; the rest is the same in all.
    """
    steps = [sample.milliseconds / max(sample.work.rounds, 1) for sample in baseline]
    known = [
        (sample, step)
        for sample, step in zip(samples, steps, strict=True)
        if sample.work.rounds and step > 0
    ]
    if not known:
        return None
    usual = float(np.median([step for step in steps if step > 0]))
    calls = [calls_ms(costs, sample.work, one, target) / sample.work.rounds for sample, _ in known]
    rounds = [sample.milliseconds / sample.work.rounds * usual / step for sample, step in known]
    beyond = float(np.median(np.subtract(rounds, calls)))
    mean = float(np.mean(calls))
    return RoundPrice(mean + beyond, mean)


def milliseconds_per_token(
    price: RoundPrice, costs: Costs, work: Work, one: Reads, target: str
) -> float:
    """Milliseconds per token of work with that round price, with its own calls."""
    total = calls_ms(costs, work, one, target) + work.rounds * price.beyond_calls_ms
    return total / max(work.tokens, 1)


@dataclasses.dataclass(frozen=True)
class DraftPrice:
    """Time of a round beyond its separately timed calls: a constant, and a slope per token."""

    round_: float
    token: float

    def beyond_calls(self, tries: float) -> float:
        """Time beyond calls of a round that tries to draft `tokens` tokens."""
        return self.round_ + tries * self.token


def draft_price(beyond: Mapping[float, float]) -> DraftPrice:
    """Fits a line to the time of rounds beyond their calls, by the tokens that they try to draft.

    With rounds of one length the slope takes all of it. The unit is that of the arguments.
    """
    tries, values = np.array(list(beyond)), np.array(list(beyond.values()))
    if len(tries) < 2:
        return DraftPrice(0.0, float(values[0] / tries[0]))
    token, round_ = np.polyfit(tries, values, 1)
    return DraftPrice(float(round_), float(token))
