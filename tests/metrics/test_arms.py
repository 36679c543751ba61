"""Figures of strategies that choose among arms."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from specjax.metrics.traces import Rounds, arm_figures, count_text_arms
from specjax.reporting.table import arm_table
from specjax.theory.speculative import accept_rate

NAMES = ("none", "near", "far")


def rounds(arm, drafted, accepted, committed) -> Rounds:
    """Records of which the figures of arms need no others than these, all [N, R]."""
    values = dict(arm=arm, drafted=drafted, accepted=accepted, committed=committed)
    other = {f.name: None for f in dataclasses.fields(Rounds)}
    return Rounds(**other | {name: np.asarray(value) for name, value in values.items()})


HAND = rounds(
    arm=[[1, 1, 2], [0, 0, 0]],
    drafted=[[3, 3, 2], [0, 0, 0]],
    accepted=[[3, 0, 1], [0, 0, 0]],
    committed=[[4, 1, 2], [1, 1, 0]],
)


def test_every_round_counts_for_its_arm():
    found = arm_figures(HAND, NAMES)
    assert [found[name]["texts"] for name in NAMES] == [1, 1, 0]
    assert [found[name]["rounds"] for name in NAMES] == [2, 2, 1]
    assert [found[name]["tokens"] for name in NAMES] == [2, 5, 2]
    assert [found[name]["accept_rate"] for name in NAMES] == [None, 0.5, 0.5]
    assert count_text_arms(HAND, NAMES) == [{"near": 2, "far": 1}, {"none": 2}]
    text = arm_table({"plain": {"arms": None}, "chosen": {"arms": found}})
    assert text.count("chosen") == 3 and "plain" not in text


@pytest.mark.parametrize(("alpha", "length"), [(0.3, 7), (0.8, 7), (0.9, 3)])
def test_the_accept_rate_is_its_closed_form_for_independent_acceptance(alpha, length):
    rng = np.random.default_rng(0)
    stood = rng.random((200, 200, length)) < alpha
    accepted = np.cumprod(stood, axis=2).sum(axis=2)
    whole = np.full_like(accepted, length)
    found = arm_figures(rounds(np.ones_like(accepted), whole, accepted, accepted + 1), NAMES)
    assert found["near"]["accept_rate"] == pytest.approx(
        float(accept_rate(alpha, length)), rel=0.02
    )
