"""Predicted speedup and walltime improvement by hand-made counts; result files."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from exits import MODELS, PARAMS

from specjax.contracts.spec import Call
from specjax.decoding.strategy import Strategy
from specjax.decoding.summary import Statistics
from specjax.drafting.copying import PromptLookup
from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.hydra import Hydra
from specjax.drafting.matrix import Cascade
from specjax.drafting.medusa import Medusa
from specjax.drafting.neural import Neural
from specjax.drafting.nothing import Nothing
from specjax.measuring.cost import (
    TRIALS,
    Costs,
    call_times,
    choose_widths,
    draft_calls,
    needed_calls,
    standardized_walltime_improvement,
)
from specjax.measuring.in_place import Work
from specjax.measuring.stopwatch import _call
from specjax.measuring.walltime import ALONE, PricedStrategy, predict_speedups
from specjax.runtime.files import replacing
from specjax.runtime.json_files import write_json
from specjax.theory.speculative import walltime_improvement
from specjax.theory.trees import tree_improvement
from specjax.verification.whole import WholeReader

STATS = Statistics(
    tokens=30, rounds=10, drafted=40, accepted=20, tested=25, overlap=19.0,
    calls={"target": 10, "drafter": 40}, widths={4: 10},
)  # fmt: skip
COSTS = Costs({"target": {1: 2.0, 5: 3.0}, "drafter": {1: 0.2, 2: 0.5, 5: 0.9}})


def test_prediction_is_tokens_per_round_over_kc_plus_v():
    # 3 tokens per round; of 4 drafter calls the first feeds two tokens; v = 3 / 2.
    found = COSTS.predicted_speedup(STATS, Strategy(Neural(4)), "target")
    assert found == pytest.approx(3 / ((0.5 + 3 * 0.2) / 2.0 + 1.5))


def test_narrow_verifications_are_priced_as_such():
    narrow = dataclasses.replace(STATS, widths={4: 5, 0: 5})
    found = COSTS.predicted_speedup(narrow, Strategy(Neural(4)), "target")
    assert found == pytest.approx(3 / ((0.5 + 3 * 0.2) / 2.0 + (1.5 + 1.0) / 2))


def test_a_blockwise_drafter_is_priced_by_its_one_wide_call():
    block = Medusa(4)
    once = dataclasses.replace(STATS, calls={"target": 10, "drafter": 10})
    found = COSTS.predicted_speedup(once, Strategy(block), "target")
    assert found == pytest.approx(3 / (0.9 / 2.0 + 1.5))
    paper = (1 - 0.8**5) / (1 - 0.8) / (1 + 0.9 / 2.0)
    assert COSTS.theoretical_speedup(once, Strategy(block), "target") == pytest.approx(paper)


def test_theorem_3_8_has_the_paper_s_form_when_all_calls_cost_the_same():
    flat = Costs({"target": {1: 2.0, 5: 3.0}, "drafter": {1: 0.2, 2: 0.2}})
    found = flat.theoretical_speedup(STATS, Strategy(Neural(4)), "target")
    assert found == pytest.approx(float(walltime_improvement(0.8, 4, 0.1)))


def test_autoregressive_decoding_is_predicted_at_one():
    baseline = Statistics(30, 30, 0, 0, 0, 0.0, {"target": 30}, {0: 30})
    assert COSTS.predicted_speedup(baseline, Strategy(Nothing()), "target") == pytest.approx(1.0)
    assert COSTS.theoretical_speedup(baseline, Strategy(Nothing()), "target") == pytest.approx(1.0)
    assert standardized_walltime_improvement(30, baseline.calls, {"target": 100}, "target") == 1.0


def test_every_call_that_a_prediction_prices_is_measured_once():
    drafters = [Nothing(), PromptLookup(4), Neural(4), Neural(3)]
    calls = needed_calls(map(Strategy, drafters), "target", {0, 3, 4})
    assert [(call.model, call.tokens) for call in calls] == [
        ("target", 1), ("target", 4), ("target", 5), ("drafter", 1), ("drafter", 2),
    ]  # fmt: skip
    before = {call.tokens: turn for call, turn in calls.items() if call.model == "target"}
    opening, later = Call("drafter", 2, 1), Call("drafter", 1, 1)
    assert before == {1: (), 4: (opening, later, later), 5: (opening, *[later] * 3)}
    assert not any(turn for call, turn in calls.items() if call.model == "drafter")


def test_a_whole_cascade_precedes_the_target_call_of_any_width():
    made = Cascade(("base", "small", "max_gram"), ((2, 2, 2), (0, 1, 1), (0, 0, 2)))
    wider = Cascade(("base", "small"), ((9, 0), (0, 2)))
    width = made.spec.width
    drafters = [wider, made, Neural(1, "small")]
    calls = needed_calls(map(Strategy, drafters), "target", {0, 1, 3, width})
    before = {call.tokens: turn for call, turn in calls.items() if call.model == "target"}
    # Behind drafts of 2 and 3 are fed again: 2 tokens, and by base the 2 that small adds.
    whole = Call("small", 4, 3), Call("base", 7, 4)
    assert made.spec.calls == whole
    assert before == {1: (), 2: (Call("small", 2, 1),), 4: whole, width + 1: whole}
    assert {call.tokens for call in calls if call.model == "base"} == {1, 4, 7}


TREE_COSTS = Costs({"target": {1: 2.0, 9: 4.0}, "drafter": {1: 0.2, 2: 0.3, 4: 0.7}})
TREE = Neural(widths=(4, 1))  # four children of the pending token, a child of each


def test_every_level_of_a_tree_is_measured_as_wide_as_it_is_fed():
    calls = needed_calls([Strategy(TREE)], "target", {8})
    levels = (Call("drafter", 2, 1), Call("drafter", 4, 4))
    assert calls[Call("target", 9, 9)] == levels
    assert set(levels) <= calls.keys()


def test_a_tree_is_predicted_from_its_levels_and_the_reading_of_all_nodes():
    """By hand: 3 tokens a round; levels of 0.3 and 0.7 ms; nine tokens read in 4 ms."""
    stats = dataclasses.replace(STATS, calls={"target": 10, "drafter": 20}, widths={8: 10})
    decoder = SimpleNamespace(drafter=TREE, reader=TREE.reader, target="target")
    own = PricedStrategy(TREE_COSTS, decoder, Work(30, 10, stats.calls, stats.widths))
    found = predict_speedups(stats, own, own, measured=1.0)
    assert found["priced"] == ALONE and found["round_ms"] is None
    assert found["with_v"] == pytest.approx(3 / (0.15 + 0.35 + 2.0))
    assert found["error_percent"] == pytest.approx(20.0)
    assert found["theorem_3_8"] is None  # of chains
    # The closed form with the acceptance that gives as many tokens.
    table = [[0.5, 0.25, 0.125, 0.125], [1.0, 0.0, 0.0, 0.0]]
    closed = tree_improvement(table, TREE.spec.parents, [0.15, 0.1, 0.2, 0.3, 0.35], 2.0)
    assert found["with_v"] == pytest.approx(closed)


def test_an_early_exit_is_timed_by_the_layers_that_run():
    drafters = [Nothing(), EarlyExit(3, exit=1)]
    states = Call("target", 1, 0, exit=1)
    calls = needed_calls(map(Strategy, drafters), "target", {0, 3})
    assert [(call.part, call.tokens) for call in calls] == [
        ("target", 1), ("target[1:]", 1), ("target[1:]", 4),
        ("target[:1]", 1), ("target[:1] states", 1),
    ]  # fmt: skip
    assert draft_calls(drafters[1], 2) == (*[Call("target", 1, 1, exit=1)] * 2, states)


def test_an_early_exit_is_priced_by_its_calls_and_the_target_by_the_rest():
    exits = EarlyExit(4, exit=1)
    parts = {"target[1:]": {1: 1.5, 5: 2.4}, "target[:1]": {1: 0.6}, "target[:1] states": {1: 0.3}}
    costs = Costs({"target": {1: 2.0}, **parts})
    calls = {"target": 10, "target[:1]": 40, "target[:1] states": 9}
    found = costs.predicted_speedup(
        dataclasses.replace(STATS, calls=calls), Strategy(exits), "target"
    )
    assert found == pytest.approx(3 / ((4 * 0.6 + 0.9 * 0.3 + 2.4) / 2.0))


def test_heads_on_the_target_are_priced_by_its_read_out():
    part = "target read-out"
    costs = Costs({"target": {1: 2.0, 4: 3.0}, part: {1: 0.1, 3: 0.2}})
    for drafter, runs, drafting in ((Hydra(3), 3, 0.3), (Medusa(3, model="target"), 1, 0.2)):
        made = dataclasses.replace(STATS, calls={"target": 10, part: 10 * runs}, widths={3: 10})
        found = costs.predicted_speedup(made, Strategy(drafter), "target")
        assert found == pytest.approx(3 / ((drafting + 3.0) / 2.0))
    calls = needed_calls([Strategy(Hydra(2))], "target", {0, 2})
    read_out = Call("target", 1, 1, read_out=True)
    assert [(call.part, call.tokens) for call in calls] == [("target", 1), ("target", 3), (part, 1)]
    assert calls[Call("target", 3, 3)] == (read_out, read_out)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_a_read_out_is_timed_on_states_alone(kind):
    model, params = MODELS[kind], PARAMS[kind]
    cache, _ = model.start(params, jnp.array([[3, 4, 1]]), jnp.array([3]), 16)
    found, after = _call(model, params, cache, Call(kind, 2, 2, read_out=True), jnp.array([[5]]))
    states = jnp.full((1, 2, model.config.d_model), 5.0)
    np.testing.assert_array_equal(found, model.read_out(params, states))
    assert after is cache


class Scripted:
    """A stopwatch on which a call takes a millisecond per token, the target's ten times that.

    From trial to trial the machine slows down by a tenth.
    """

    def timing(self, turns):
        self.trials, self.turns = [], turns
        return self

    def take(self):
        slower = 1 + len(self.trials) / 10
        price = {"target": 10.0 * slower, "drafter": 1.0 * slower}
        self.trials.append(
            [sum(price[call.model] * call.tokens for call in turn) for turn in self.turns]
        )

    def milliseconds(self):
        return np.array(self.trials)


def measure(drafters, widths, **sparse):
    return call_times(Scripted(), [*map(Strategy, drafters)], "target", widths, **sparse).costs()


def test_the_draft_before_a_target_call_is_not_counted_and_the_median_trial_counts():
    costs = measure([Nothing(), Neural(2)], [0, 2])
    median = 1 + (TRIALS - 1) / 2 / 10
    found = {name: {n: ms / median for n, ms in row.items()} for name, row in costs.step.items()}
    assert found["target"] == pytest.approx({1: 10.0, 3: 30.0})
    assert found["drafter"] == pytest.approx({1: 1.0, 2: 2.0})


def test_later_calls_of_a_draft_cost_less_than_the_one_that_opens_it():
    costs = Costs({"target": {1: 10.0, 3: 30.0}, "drafter": {1: 1.0, 2: 2.0}})
    # Three rounds, five runs: two tokens three times, then one token twice.
    assert costs.drafting_ms(Neural(2), 3, {"drafter": 5}) == 3 * 2.0 + 2 * 1.0


def test_widths_between_measured_ones_cost_in_proportion():
    assert COSTS.milliseconds("target", 4) == pytest.approx(2.75)
    assert COSTS.milliseconds("drafter", 2) == 0.5
    with pytest.raises(KeyError):
        COSTS.milliseconds("target", 6)


def test_sparse_costs_time_widths_that_double_and_the_widest():
    drafters = [Neural(length) for length in range(1, 11)]
    widths = range(11)
    kept = choose_widths(needed_calls(map(Strategy, drafters), "target", widths))
    assert [call.tokens for call in kept if call.model == "target"] == [1, 2, 4, 8, 11]
    sparse = measure(drafters, widths, sparse=True)
    whole = measure(drafters, widths)
    assert sparse.step["target"].keys() == {1, 2, 4, 8, 11}
    assert sparse.step["drafter"] == pytest.approx(whole.step["drafter"])
    assert [
        sparse.verification_ms({width: 1}, WholeReader(), "target") for width in widths
    ] == pytest.approx(
        [whole.verification_ms({width: 1}, WholeReader(), "target") for width in widths]
    )


def test_costs_are_told_as_ratios_to_the_one_token_steps():
    entries = COSTS.entries("target")
    assert entries["drafter"]["c"] == pytest.approx(0.1)
    assert entries["target"]["v"] == {"1": 1.0, "5": 1.5}
    assert entries["drafter"]["step_ms"] == {"1": 0.2, "2": 0.5, "5": 0.9}


def test_walltime_improvement_prices_calls_by_parameters():
    sizes = {"target": 100, "drafter": 10}
    value = standardized_walltime_improvement(STATS.tokens, STATS.calls, sizes, "target")
    assert value == pytest.approx(30 / (10 + 40 * 0.1))
    assert standardized_walltime_improvement(0, {"target": 0}, sizes, "target") == 0.0


def test_rates_are_ratios_of_totals():
    assert STATS.acceptance_rate == 20 / 25
    assert STATS.tokens_per_target_call == 3.0


def test_a_failed_write_keeps_the_old_file(tmp_path):
    file = tmp_path / "results.json"
    write_json(file, {"old": 1})
    with pytest.raises(RuntimeError), replacing(file) as partial:
        partial.write_text("half a f")
        raise RuntimeError
    assert file.read_text() == '{\n  "old": 1\n}\n'
    assert list(tmp_path.iterdir()) == [file]
