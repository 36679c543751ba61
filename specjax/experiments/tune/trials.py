"""State of a search: measurements of its candidates, saved for resuming."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specjax.theory.trees import Fastest


class OutOfTime(Exception):
    """The budget is used up; the measurements so far remain valid."""


class Budget:
    """Seconds since its creation plus those of earlier calls of an interrupted search."""

    def __init__(self, seconds: float, spent: float = 0.0) -> None:
        self.seconds = seconds
        self._start = time.perf_counter() - spent

    @property
    def spent(self) -> float:
        return time.perf_counter() - self._start

    def check(self) -> None:
        """Checks the budget before every piece of work; running work is finished.

        Raises:
          OutOfTime: when nothing is left.
        """
        if self.spent >= self.seconds:
            raise OutOfTime


PREDICTION, END = "prediction", "end"
"""Stages at which a candidate drops out, in addition to `round 1`, `round 2`, ..."""

TIME, SWI = "time", "swi"
"""Ranking of candidates: measured time, or the standardized walltime improvement."""


@dataclasses.dataclass
class Trial:
    """One candidate, or the target alone."""

    fields: dict[str, Any]
    lossless: bool = True
    predicted: float | None = None
    seconds: list[float] = dataclasses.field(default_factory=list)  # by batch: median of repeats
    tokens: list[int] = dataclasses.field(default_factory=list)  # by batch
    calls: dict[str, int] = dataclasses.field(default_factory=dict)  # by `Call.part`, under SWI
    swi: float | None = None  # of those calls
    examples: int = 0  # decoded
    outputs: list[str] = dataclasses.field(default_factory=list)  # by example, where they matter
    quality: dict[str, float] = dataclasses.field(default_factory=dict)
    loss: float | None = None  # the largest drop of a score against the target alone, in points
    dropped: str = ""  # the stage; empty: still in
    reason: str = ""

    def drop(self, stage: str, reason: str) -> None:
        self.dropped, self.reason = stage, reason

    @property
    def seconds_per_token(self) -> float | None:
        """Seconds per token over the batches decoded so far; None before the first."""
        return sum(self.seconds) / max(sum(self.tokens), 1) if self.seconds else None

    def cost(self, objective: str) -> float | None:
        """Cost of a token: seconds, or the price of its calls; None before the first batch."""
        if objective == SWI:
            return 1 / self.swi if self.swi else None
        return self.seconds_per_token

    def may_be_chosen(self, allowed: float | None) -> bool:
        """Whether its outputs are known to be good enough; always if `allowed` is None."""
        if allowed is None or self.lossless:
            return True
        return self.loss is not None and self.loss <= allowed


@dataclasses.dataclass
class Search:
    """All measurements of a search."""

    alone: Trial
    trials: dict[str, Trial]  # by name of the candidate
    objective: str = TIME
    rounds: int = 0  # finished
    seconds: float = 0.0  # of this call and those before
    costs: dict[str, Any] = dataclasses.field(default_factory=dict)
    acceptance: dict[str, Any] | None = None  # by depth and rank, where trees are searched
    trees: list[str] = dataclasses.field(default_factory=list)  # trials that the search added

    def add_trees(self, found: Iterable[Fastest]) -> None:
        """Trials of trees, with their predicted speedups."""
        for tree in found:
            name = f"tree_{len(tree.parents)}"
            self.trees.append(name)
            self.trials[name] = Trial({"parents": tree.parents}, predicted=tree.improvement)

    @property
    def shapes(self) -> dict[str, Sequence[int]]:
        """Parents of the nodes of each of them."""
        return {name: self.trials[name].fields["parents"] for name in self.trees}

    @property
    def alive(self) -> dict[str, Trial]:
        return {name: trial for name, trial in self.trials.items() if not trial.dropped}

    @property
    def contenders(self) -> int:
        """Candidates that the prediction kept."""
        return sum(trial.dropped != PREDICTION for trial in self.trials.values())

    @property
    def predicted(self) -> bool:
        return all(trial.predicted is not None for trial in self.trials.values())

    def speedup(self, trial: Trial) -> float | None:
        """Speedup over the target alone on the same batches; None before the first."""
        count, own = len(trial.seconds), trial.seconds_per_token
        if own is None:
            return None
        baseline = sum(self.alone.seconds[:count]) / max(sum(self.alone.tokens[:count]), 1)
        return baseline / own

    def entry(self) -> dict[str, Any]:
        """The search as a JSON object for `parse_search`."""
        return dataclasses.asdict(self)


def parse_search(entry: Mapping[str, Any]) -> Search:
    """Parses the output of `Search.entry`."""
    trials = {name: Trial(**fields) for name, fields in entry["trials"].items()}
    return Search(**{**entry, "alone": Trial(**entry["alone"]), "trials": trials})


def drop_by_prediction(groups: Iterable[list[Trial]], margin: float, most: int) -> None:
    """Keeps the `most` best predicted of each group, within `margin` of the best."""
    for group in groups:
        known = [(trial.predicted, trial) for trial in group if trial.predicted is not None]
        ordered = sorted(known, key=lambda pair: -pair[0])
        for place, (predicted, trial) in enumerate(ordered):
            below = 1 - predicted / ordered[0][0]
            if below > margin:
                trial.drop(PREDICTION, f"predicted {100 * below:.0f}% below the best")
            elif place >= most:
                trial.drop(PREDICTION, f"{most} are predicted to be faster")


def drop_worse(alive: Mapping[str, Trial], objective: str, keep: int, stage: str) -> None:
    """Keeps the `keep` cheapest per token."""
    costs = [(trial.cost(objective), trial) for trial in alive.values()]
    known = [(cost, trial) for cost, trial in costs if cost is not None]
    ordered = sorted(known, key=lambda pair: pair[0])
    words = "slower than the fastest" if objective == TIME else "more expensive than the cheapest"
    for cost, trial in ordered[keep:]:
        slowdown = cost / ordered[0][0] - 1
        trial.drop(stage, f"{100 * slowdown:.1f}% {words}")


def choose_best(search: Search, allowed: float | None) -> str | None:
    """The best candidate that is still in: the cheapest, or before any ran the best predicted.

    All others drop out. None when nothing is known, or no outputs are good enough.
    """
    for trial in search.alive.values():
        if not trial.may_be_chosen(allowed):
            trial.drop(END, "out of time before its outputs were judged")
    known = {n: t for n, t in search.alive.items() if t.seconds or t.predicted is not None}

    def rank(name: str) -> tuple[bool, float]:
        trial = known[name]
        return not trial.seconds, trial.cost(search.objective) or -(trial.predicted or 0.0)

    chosen = min(known, key=rank, default=None)
    for name, trial in search.alive.items():
        if name != chosen:
            trial.drop(END, "out of time")
    return chosen
