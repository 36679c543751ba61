"""Tuning: the closed form, what drops out and why, the budget, resumption, errors at the door."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command import ROOT, command, run_refused
from ml_collections import ConfigDict
from pairs import pair_fields
from recorded_rounds import rounds

from specjax.data.batching import Batch
from specjax.data.text import Example
from specjax.decoding.strategy import Strategy
from specjax.drafting.matrix import Cascade
from specjax.drafting.medusa import Medusa
from specjax.drafting.neural import Neural
from specjax.experiments.config.defaults import (
    AUTOREGRESSIVE,
    decode_config,
    neural_spec,
    tune_config,
)
from specjax.experiments.config.file import read_config
from specjax.experiments.config.validation import check_config
from specjax.experiments.decode import job as decode
from specjax.experiments.decode.strategies import load_strategies
from specjax.experiments.tune import job as tune
from specjax.experiments.tune.predict import (
    Predictions,
    Probe,
    call_steps,
    predicted_speedup,
    tokens_per_round,
)
from specjax.experiments.tune.rounds import by_width, judge
from specjax.experiments.tune.space import make_space, round_sizes
from specjax.experiments.tune.trials import (
    Budget,
    OutOfTime,
    Search,
    Trial,
    drop_by_prediction,
    drop_worse,
)
from specjax.measuring.cost import Costs
from specjax.metrics.quality.overlap import Bleu
from specjax.metrics.traces import acceptance
from specjax.runtime.errors import UserError
from specjax.theory.speculative import expected_tokens_by_position, improvement
from specjax.theory.trees import Fastest

SECONDS = {0: 1.0, 1: 0.9, 2: 0.5, 3: 0.7, 4: 0.6, 5: 0.95}
"""By draft length, a token's on the scripted clock: length 2 is the best."""


def base(pair: Path, **changes) -> ConfigDict:
    fields = {
        **pair_fields(pair),
        "examples": 12,
        "max_new_tokens": 6,
        "repeats": 2,
        "bucket": 64,
        "strategies": {
            "autoregressive": AUTOREGRESSIVE,
            "lenient": neural_spec("drafter", 3, rule="lenient", lenience=0.3),
            "plain": neural_spec("drafter", 2),
            "sampled": neural_spec("drafter", 2, temperature=0.7, top_k=5),
        },
    }
    return decode_config(**fields | changes)


def make_config(pair: Path, space=None, **changes) -> ConfigDict:
    space = {"length": (1, 2, 3, 4, 5)} if space is None else space
    settings = {"contenders": 4, "first_examples": 3, "margin": 0.5, "quality_examples": 3}
    return tune_config(base(pair), space, **settings | changes)


class Clock:
    """Stands in for `decode.timed` and the prediction; remembers who decoded which example."""

    def __init__(self, patch: pytest.MonkeyPatch, predicted=None, stop_after=None, trees=()):
        self.decoded: list[tuple[int, int]] = []
        self.predictions = 0
        self.stop_after = stop_after
        self.trees = list(trees)
        self.predicted = predicted or {width: 1 / s for width, s in SECONDS.items()}
        patch.setattr(decode, "time_decode", self.timed)
        patch.setattr(tune, "predict", self.predict)

    def predict(self, job, space, batches, budget):
        budget.check()
        self.predictions += 1
        found = {c.name: self.predicted[c.strategy.drafter.spec.width] for c in space.candidates}
        return Predictions(found, {}, self.trees)

    def timed(self, generator, batch, seed):
        if self.stop_after is not None and len(self.decoded) >= self.stop_after:
            raise KeyboardInterrupt
        width = generator.decoder.drafter.spec.width
        self.decoded.append((width, int(batch.index[0])))
        return SECONDS[width] * 4, [[5, 6, 7, 8]] * batch.rows, None


def table(content) -> dict[int, dict]:
    return {line["fields"]["length"]: line for line in content["table"]}


# --- The closed form ------------------------------------------------------------------------------

COSTS = Costs({"target": {1: 2.0, 2: 2.2, 5: 4.0}, "drafter": {1: 0.2, 2: 0.3, 5: 0.8}})


