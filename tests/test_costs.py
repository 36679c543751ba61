"""The budget of fast tests."""

from __future__ import annotations

import json
from pathlib import Path

import costs
import jax
import jax.numpy as jnp
import pytest
from costs import BUDGET, EXCEPTIONS, Cost, refusal
from pytest import TestReport

ROOT = Path(__file__).parents[1]


def test_a_test_within_the_budget_is_not_refused():
    assert refusal("tests/a.py::test_b", BUDGET) is None


@pytest.mark.parametrize(
    ("cost", "said"),
    [
        (Cost(0.0, BUDGET.programs + 1), f"compiled {BUDGET.programs + 1} programs"),
        (Cost(2 * BUDGET.seconds, 0), f"took {2 * BUDGET.seconds:.0f} CPU seconds"),
    ],
)
def test_a_test_beyond_it_is_told_what_it_cost(cost, said):
    assert said in refusal("tests/a.py::test_b[1]", cost)


def test_an_exception_covers_every_parameter_of_its_test(monkeypatch):
    monkeypatch.setitem(EXCEPTIONS, "tests/a.py::test_b", Cost(1e3, 1000))
    assert refusal("tests/a.py::test_b[x]", Cost(900.0, 900)) is None
    assert "1001 programs" in refusal("tests/a.py::test_b[x]", Cost(0.0, 1001))


def test_an_exception_is_of_a_test_that_exists():
    for test in EXCEPTIONS:
        file, _, name = test.partition("::")
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), test


def test_programs_are_counted_when_xla_is_asked_for_them():
    counter = costs.Costs(shown=0)
    double = jax.jit(lambda x: 2 * x + 1)
    x = jnp.ones(3)
    before = counter.programs
    double(x)
    assert counter.programs == before + 1
    double(x)
    assert counter.programs == before + 1


def test_costs_come_from_a_worker_to_the_process_that_shows_them(pytestconfig):
    """As xdist carries a report: what is no plain data would be left behind."""
    there, here = costs.Costs(shown=0), costs.Costs(shown=1)
    report = TestReport(
        "tests/a.py::test_b", ("tests/a.py", 1, "b"), {}, "passed", None, "teardown"
    )
    report.cost = tuple(Cost(1.5, 2))
    there.pytest_runtest_logreport(report)
    hook = pytestconfig.hook
    carried = json.loads(
        json.dumps(hook.pytest_report_to_serializable(config=pytestconfig, report=report))
    )
    arrived = hook.pytest_report_from_serializable(config=pytestconfig, data=carried)
    here.pytest_runtest_logreport(arrived)
    assert here.found == there.found == {"tests/a.py::test_b": Cost(1.5, 2)}


def test_a_test_beyond_its_budget_fails_whatever_it_asserts(pytester, monkeypatch):
    monkeypatch.setattr(costs, "BUDGET", Cost(1e3, 0))
    pytester.makepyfile(
        """
        import jax, jax.numpy as jnp, pytest

        def test_dear():
            jax.jit(lambda x: x + 1.5)(jnp.ones(7))

        @pytest.mark.slow
        def test_slow():
            jax.jit(lambda x: x + 2.5)(jnp.ones(7))

        def test_cheap():
            pass
        """
    )
    done = pytester.inline_run("-p", "no:cacheprovider", plugins=[costs.Costs(shown=0)])
    passed, _, failed = done.listoutcomes()
    assert {report.nodeid.partition("::")[2] for report in failed} == {"test_dear"}
    assert "a fast test has 0" in str(failed[0].longrepr)
    assert {report.nodeid.partition("::")[2] for report in passed} >= {"test_slow", "test_cheap"}
