"""What tests cost, and how much a fast one may.

Wall time says little on a shared machine. So CPU seconds are counted, of the process and its
finished children, and programs: requests to XLA, whether or not a cache answers them, so that a
test has the same number everywhere.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import pytest

COMPILED = "/jax/core/compile/backend_compile_duration"


class Cost(NamedTuple):
    """Of one test with the fixtures that it is the first to need."""

    seconds: float
    programs: int


BUDGET = Cost(seconds=200.0, programs=300)
"""Of a fast test; programs count the same everywhere, seconds leave room for a slow machine, three
times what the dearest takes on two free cores, and for a compiler that optimizes. The first test of
a process that draws weights compiles about 110 small programs."""

EXCEPTIONS = {
    # The main job as it is: eight strategies, every call timed, a report drawn.
    "tests/experiments/test_main.py::test_the_main_job_ends_well_and_prints_one_table": Cost(
        seconds=600.0, programs=350
    ),
}
"""What the fixtures of a few tests need, by file and function."""


def refusal(test: str, cost: Cost) -> str | None:
    """What is wrong with a fast test's cost; None when it may cost that."""
    allowed = EXCEPTIONS.get(test.partition("[")[0], BUDGET)
    if cost.programs > allowed.programs:
        return f"{test} compiled {cost.programs} programs; a fast test has {allowed.programs}"
    if cost.seconds > allowed.seconds:
        return f"{test} took {cost.seconds:.0f} CPU seconds; a fast test has {allowed.seconds:.0f}"
    return None


class Costs:
    """A pytest plugin that measures every test, fails one over budget, and shows the dearest."""

    def __init__(self, shown: int) -> None:
        self.shown = shown
        self.programs = 0
        self.before = Cost(0.0, 0)
        self.found: dict[str, Cost] = {}
        jax.monitoring.register_event_duration_secs_listener(self._event)

    def _event(self, name: str, _: float, **__: object) -> None:
        self.programs += name == COMPILED

    def _spent(self) -> Cost:
        return Cost(sum(os.times()[:4]), self.programs)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Iterator[None]:
        self.before = self._spent()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
        report = yield
        if call.when == "teardown":
            cost = Cost(*(now - then for now, then in zip(self._spent(), self.before, strict=True)))
            report.cost = tuple(cost)  # carried from a worker to the process that reports
            wrong = None if item.get_closest_marker("slow") else refusal(item.nodeid, cost)
            if wrong and report.passed:
                report.outcome, report.longrepr = "failed", wrong
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.found[report.nodeid] = Cost(*report.cost)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        line = terminalreporter.write_line
        if self.shown:
            folders: dict[str, list[Cost]] = defaultdict(list)
            for test, cost in self.found.items():
                folders["/".join(test.partition("::")[0].split("/")[:2])].append(cost)
            totals = {name: total(costs) for name, costs in folders.items()}
            for table in (self.found, totals):
                dearest = sorted(table.items(), key=lambda each: -each[1].seconds)
                for name, cost in dearest[: self.shown]:
                    line(f"{cost.seconds:9.1f} s {cost.programs:6} programs  {name}")
        spent = total(self.found.values())
        line(f"all tests took {spent.seconds:.0f} CPU seconds, {spent.programs:,} programs")


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of some."""
    return Cost(sum(each.seconds for each in costs), sum(each.programs for each in costs))
