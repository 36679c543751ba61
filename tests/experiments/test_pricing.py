"""Short decodes that price rounds, taken among the decodes of an experiment."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from specjax.data.batching import Batch
from specjax.decoding.strategy import Strategy
from specjax.drafting.neural import Neural
from specjax.drafting.nothing import Nothing
from specjax.experiments.decode import pricing
from specjax.experiments.decode.arm_selection import NoArmSelector
from specjax.measuring.cost import TRIALS, Costs
from specjax.measuring.in_place import TOKENS, Work
from specjax.verification.invariant import InvariantReader

FIXED, ROUND = 0.005, {"alone": 0.002, "drafts": 0.004}
"""Seconds of a decode without new tokens, and of a round."""

COSTS = Costs({"target": {1: 1.5, 2: 1.8}, "drafter": {1: 0.2, 2: 0.3}})
"""Of calls timed alone."""


class Clock:
    """Decodes two tokens a round by `drafts`, one by `alone`; remembers what was decoded."""

    def __init__(self, patch: pytest.MonkeyPatch, **reader) -> None:
        strategies = {"alone": Strategy(Nothing()), "drafts": Strategy(Neural(1))}
        self.decoded: list[tuple[str, int, int]] = []
        self.job = SimpleNamespace(
            config=SimpleNamespace(seed=0),
            strategies=strategies,
            generators={
                name: SimpleNamespace(
                    name=name,
                    decoder=SimpleNamespace(
                        drafter=one.drafter, target="target", **{"reader": one.reader, **reader}
                    ),
                )
                for name, one in strategies.items()
            },
            arm_selectors=dict.fromkeys(strategies, NoArmSelector()),
        )
        patch.setattr(pricing, "sum_work", lambda decoder, traces: traces[0][0])
        calls = SimpleNamespace(take=lambda: None, costs=lambda: COSTS)
        settings = strategies["alone"].settings
        patch.setattr(pricing, "call_times", lambda job, batches: {settings: calls})

    def timed(self, generator, batch, seed, *, limit):
        tokens = int(limit.sum())
        self.decoded.append((generator.name, int(batch.index[0]), tokens))
        drafts = generator.name == "drafts"
        rounds = -(-tokens // 2) if drafts else tokens
        runs = {"target": rounds} | ({"drafter": rounds} if drafts else {})
        work = Work(tokens, rounds, runs, {int(drafts): rounds})
        return FIXED + rounds * ROUND[generator.name], [], work


def batches(count: int) -> list[Batch]:
    """Of one row each, which may have 60 new tokens."""
    return [
        Batch(np.zeros((1, 8), np.int32), np.array([8]), np.array([60]), np.array([i]), 1)
        for i in range(count)
    ]


def test_a_pass_decodes_a_few_tokens_and_none_by_every_strategy_in_turn(monkeypatch):
    clock = Clock(monkeypatch)
    given = batches(3)
    times = pricing.Pricing(clock.job, given, clock.timed)
    times.take(given[2])
    assert clock.decoded == [
        ("alone", 2, TOKENS), ("alone", 2, 0), ("drafts", 2, TOKENS), ("drafts", 2, 0),
    ]  # fmt: skip


def test_passes_that_the_decodes_had_no_room_for_follow_on_all_batches(monkeypatch):
    clock = Clock(monkeypatch)
    given = batches(4)
    times = pricing.Pricing(clock.job, given, clock.timed)
    times.take(given[0])
    times.prices()
    taken = [index for name, index, tokens in clock.decoded if name == "drafts" and tokens]
    assert len(taken) == TRIALS and set(taken) == {0, 1, 2, 3}


def test_rounds_are_priced_without_what_a_text_costs_once(monkeypatch):
    clock = Clock(monkeypatch)
    times = pricing.Pricing(clock.job, batches(1), clock.timed)
    found = times.prices().rounds
    assert found["alone"].round_ms == pytest.approx(2.0)
    assert found["drafts"].round_ms == pytest.approx(4.0)
    assert found["drafts"].calls_ms == pytest.approx(1.8 + 0.3)


def test_nothing_is_decoded_where_nothing_can_be_predicted(monkeypatch):
    clock = Clock(monkeypatch, reader=InvariantReader(3))
    given = batches(1)
    times = pricing.Pricing(clock.job, given, clock.timed)
    times.take(given[0])
    assert times.prices().rounds == {} and not clock.decoded
