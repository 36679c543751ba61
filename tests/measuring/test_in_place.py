"""Rounds priced in place, by a made-up clock whose rounds cost more than their calls."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest

from specjax.decoding.strategy import Strategy
from specjax.decoding.summary import Statistics
from specjax.drafting.copying import PromptLookup
from specjax.drafting.neural import Neural
from specjax.drafting.nothing import Nothing
from specjax.measuring.cost import Costs
from specjax.measuring.in_place import (
    RoundPrice,
    Sample,
    Work,
    calls_ms,
    draft_price,
    milliseconds_per_token,
    round_price,
)
from specjax.measuring.walltime import ALONE, IN_PLACE, PricedStrategy, predict_speedups, time_spent

COSTS = Costs(
    {
        "target": {1: 2.0, 2: 2.2, 5: 3.0, 9: 4.0},
        "drafter": {1: 0.2, 2: 0.3, 4: 0.7},
    }
)
"""Of calls timed alone."""

ROUND, TOKEN, STEP = 0.9, 0.15, 0.4
"""Milliseconds that the loop adds to a round, to a drafted token, and to a step of the target."""

SLOWER = (1.0, 1.3, 0.8, 1.1, 1.0)
"""The machine in every pass."""


def make_strategy(length: int) -> Strategy:
    return Strategy(Neural(length)) if length else Strategy(Nothing())


def work(length: int, rounds: int = 10, tokens: int | None = None) -> Work:
    """Full drafts of a neural drafter; of length 0 the target alone."""
    runs = {"target": rounds} | ({"drafter": rounds * length} if length else {})
    return Work(rounds if tokens is None else tokens, rounds, runs, {length: rounds})


def clock(one: Strategy, done: Work, length: int) -> float:
    """Milliseconds that rounds take: more than their calls take alone."""
    more = ROUND + length * TOKEN if length else STEP
    return calls_ms(COSTS, done, one, "target") + done.rounds * more


def samples(length: int, rounds: int = 10) -> list[Sample]:
    one, done = make_strategy(length), work(length, rounds)
    return [Sample(slow * clock(one, done, length), done) for slow in SLOWER]


def price_round(length: int) -> RoundPrice:
    given = samples(length), samples(0, 24)
    return round_price(*given, COSTS, make_strategy(length), "target")


@pytest.mark.parametrize("length", [0, 1, 4, 8])
def test_a_round_costs_what_it_took_whatever_the_machine_did_meanwhile(length):
    found, one = price_round(length), make_strategy(length)
    assert found.round_ms == pytest.approx(clock(one, work(length), length) / 10)
    assert found.calls_ms == pytest.approx(calls_ms(COSTS, work(length), one, "target") / 10)
    more = ROUND + length * TOKEN if length else STEP
    assert found.beyond_calls_ms == pytest.approx(more)


def test_passes_that_a_machine_disturbed_do_not_count():
    hit = samples(4)
    hit[1] = dataclasses.replace(hit[1], milliseconds=10 * hit[1].milliseconds)
    found = round_price(hit, samples(0), COSTS, make_strategy(4), "target")
    assert found.round_ms == pytest.approx(price_round(4).round_ms)


def test_passes_without_rounds_do_not_count():
    none = Sample(0.1, Work(0, 0, {"target": 0, "drafter": 0}, {}))
    given = [none, *samples(4)[1:]], samples(0)
    assert round_price(*given, COSTS, make_strategy(4), "target").beyond_calls_ms == pytest.approx(
        ROUND + 4 * TOKEN
    )
    assert round_price([none], samples(0)[:1], COSTS, make_strategy(4), "target") is None


def test_what_a_round_and_a_drafted_token_add_is_recovered_from_lengths():
    found = draft_price({n: price_round(n).beyond_calls_ms for n in (1, 4, 8)})
    assert (found.round_, found.token) == pytest.approx((ROUND, TOKEN))
    # So a length that never ran is priced too.
    one, done = make_strategy(6), work(6)
    known = calls_ms(COSTS, done, one, "target") / 10 + found.beyond_calls(6)
    assert known == pytest.approx(clock(one, done, 6) / 10)
    assert draft_price({4: 2.0}).beyond_calls(4) == 2.0


def test_drafts_of_other_widths_than_in_the_passes_cost_their_own_calls():
    """Copies are found in half of the passes' rounds, and in all rounds of the run."""
    one = Strategy(PromptLookup(4))
    seen = Work(20, 10, {"target": 10}, {0: 5, 4: 5})
    passes = [Sample(slow * clock(one, seen, 0), seen) for slow in SLOWER]
    price = round_price(passes, samples(0), COSTS, one, "target")
    done = Work(50, 10, {"target": 10}, {4: 10})
    took = milliseconds_per_token(price, COSTS, done, one, "target")
    assert took == pytest.approx((10 * 3.0 + 10 * STEP) / 50)