def make_probe(strategy: Strategy, seen, costs: Costs = COSTS) -> Probe:
    """A probe whose rounds took as long as their calls."""
    bare = Probe(strategy, seen, 1.0)
    speedup = tokens_per_round(seen, strategy) / sum(call_steps(costs, bare, strategy, "target"))
    return dataclasses.replace(bare, speedup=speedup)


def kc_and_v(length: int, calls: float | None = None) -> tuple[float, float]:
    """Of neural drafts that take so many calls, on average; `length` when not given."""
    drafting = (0.3 + ((calls or length) - 1) * 0.2) / 2.0
    return drafting, COSTS.milliseconds("target", length + 1) / 2.0


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_every_length_is_predicted_from_rounds_of_the_longest(length):
    """E[tokens] from acceptance by position, over K c + v with measured c and v.

    See docs/methods/speculative_sampling.md, "Speedup".
    """
    seen = rounds([1, 3, 5, 2, 5, 1, 1, 4], [4] * 8, calls=8 * 4)
    alphas = [entry["rate"] for entry in acceptance(seen)["by_position"]][:length]
    expected = improvement(expected_tokens_by_position(alphas), *kc_and_v(length))
    probe = make_probe(Strategy(Neural(4)), seen)
    found = predicted_speedup(COSTS, probe, Strategy(Neural(length)), "target")
    assert found == pytest.approx(float(expected))


def test_what_calls_do_not_explain_of_the_probe_is_shared_by_drafted_tokens():
    longest, seen = Strategy(Neural(4)), rounds([2, 4], [4, 4], calls=8)
    probe = Probe(longest, seen, speedup=1.0)  # a round of 3 tokens took 3 target steps
    assert predicted_speedup(COSTS, probe, longest, "target") == pytest.approx(1.0)
    each = (3.0 - sum(kc_and_v(4))) / 4
    found = predicted_speedup(COSTS, probe, Strategy(Neural(1)), "target")
    assert found == pytest.approx(2.0 / (sum(kc_and_v(1)) + each))


@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_lengths_between_two_probes_are_priced_on_the_line_between_them(length):
    """In the loop a round takes 0.5 target steps and each of its tokens 0.1 beyond the calls."""

    def took(length: int) -> float:
        return sum(kc_and_v(length)) + 0.5 + 0.1 * length

    seen, few = rounds([2, 4], [4, 4], calls=8), rounds([1, 2], [1, 1], calls=2)
    short = Probe(Strategy(Neural(1)), few, speedup=1.5 / took(1))
    probe = Probe(Strategy(Neural(4)), seen, speedup=3.0 / took(4), shorter=short)
    tokens = np.minimum([2, 4], length + 1).mean()
    found = predicted_speedup(COSTS, probe, Strategy(Neural(length)), "target")
    assert found == pytest.approx(tokens / took(length))


def test_calls_that_take_longer_alone_than_in_the_loop_are_set_off():
    longest, seen = Strategy(Neural(4)), rounds([2, 4], [4, 4], calls=8)
    probe = Probe(longest, seen, speedup=3.0)  # of rounds that take one target step
    assert sum(kc_and_v(4)) > 1.0
    assert predicted_speedup(COSTS, probe, longest, "target") == pytest.approx(3.0)


def stop_probe(length: int) -> Strategy:
    return Strategy(Neural(length, confidence="confidence"))


def test_a_stopped_draft_is_priced_by_the_calls_it_made():
    """Drafts of 0, 1 and 4 tokens: 1, 2 and 4 calls, of which at most K at length K."""
    seen = rounds([1, 2, 5], [0, 1, 4], calls=1 + 2 + 4)
    probe = make_probe(stop_probe(4), seen)
    for length, calls in ((4, 7), (2, 5), (1, 3)):
        tokens = np.minimum([1, 2, 5], length + 1).mean()
        found = predicted_speedup(COSTS, probe, stop_probe(length), "target")
        assert found == pytest.approx(tokens / sum(kc_and_v(length, calls / 3)))


