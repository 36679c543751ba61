"""What model calls cost on this device: the c and v of the speedup formulas."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from specjax.contracts.drafter import Alternative, Drafter, list_distinct
from specjax.contracts.reader import Reader
from specjax.contracts.spec import Call, parts
from specjax.decoding.summary import Statistics
from specjax.measuring.stopwatch import Stopwatch, Timing
from specjax.theory import cascade
from specjax.theory.speculative import expected_tokens, improvement

TRIALS = 16
"""Trials at least; the median counts."""

SHORTEST = 1e-6
"""Milliseconds of a call too short to measure: ratios of costs must exist."""


def draft_calls(drafter: Drafter, drafted: int) -> tuple[Call, ...]:
    """The calls of a draft of `drafted` tokens, at most the drafter's width.

    Cascades have no `length` that could be set to it: theirs are those of a full draft.
    """
    if dataclasses.is_dataclass(drafter) and drafted < (getattr(drafter, "length", 0) or 0):
        return dataclasses.replace(drafter, length=drafted).spec.calls
    return drafter.spec.calls


class Reads(Protocol):
    """Drafts, and how the target reads them: a strategy, a decoder, an arm."""

    @property
    def drafter(self) -> Drafter: ...

    @property
    def reader(self) -> Reader: ...


def list_members(one: Reads) -> tuple[Alternative, ...]:
    """The drafters and readers that one chooses among, or its own."""
    choice = one.drafter.choice
    return choice.members if choice else (Alternative(one.drafter, one.reader),)


def pricing_order(one: Alternative) -> tuple[bool, int]:
    """Drafters that run a model come first, of them those whose drafts can have any length.

    Then cascades, whose draft is whole before a call of any width, the narrowest first.
    """
    spec = one.drafter.spec
    return not spec.models, 0 if getattr(one.drafter, "length", 0) else spec.width


def needed_calls(
    strategies: Sequence[Reads], target: str, widths: Iterable[int]
) -> dict[Call, tuple[Call, ...]]:
    """The calls whose cost the figures of strategies rest on.

    Each with the calls that it follows in a round: the target's with the draft that it verifies.
    Where several want the same call, the first by `pricing_order` counts; of a drafter that
    chooses, those that it chooses among. `widths` are the drafted tokens that the target's calls
    have room for. Of every part the one-token call too: c and v are ratios to it.
    """
    calls: dict[Call, tuple[Call, ...]] = {Call(target, 1, 1): ()}
    for one in sorted(list_distinct(map(list_members, strategies)), key=pricing_order):
        for width in sorted({0, *widths} & set(range(one.drafter.spec.width + 1))):
            before = draft_calls(one.drafter, width) if width else ()
            calls.setdefault(one.reader.call(target, width), before)
            calls.update({call: () for call in before})
    for call in list(calls):
        calls.setdefault(dataclasses.replace(call, tokens=1, logits=min(call.logits, 1)), ())
    order = sorted(calls, key=lambda call: (call.model != target, call.part, call.tokens))
    return {call: calls[call] for call in order}


@dataclasses.dataclass(frozen=True)
class Costs:
    """Measured call costs in milliseconds, by `Call.part` and number of fed tokens."""

    step: dict[str, dict[int, float]]

    @property
    def one_token(self) -> dict[str, float]:
        """Milliseconds of a call that feeds one token, by `Call.part`."""
        return {part: steps[1] for part, steps in self.step.items()}

    def price(self, call: Call) -> float:
        return self.milliseconds(call.part, call.tokens)

    def milliseconds(self, part: str, width: int) -> float:
        """Of a call that feeds `width` tokens, on a line between the nearest measured widths.

        Raises:
          KeyError: outside the widths that were measured.
        """
        widths = sorted(self.step[part])
        if not widths[0] <= width <= widths[-1]:
            raise KeyError(width)
        return float(np.interp(width, widths, [self.step[part][fed] for fed in widths]))

    def drafting_ms(self, drafter: Drafter, rounds: int, runs: Mapping[str, int]) -> float:
        """Milliseconds of `runs` of the drafter's parts in `rounds` rounds.

        Behind the first of a round, calls cost what a draft's later ones do on average.
        """
        total = 0.0
        for part in parts(drafter.spec.calls):
            calls = [call for call in drafter.spec.calls if call.part == part]
            first = min(rounds, runs[part])
            later = float(np.mean([self.price(call) for call in calls[1:] or calls]))
            total += first * self.price(calls[0]) + (runs[part] - first) * later
        return total

    def verification_ms(self, widths: Mapping[int, int], reader: Reader, target: str) -> float:
        """Mean milliseconds of the target's calls; `widths` counts them by drafted tokens."""
        prices = {width: self.price(reader.call(target, width)) for width in widths}
        total = sum(count * prices[width] for width, count in widths.items())
        return total / max(sum(widths.values()), 1)

    def predicted_speedup(self, statistics: Statistics, strategy: Reads, target: str) -> float:
        """E[tokens per round] / (K c + v) of a strategy.

        K c is the cost of the drafter calls that a round measurably has relative to a target step,
        v the cost of the verification relative to it, in the rounds that have one. Of a tree of N
        nodes K c has a call for each level, as wide as that level is fed, and v is that of N + 1.
        """
        if not statistics.rounds:
            return 0.0
        step = self.step[target][1]
        drafting = self.drafting_ms(strategy.drafter, statistics.rounds, statistics.calls)
        review = self.verification_ms(statistics.widths, strategy.reader, target)
        verifying = statistics.reviews * review
        return float(improvement(statistics.tokens, drafting / step, verifying / step))

    def theoretical_speedup(self, statistics: Statistics, strategy: Reads, target: str) -> float:
        """Theorem 3.8: independent acceptance at the measured rate, drafts of full width, v = 1."""
        spec = strategy.drafter.spec
        drafting = sum(map(self.price, spec.calls)) / self.step[target][1]
        tokens = expected_tokens(statistics.acceptance_rate, spec.width)
        return float(improvement(tokens, drafting))

    def entries(self, target: str) -> dict[str, Any]:
        """By `Call.part`: milliseconds per call, c, and v, by number of fed tokens."""
        return {
            name: {
                "step_ms": {str(width): ms for width, ms in widths.items()},
                "c": widths[1] / self.step[target][1],
                "v": {str(width): ms / widths[1] for width, ms in widths.items()},
            }
            for name, widths in self.step.items()
        }


