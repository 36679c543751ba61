"""Figures by group of examples."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from specjax.metrics.groups import add_speedups, by_group
from specjax.metrics.traces import Rounds
from specjax.reporting.table import group_table

GROUPS = ["ende", "qa", "ende"]


def rounds(drafted, accepted) -> Rounds:
    """Records [N, R] of rounds that committed what stood and one more token."""
    other = {field.name: None for field in dataclasses.fields(Rounds)}
    drafted, accepted = np.array(drafted), np.array(accepted)
    made = {"drafted": drafted, "accepted": accepted, "committed": accepted + 1}
    return Rounds(**other | made)


PLAIN = rounds([[0, 0]] * 3, [[0, 0]] * 3)
DRAFTED = rounds([[3, 3], [3, 1], [3, 2]], [[3, 0], [0, 0], [2, 1]])


def test_every_example_counts_for_its_group():
    found = by_group(GROUPS, DRAFTED, np.array([0.1, 0.3, 0.2]))
    assert list(found) == ["ende", "qa"]
    assert found["ende"] == {
        "examples": 2, "tokens": 10, "ms_per_token": pytest.approx(30.0),
        "accept_rate": 6 / 11, "tokens_per_round": 2.5,
    }  # fmt: skip
    assert found["qa"]["accept_rate"] == 0 and found["qa"]["ms_per_token"] == pytest.approx(150.0)
    assert by_group(GROUPS, PLAIN, None)["qa"]["accept_rate"] is None


def test_speedups_are_over_the_same_group_of_the_baseline():
    base = by_group(GROUPS, PLAIN, np.array([0.2, 0.1, 0.2]))
    own = by_group(GROUPS, DRAFTED, np.array([0.1, 0.3, 0.2]))
    found = add_speedups({"plain": base, "drafted": own}, {"plain": base, "drafted": base})
    assert found["drafted"]["ende"]["speedup"] == pytest.approx(100 / 30)
    assert found["drafted"]["qa"]["speedup"] == pytest.approx(50 / 150)
    assert found["plain"]["qa"]["speedup"] == 1.0
    lines = group_table(found).splitlines()
    assert len(lines) == 2 + 4 and "3.33" in lines[3]


def test_without_times_there_is_no_speedup():
    found = by_group(GROUPS, DRAFTED, None)
    timed = add_speedups({"drafted": found}, {"drafted": found})
    assert timed["drafted"]["qa"]["speedup"] is None and "-" in group_table(timed)