def decoder(one: Strategy) -> SimpleNamespace:
    return SimpleNamespace(drafter=one.drafter, reader=one.reader, target="target")


def statistics(done: Work) -> Statistics:
    counts = {"drafted": 40, "accepted": 20, "tested": 25, "overlap": 19.0}
    rounds = done.rounds
    return Statistics(done.tokens, rounds, **counts, calls=done.runs, widths=dict(done.widths))


def prediction(one: Strategy, done: Work, price: RoundPrice | None, measured: float):
    base = PricedStrategy(COSTS, decoder(make_strategy(0)), work(0, 24), price_round(0))
    own = PricedStrategy(COSTS, decoder(one), done, price)
    return predict_speedups(statistics(done), own, base, measured)


@pytest.mark.parametrize("length", range(1, 9))
def test_rounds_priced_in_place_predict_what_the_clock_gives(length):
    """Where calls alone are far off: the loop's own work weighs most in short drafts."""
    one, done = make_strategy(length), work(length, rounds=40, tokens=100)
    measured = (2.0 + STEP) / (clock(one, done, length) / 100)
    found = prediction(one, done, price_round(length), measured)
    assert found["priced"] == IN_PLACE
    assert found["with_v"] == pytest.approx(measured)
    assert abs(found["error_percent"]) < 1e-6
    assert found["calls_alone"] > 1.1 * measured
    assert found["round_ms"] - found["calls_ms"] == pytest.approx(ROUND + length * TOKEN)


def test_without_a_price_of_rounds_calls_alone_predict_and_the_result_says_so():
    one, done = make_strategy(4), work(4, rounds=40, tokens=100)
    found = prediction(one, done, None, 1.0)
    assert found["priced"] == ALONE
    assert found["with_v"] == found["calls_alone"]
    assert found["round_ms"] is None


def test_a_tree_is_priced_in_place_as_chains_are():
    one = Strategy(Neural(widths=(4, 1)))
    done = Work(30, 10, {"target": 10, "drafter": 20}, {8: 10})
    took = 10 * (0.3 + 0.7 + 4.0) + 10 * ROUND
    passes = [Sample(slow * took, done) for slow in SLOWER]
    price = round_price(passes, samples(0), COSTS, one, "target")
    found = prediction(one, done, price, (2.0 + STEP) / (took / 30))
    assert found["error_percent"] == pytest.approx(0.0, abs=1e-9)
    assert found["theorem_3_8"] is None


def test_time_beyond_the_calls_timed_alone_is_the_rest():
    own = PricedStrategy(COSTS, decoder(make_strategy(4)), work(4), price_round(4))
    found = time_spent(own, total=0.1, fixed=0.01)
    assert found["target"] == pytest.approx(10 * 3.0 / 1e3)
    assert found["drafter"] == pytest.approx((10 * 0.3 + 30 * 0.2) / 1e3)
    assert sum(found[part] for part in ("target", "drafter", "rest", "fixed")) == pytest.approx(0.1)