def doubling(calls: Mapping[Call, tuple[Call, ...]]) -> dict[Call, tuple[Call, ...]]:
    """Of each part the narrowest and the widest call, and between them widths that double.

    And all that these follow.
    """
    kept = set()
    for part in dict.fromkeys(call.part for call in calls):
        own = sorted((c for c in calls if c.part == part), key=lambda call: call.tokens)
        last = 0
        for call in own:
            if call.tokens >= 2 * last or call is own[-1]:
                kept |= {call, *calls[call]}
                last = call.tokens
    return {call: before for call, before in calls.items() if call in kept}


@dataclasses.dataclass(frozen=True)
class CallTimes:
    """The calls that the figures of drafters rest on, timed trial by trial.

    A call that follows others in a round is timed with them and costs what they, each in a loop of
    its own, leave over: where two models drive each other's weights out of the processor's caches,
    the target's call bears it.
    """

    calls: Mapping[Call, tuple[Call, ...]]  # as `needed_calls` gives them
    timing: Timing

    def take(self) -> None:
        """One more trial of every call."""
        self.timing.take()

    def costs(self) -> Costs:
        """From the medians of all trials, `TRIALS` at least."""
        while len(self.timing.trials) < TRIALS:
            self.take()
        took = dict(zip(self.calls, np.median(self.timing.milliseconds(), axis=0), strict=True))
        steps: dict[str, dict[int, float]] = {}
        for call, before in self.calls.items():
            ms = took[call] - sum(took[other] for other in before)
            steps.setdefault(call.part, {}).setdefault(call.tokens, max(float(ms), SHORTEST))
        return Costs(steps)


def call_times(
    watch: Stopwatch,
    strategies: Sequence[Reads],
    target: str,
    widths: Iterable[int],
    *,
    sparse: bool = False,
) -> CallTimes:
    """Compiles a program for each call; `widths` as in `needed_calls`.

    `sparse`: their `doubling` widths only.
    """
    calls = needed_calls(strategies, target, widths)
    calls = doubling(calls) if sparse else calls
    return CallTimes(calls, watch.timing([(*before, call) for call, before in calls.items()]))


def standardized_walltime_improvement(
    tokens: int, calls: Mapping[str, int], prices: Mapping[str, float], target: str
) -> float:
    """Tokens over the cost of calls, counted and priced by part.

    See docs/methods/cascade.md, "Standardized walltime improvement".

    0 when nothing ran.
    """
    if not any(calls.values()):
        return 0.0
    costs = cascade.relative_costs(prices, target)
    return float(
        cascade.standardized_walltime_improvement(
            tokens, list(calls.values()), [costs[part] for part in calls]
        )
    )
