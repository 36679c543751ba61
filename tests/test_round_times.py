"""Times of rounds by draft length, and strategies whose length follows them."""

from __future__ import annotations

import numpy as np
import pytest
from ml_collections import ConfigDict
from tiny import corpus

import specjax
from specjax import round_times
from specjax.experiments.decode.strategies import load_strategies
from specjax.runtime.errors import UserError

PROMPTS = [each.source for each in corpus()[:3]]
LOADED = {"drafter": "neural", "length": 3, "adapt": "load"}


@pytest.fixture(scope="module")
def loaded(pair):
    return specjax.load(pair / "target"), specjax.load(pair / "drafter")


def generator(loaded, strategy, **how):
    target, drafter = loaded
    how = {"max_new_tokens": 40, **how}
    return specjax.Generator(target, {"drafter": drafter}, strategy, **how)


@pytest.mark.slow
def test_rounds_of_every_length_are_timed(loaded, monkeypatch):
    """By a clock of our own: a drafted token takes half as long as the target, a gap twice."""
    seconds, lengths = round_times._Rounds._seconds, []

    def clock(rounds, length, count):
        missed = int(rounds.state.trace.rounds) and lengths and lengths[-1] == 0 < length
        before = int(rounds.state.trace.rounds)
        seconds(rounds, length, count)
        done = int(rounds.state.trace.rounds) - before
        if done:
            lengths.append(length)
            last = (before + done - 1) % rounds.state.trace.numbers.shape[1]
            drafted = np.asarray(rounds.state.trace.drafted)[:, last]
            room = np.asarray(rounds.state.context.active)
            assert not room.any() or drafted[room].max() == length
        return done * (1 + 0.5 * length) + 2.0 * bool(missed and done)

    monkeypatch.setattr(round_times._Rounds, "_seconds", clock)
    made = generator(loaded, specjax.strategy(**LOADED))
    found = specjax.measure_load(made, PROMPTS, batch_size=4, passes=2)
    numbers = dict(found.numbers)
    assert numbers["times"] == pytest.approx((1.0, 1.5, 2.5))
    assert numbers["catching_up"] == pytest.approx(2.0)
    assert 0.01 <= numbers["acceptance"] <= 0.99
    assert {0, 1, 3} == set(lengths)


@pytest.mark.slow
def test_the_measured_strategy_writes_the_targets_own_texts(loaded):
    made = generator(loaded, specjax.strategy(**LOADED), max_new_tokens=12)
    measured = specjax.measure_load(made, PROMPTS[0], passes=1)
    assert dict(measured.numbers)["times"][0] == 1.0
    own = generator(loaded, None, max_new_tokens=12)
    texts = generator(loaded, measured, max_new_tokens=12)(PROMPTS, batch_size=2).texts
    assert texts == own(PROMPTS).texts


def test_other_strategies_have_no_times_to_measure(loaded):
    for strategy, adapt in ((specjax.speculative(3), "'fixed'"), (None, "None")):
        with pytest.raises(UserError, match=f"adapt {adapt}; it must be 'load' for its times"):
            specjax.measure_load(generator(loaded, strategy), PROMPTS)
    made = generator(loaded, specjax.strategy(**LOADED))
    for name, value in (("passes", 0), ("batch_size", 0), ("seed", -1)):
        with pytest.raises(UserError, match=f"{name} is {value}; it must be"):
            specjax.measure_load(made, PROMPTS, **{name: value})


def test_a_job_refuses_a_length_by_load_without_costs():
    config = ConfigDict({"strategies": {"mine": LOADED}})
    with pytest.raises(UserError, match="mine.adapt is 'load'; it must come with times, catching"):
        load_strategies(config)
    config.strategies.mine.update({"times": (1.0, 1.5, 2.5), "acceptance": 0.6})
    assert dict(load_strategies(config)["mine"].numbers)["times"] == (1.0, 1.5, 2.5)