def test_parallel_heads_are_priced_by_one_call_a_round():
    heads = Strategy(Medusa(4))
    probe = make_probe(heads, rounds([1, 3], [4, 4], calls=2))
    found = predicted_speedup(COSTS, probe, heads, "target")
    assert found == pytest.approx(2.0 / (0.8 / 2.0 + 4.0 / 2.0))


def test_a_cascade_is_priced_by_the_calls_that_its_probe_counted():
    cascade = Cascade(("drafter", "max_gram"), ((4, 0), (0, 2)))
    made = Strategy(cascade)  # two to four reviews for 4 to 6
    costs = Costs({"target": {1: 2.0, 7: 5.0}, "drafter": {1: 0.2, 4: 0.6}})
    probe = make_probe(made, rounds([1, 5], [4, 6], calls=7), costs)
    found = predicted_speedup(costs, probe, made, "target")
    assert found == pytest.approx(3.0 / ((3.5 * 0.6 + 5.0) / 2.0))


# --- What is searched -----------------------------------------------------------------------------


def test_the_first_lossless_neural_strategy_is_tuned_over_lengths_1_to_10(pair):
    space = make_space(make_config(pair, {}))
    assert space.strategy == "plain" and not space.judged
    assert [each.fields["length"] for each in space.candidates] == list(range(1, 11))
    assert [each.fields["length"] for each in space.probes.values()] == [10]


def test_confidence_is_searched_where_the_strategy_has_it(pair):
    config = make_config(pair, {})
    with config.unlocked():
        config.base.strategies.plain.confidence = 0.3
    space = make_space(config)
    assert len(space.candidates) == 40
    assert not space.judged  # a confidence stop leaves the outputs as they are
    assert {p.fields["confidence"]: p.fields["length"] for p in space.probes.values()} == {
        0.2: 10, 0.4: 10, 0.6: 10, 0.8: 10,
    }  # fmt: skip


def test_outputs_are_judged_when_a_threshold_that_changes_them_is_searched(pair):
    lenient = {"strategy": "lenient"}
    assert not make_space(make_config(pair, {}, **lenient)).judged  # lengths 1 to 10 alone
    judged = make_space(make_config(pair, {"length": (2, 3), "lenience": (0.1, 1.0)}, **lenient))
    assert judged.judged
    assert judged.first_examples(make_config(pair, quality_examples=50)) == 50


def test_a_sampling_strategy_is_compared_with_the_target_sampling_alike(pair):
    space = make_space(make_config(pair, strategy="sampled"))
    baseline = space.decode.strategies[space.baseline]
    assert dict(baseline) == {"drafter": "none", "temperature": 0.7, "top_k": 5}


MISTAKES = {
    "an unknown strategy": ({}, {"strategy": "nope"}, "config.strategy is 'nope'; it must name"),
    "one that drafts nothing": ({}, {"strategy": "autoregressive"}, "must name a strategy"),
    "a field it lacks": ({"lenience": (0.5,)}, {}, "lenience does not apply to drafter 'neural'"),
    "an unknown field": ({"size": (1,)}, {}, "plain.size does not apply to drafter"),
    "a value out of range": ({"length": (0, 1)}, {}, "plain.length is 0; it must be an integer"),
    "no values": ({"length": ()}, {}, r"config.space.length is \(\); it must be a list"),
    "a value twice": ({"length": (2, 2)}, {}, r"config.space.length is \[2, 2\]; its values"),
    "another objective": ({}, {"objective": "bleu"}, "config.objective is 'bleu'; it must be one"),
    "no time": ({}, {"budget_seconds": 0.0}, "config.budget_seconds is 0.0; it must be a positive"),
    "no number": ({}, {"contenders": 0}, "config.contenders is 0; it must be an integer of at"),
    "trees of many nodes": (
        {},
        {"tree_nodes": 999},
        r"is 999; it must be 0 \(no trees\) or from 2",
    ),
    "trees by a price": (
        {},
        {"tree_nodes": 8, "objective": "swi"},
        "is 8; it must be 0 .* widths",
    ),
    "trees beside a threshold": (
        {"length": (1,), "confidence": (0.4,)},
        {"tree_nodes": 8},
        "with no other field",
    ),
    "trees of another rule": (
        {},
        {"tree_nodes": 8, "strategy": "lenient"},
        "drafts that are trees need",
    ),
    "a negative loss": ({}, {"quality_loss": -1.0}, "config.quality_loss is -1.0; it must be a"),
}


