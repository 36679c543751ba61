"""Costs of model calls on this device: the c and v of the speedup formulas."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from specjax.contracts.drafter import Alternative, Drafter, list_distinct
from specjax.contracts.reader import Reader
from specjax.contracts.spec import Call, list_parts
from specjax.decoding.summary import Statistics
from specjax.measuring.stopwatch import Stopwatch, Timing
from specjax.theory import cascade
from specjax.theory.speculative import expected_tokens, improvement

TRIALS = 16
"""Fewest trials, of which the median counts."""

SHORTEST = 1e-6
"""Smallest milliseconds of a call, so that ratios of costs exist."""


def draft_calls(drafter: Drafter, drafted: int) -> tuple[Call, ...]:
    """The calls of a draft of `drafted` tokens, at most the drafter's width.

    Cascades have no `length` to change: their calls are those of a full draft.
    """
    if dataclasses.is_dataclass(drafter) and drafted < (getattr(drafter, "length", 0) or 0):
        return dataclasses.replace(drafter, length=drafted).spec.calls
    return drafter.spec.calls


class Reads(Protocol):
    """Anything with a drafter and a reader: a strategy, a decoder, an arm."""

    @property
    def drafter(self) -> Drafter: ...

    @property
    def reader(self) -> Reader: ...


def list_members(one: Reads) -> tuple[Alternative, ...]:
    """The arms of a drafter with their readers, or the drafter itself."""
    choice = one.drafter.choice
    return choice.members if choice else (Alternative(one.drafter, one.reader),)


def pricing_order(one: Alternative) -> tuple[bool, int]:
    """Sort key: drafters with a model and any draft length first.

    Then cascades, whose draft is complete before a call of any width, the narrowest first.
    """
    spec = one.drafter.spec
    return not spec.models, 0 if getattr(one.drafter, "length", 0) else spec.width


def needed_calls(
    strategies: Sequence[Reads], target: str, widths: Iterable[int]
) -> dict[Call, tuple[Call, ...]]:
    """The calls whose costs the figures of strategies need.

    Each comes with the calls that it follows in a round: a target call with the draft that it
    verifies. If several strategies need the same call, the first by `pricing_order` counts. A
    drafter with arms needs the calls of its arms. `widths` are the widths of target calls in
    drafted tokens. Every part also needs its one-token call, because c and v are ratios to it.
    """
    calls: dict[Call, tuple[Call, ...]] = {Call(target, 1, 1): ()}
    for one in sorted(list_distinct(map(list_members, strategies)), key=pricing_order):
        for width in sorted({0, *widths} & set(range(one.drafter.spec.width + 1))):
            before = draft_calls(one.drafter, width) if width else ()
            calls.setdefault(one.reader.make_call(target, width), before)
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
        """Milliseconds of a call that feeds `width` tokens, interpolated between measured widths.

        Raises:
          KeyError: outside the widths that were measured.
        """
        widths = sorted(self.step[part])
        if not widths[0] <= width <= widths[-1]:
            raise KeyError(width)
        return float(np.interp(width, widths, [self.step[part][fed] for fed in widths]))

    def drafting_ms(self, drafter: Drafter, rounds: int, runs: Mapping[str, int]) -> float:
        """Milliseconds of `runs` of the drafter's parts in `rounds` rounds.

        After the first call of a round, calls cost the average of a draft's later calls.
        """
        total = 0.0
        for part in list_parts(drafter.spec.calls):
            calls = [call for call in drafter.spec.calls if call.part == part]
            first = min(rounds, runs[part])
            later = float(np.mean([self.price(call) for call in calls[1:] or calls]))
            total += first * self.price(calls[0]) + (runs[part] - first) * later
        return total

    def verification_ms(self, widths: Mapping[int, int], reader: Reader, target: str) -> float:
        """Mean milliseconds of the target's calls; `widths` counts them by drafted tokens."""
        prices = {width: self.price(reader.make_call(target, width)) for width in widths}
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
        """Milliseconds per call, c and v by `Call.part` and number of fed tokens."""
        return {
            name: {
                "step_ms": {str(width): ms for width, ms in widths.items()},
                "c": widths[1] / self.step[target][1],
                "v": {str(width): ms / widths[1] for width, ms in widths.items()},
            }
            for name, widths in self.step.items()
        }


def choose_widths(calls: Mapping[Call, tuple[Call, ...]]) -> dict[Call, tuple[Call, ...]]:
    """The narrowest and widest call of each part, calls of doubling widths between them.

    Also includes all calls that these follow.
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
    """Times the calls that the figures of drafters need, trial by trial.

    A call that follows others in a round is timed together with them; its cost is the remainder
    after subtracting theirs, each timed in its own loop. If two models evict each other's weights
    from the processor's caches, the target's call bears the cost.
    """

    calls: Mapping[Call, tuple[Call, ...]]  # as returned by `needed_calls`
    timing: Timing

    def take(self) -> None:
        """Runs one more trial of every call."""
        self.timing.take()

    def costs(self) -> Costs:
        """Costs from the medians of at least `TRIALS` trials."""
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

    `sparse`: only the widths of `choose_widths`.
    """
    calls = needed_calls(strategies, target, widths)
    calls = choose_widths(calls) if sparse else calls
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
