"""Occupancy of slots, by hand."""

from __future__ import annotations

import pytest

from specjax.metrics.occupancy import occupancy


def test_slots_are_idle_after_the_last_prompt_began():
    # Two slots: rows of 4 and 2 rounds, then of 3 rounds from round 2 on, until round 5.
    whole, before, rounds = occupancy([0, 0, 2], [4, 2, 3], 2)
    assert rounds == 5 and whole == pytest.approx(9 / 10)
    assert before == 1.0  # rounds 0 and 1


def test_no_share_before_the_last_prompt_if_all_began_at_once():
    assert occupancy([0, 0], [4, 2], 3) == (pytest.approx(6 / 12), 0.0, 4)