@pytest.mark.parametrize(("space", "changes", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_bad_config_is_refused_in_one_sentence(space, changes, message, pair, tmp_path):
    with pytest.raises(UserError, match=message) as refusal:
        config = make_config(pair, space, **changes)
        check_config(config)
        tune.run(config, tmp_path / "out")
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "out").exists()


def test_candidates_are_compared_by_static_batches(pair, tmp_path):
    config = make_config(pair, {})
    config.base.batching = "filled"
    with pytest.raises(UserError, match="config.base.batching is 'filled'; it must be 'static'"):
        tune.run(config, tmp_path / "out")


def test_outputs_that_change_cannot_be_judged_without_a_metric(pair, tmp_path):
    config = make_config(pair, {"lenience": (0.1, 1.0)}, strategy="lenient")
    config.base.metric = "none"
    with pytest.raises(UserError, match="config.base.metric is 'none'"):
        tune.run(config, tmp_path)


# --- What drops out -------------------------------------------------------------------------------


def test_the_prediction_keeps_the_best_few_within_a_margin():
    trials = [Trial({}, predicted=x) for x in (1.0, 1.5, 1.45, 1.2, 1.49)]
    drop_by_prediction([trials], margin=0.25, most=2)
    assert [trial.dropped for trial in trials] == ["prediction", "", "prediction", "prediction", ""]
    assert trials[0].reason == "predicted 33% below the best"
    assert trials[2].reason == "2 are predicted to be faster"


@pytest.mark.parametrize(
    ("objective", "kept", "reason"),
    [
        ("time", 1, "25.0% slower than the fastest"),
        ("swi", 2, "50.0% more expensive than the cheapest"),
    ],
)
def test_the_worse_half_by_the_objective_drops_out(objective, kept, reason):
    trials = [Trial({}, seconds=[s], tokens=[4], swi=x) for s, x in ((8, 1.0), (4, 2.0), (5, 3.0))]
    drop_worse(dict(enumerate(trials)), objective, 1, "round 3")
    assert [trial.dropped for trial in trials].index("") == kept
    assert {trial.reason for trial in trials} >= {reason}


def test_rounds_double_until_one_candidate_or_no_example_is_left():
    assert round_sizes(10, 200, contenders=4) == [10, 20]
    assert round_sizes(10, 200, contenders=7) == [10, 20]
    assert round_sizes(10, 200, contenders=8) == [10, 20, 40]
    assert round_sizes(10, 15, contenders=8) == [10, 15]
    assert round_sizes(10, 200, contenders=1) == [10]


def test_the_commonest_prompt_width_is_decoded_first():
    def batch(index, width):
        row = np.zeros((1, width), np.int32)
        return Batch(row, row[:, 0], row[:, 0], np.array([index]), 1)

    found = by_width([batch(0, 8), batch(1, 24), batch(2, 16), batch(3, 16)])
    assert [int(each.index[0]) for each in found] == [2, 3, 0, 1]


def test_a_lossy_candidate_beyond_the_allowed_loss_drops_out(monkeypatch):
    def score(_, texts, wanted):
        return {"same": 100 * np.mean([a == b for a, b in zip(texts, wanted, strict=True)])}

    monkeypatch.setattr(Bleu, "__call__", score)
    examples = [Example("", text) for text in "abcd"]
    batches = [SimpleNamespace(index=np.array([3, 2, 1]), rows=3)]  # not in the data's order
    baseline = Trial({}, outputs=["d", "c", "x"])
    good, bad = Trial({}, False, outputs=["d", "c", "y"]), Trial({}, False, outputs=["d", "x", "x"])
    search = Search(baseline, {"good": good, "bad": bad})
    judge(SimpleNamespace(examples=examples, metric="bleu"), search, batches, 10.0, "round 1")
    assert (good.dropped, bad.dropped) == ("", "round 1")
    assert bad.reason == "same is 33.33 points below the target's"


# --- Searches on a scripted clock -----------------------------------------------------------------


def test_the_fastest_is_found_and_everything_tried_is_told(pair, tmp_path, monkeypatch, capsys):
    clock = Clock(monkeypatch)
    content = tune.run(make_config(pair), tmp_path)
    assert content["status"] == "finished"
    assert content["chosen"]["fields"] == {"length": 2}
    assert content["chosen"]["flags"] == ["--config.strategies.plain.length=2"]
    assert content["chosen"]["speedup"] == pytest.approx(2.0)
    found = table(content)
    assert {n: line["dropped"] for n, line in found.items()} == {
        1: "round 1", 2: None, 3: "round 1", 4: "round 2", 5: "prediction",
    }  # fmt: skip
    assert {n: line["examples"] for n, line in found.items()} == {1: 3, 2: 6, 3: 3, 4: 6, 5: 0}
    assert found[4]["reason"] == "20.0% slower than the fastest"
    assert json.loads((tmp_path / "tune.json").read_text()) == json.loads(json.dumps(content))
    printed = capsys.readouterr().out
    assert "--config.strategies.plain.length=2" in printed
    assert all(f"length {n} " in printed for n in found)
    # A warm-up and two repeats of each; the target beside every round, at 6 examples once.
    counts = Counter(width for width, _ in clock.decoded)
    assert counts == {0: 1 + 6 * 2 + 1, 1: 1 + 3 * 2, 2: 14, 3: 7, 4: 14}


def test_candidates_decode_the_same_examples_in_alternating_order(pair, tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    tune.run(make_config(pair), tmp_path)
    first = clock.decoded[5:15]  # behind the warm-up: two repeats of the first example
    assert [width for width, _ in first] == [0, 1, 2, 3, 4, 4, 3, 2, 1, 0]
    assert len({example for _, example in first}) == 1
    examples = {w: {e for width, e in clock.decoded if width == w} for w in (0, 2, 4)}
    assert examples[0] == examples[2] == examples[4] and len(examples[0]) == 6


def test_an_interrupted_search_goes_on_after_its_last_round(pair, tmp_path, monkeypatch):
    whole = Clock(monkeypatch)
    expected = tune.run(make_config(pair), tmp_path / "whole")
    first = 5 * (1 + 3 * 2)  # decodes of the first round
    with pytest.raises(KeyboardInterrupt):
        Clock(monkeypatch, stop_after=first + 4)
        tune.run(make_config(pair), tmp_path / "cut")
    assert json.loads((tmp_path / "cut" / "tune.json").read_text())["status"] == "running"
    again = Clock(monkeypatch)
    content = tune.run(make_config(pair), tmp_path / "cut")
    assert again.predictions == 0
    assert again.decoded == whole.decoded[first:]
    assert content["table"] == expected["table"] and content["chosen"] == expected["chosen"]
    idle = Clock(monkeypatch)
    assert tune.run(make_config(pair), tmp_path / "cut")["chosen"] == expected["chosen"]
    assert not idle.decoded and not idle.predictions


def test_another_config_begins_anew(pair, tmp_path, monkeypatch):
    Clock(monkeypatch)
    tune.run(make_config(pair), tmp_path)
    other = Clock(monkeypatch)
    tune.run(make_config(pair, first_examples=4), tmp_path)
    assert other.predictions == 1


@pytest.mark.slow
@pytest.mark.parametrize(("checks", "chosen", "decoded"), [(1, None, 0), (2, 2, 0), (8, 2, 1)])
def test_out_of_time_the_best_so_far_is_told(
    checks, chosen, decoded, pair, tmp_path, monkeypatch, capsys
):
    """After so many checks of the budget: nothing known, only predictions, one example decoded."""
    Clock(monkeypatch)
    with monkeypatch.context() as patch:
        left = iter(range(checks))

        def check(_):
            if next(left, None) is None:
                raise OutOfTime

        patch.setattr(Budget, "check", check)
        content = tune.run(make_config(pair), tmp_path)
    assert content["status"] == "out of time"
    assert (content["chosen"] or {}).get("fields") == (chosen and {"length": chosen})
    assert table(content)[4]["examples"] == decoded
    assert "out of time" in table(content)[4]["reason"]
    assert "the best so far" in capsys.readouterr().out
    finished = tune.run(make_config(pair, budget_seconds=1000.0), tmp_path)
    assert finished["status"] == "finished"
    assert table(finished)[4]["dropped"] == "round 2"


def test_a_used_up_budget_loads_nothing(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(tune, "load_pair", None)
    content = tune.run(make_config(pair, budget_seconds=1e-9), tmp_path)
    assert content["status"] == "out of time" and content["chosen"] is None


def test_what_the_config_does_not_spell_is_told_apart_from_flags(pair, tmp_path, monkeypatch):
    Clock(monkeypatch)
    content = tune.run(make_config(pair, {"length": (2,), "confidence": (0.4,)}), tmp_path)
    assert content["chosen"]["flags"] == ["--config.strategies.plain.length=2"]
    assert content["chosen"]["not_in_config"] == {"confidence": 0.4}


def test_a_drafter_that_never_helps_is_said_so(pair, tmp_path, monkeypatch, capsys):
    Clock(monkeypatch)
    monkeypatch.setitem(SECONDS, 2, 1.25)
    content = tune.run(make_config(pair, {"length": (2,)}), tmp_path)
    assert content["chosen"]["speedup"] == pytest.approx(0.8)
    assert "decode without a drafter" in capsys.readouterr().out


# --- Trees beside chains --------------------------------------------------------------------------

BRANCHED = Fastest((-1, -1, 0, 0, 1, 2), tokens=2.6, improvement=2.2)


def test_a_tree_is_run_beside_chains_and_written_as_a_config(pair, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(SECONDS, 6, 0.4)
    Clock(monkeypatch, trees=[BRANCHED])
    config = make_config(pair, tree_nodes=8)
    content = tune.run(config, tmp_path)
    chosen = content["chosen"]
    assert chosen["fields"] == {"parents": BRANCHED.parents} and chosen["flags"] == []
    assert chosen["speedup"] == pytest.approx(2.5) and chosen["predicted"] == 2.2
    # Two chains beside it: `contenders` are shared.
    dropped = [line["dropped"] for line in content["table"]]
    assert dropped.count("prediction") == 3 and len(dropped) == 6
    printed = capsys.readouterr().out
    assert "plain: tree of 6 nodes, 3 levels, 2.50 times as fast" in printed
    written = read_config(str(tmp_path / "chosen.py"))
    check_config(written)
    assert written.source_file == config.base.source_file
    strategies = load_strategies(written)
    assert strategies.keys() == {"autoregressive", "plain"}
    assert strategies["plain"] == Strategy(Neural(parents=BRANCHED.parents))
    idle = Clock(monkeypatch)
    again = tune.run(config, tmp_path)
    assert not idle.decoded and not idle.predictions
    assert json.loads(json.dumps(again["chosen"])) == json.loads(json.dumps(chosen))


def test_the_dry_run_says_what_trees_follow_from(pair, capsys):
    tune.plan(make_config(pair, tree_nodes=16))
    printed = capsys.readouterr().out
    assert "a tree of widths (4, 4, 3, 2): shapes of at most 16 nodes follow" in printed
    assert "at most 4 run" in printed


@pytest.mark.parametrize(
    "stop",
    [{"confidence": 0.4}, {"entropy": 1.0}, {"adapt": "break_even", "cost": 0.1},
     {"online_rate": 0.3, "online_divergence": "total_variation"}],
)  # fmt: skip
def test_trees_are_searched_beside_chains_that_stop_adapt_or_learn(stop, pair, capsys):
    config = make_config(pair, {"length": (1, 2)}, tree_nodes=16)
    config.base.strategies.plain = neural_spec("drafter", 2, **stop)
    tune.plan(config)
    assert "a tree of widths (4, 4, 3, 2)" in capsys.readouterr().out


@pytest.mark.slow
def test_trees_are_searched_on_real_decodes(pair, tmp_path):
    config = make_config(pair, {"length": (1, 2)}, margin=1.0, tree_nodes=4, strategy="sampled")
    content = tune.run(config, tmp_path)
    assert content["status"] == "finished"
    search = content["search"]
    assert search["acceptance"]["tried"][0][0] > 0
    assert search["costs"]["T=0.7, top-k 5"]["target"]["step_ms"].keys() >= {"1", "4", "8", "165"}
    assert search["trees"], "a pair this small has trees that branch"
    for name in search["trees"]:
        assert search["trials"][name]["predicted"] > 0 and search["trials"][name]["seconds"]


# --- Searches on real decodes ---------------------------------------------------------------------


def test_a_search_runs_to_its_end(pair, tmp_path):
    content = tune.run(make_config(pair, {"length": (1, 2)}, margin=1.0), tmp_path)
    assert content["status"] == "finished"
    assert all(line["predicted"] > 0 and line["speedup"] > 0 for line in content["table"])
    assert content["search"]["costs"]["greedy"]["target"]["step_ms"].keys() == {"1", "2", "3"}
    assert content["search"]["rounds"] == 1
    tokens = {tuple(t["tokens"][:3]) for t in content["search"]["trials"].values()}
    assert tokens == {tuple(content["search"]["alone"]["tokens"][:3])}  # lossless


@pytest.mark.slow
def test_a_search_by_swi_prices_the_calls_of_every_candidate(pair, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(tune, "predict", None)
    config = make_config(pair, {"length": (1, 4)}, objective="swi")
    with config.base.prices.unlocked():
        config.base.prices.update(target=2.0, drafter=0.5)
    content = tune.run(config, tmp_path)
    trials = list(content["search"]["trials"].values())
    found = [line["swi"] for line in content["table"]]
    assert found == pytest.approx(
        [sum(t["tokens"]) / (t["calls"]["target"] + t["calls"]["drafter"] / 4) for t in trials]
    )
    assert trials[1]["calls"]["drafter"] > trials[0]["calls"]["drafter"]
    assert content["search"]["alone"]["swi"] == 1.0
    assert content["chosen"]["swi"] == max(found)
    assert all(line["predicted"] is None for line in content["table"])
    assert f"walltime improvement {max(found):.2f}" in capsys.readouterr().out


@pytest.mark.slow
def test_leniency_is_searched_within_the_allowed_loss(pair, tmp_path, monkeypatch):
    """Scored against the target's own outputs, so that any change is a loss."""
    config = make_config(pair, {"lenience": (1e-6, 1.0)}, strategy="lenient", quality_loss=1.0)
    own: list[str] = []

    def same(metric, outputs, references):
        own[:] = own or outputs  # the target alone is scored first
        return {"bleu": 100 * np.mean([a == b for a, b in zip(outputs, own, strict=True)])}

    monkeypatch.setattr(Bleu, "__call__", same)
    content = tune.run(config, tmp_path)
    first, second = content["table"]
    assert content["chosen"]["fields"] == {"lenience": 1.0}
    assert "points below the target's" in first["reason"] and first["quality"]["bleu"] < 99
    assert second["quality"]["bleu"] == 100


# --- The command line -----------------------------------------------------------------------------


def test_the_dry_run_of_the_config_in_the_box_prints_candidates_and_work(capsys):
    words = f"{ROOT / 'configs' / 'translate.py'};length=1,2,6;confidence=0.2,0.4"
    config = read_config(f"{ROOT / 'configs' / 'tune.py'}:{words}")
    config.base.target, config.base.drafter = "target", "drafter"
    tune.plan(config)
    printed = capsys.readouterr().out
    assert "speculative_3: 6 candidates" in printed
    assert "confidence 0.2, length 6" in printed
    assert "calls of target timed with 1, 2, 7 tokens" in printed
    assert "at most 6 run, in rounds of 16, 32 examples of 200" in printed
    config.objective = "swi"
    tune.plan(config)
    printed = capsys.readouterr().out
    assert "timed" not in printed and "at most 6 run" in printed


def test_a_space_that_cannot_be_read_is_one_sentence(monkeypatch):
    monkeypatch.chdir(ROOT)
    done = command("--config=configs/tune.py:configs/translate.py;length", "--dry_run")
    run_refused(done.returncode, done.stderr, "'length' after the base config is not a field")
    assert done.stderr.strip().count("\n") == 0
