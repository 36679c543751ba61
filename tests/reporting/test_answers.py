"""What a newcomer asks of a run, answered for runs of many kinds."""

from __future__ import annotations

from typing import Any

import pytest
import synthetic

from specjax.reporting.answers import answers, exact, fastest
from specjax.reporting.causes import what_if, why_not_faster

ALONE: dict[str, Any] = {
    "ms_per_token": 2.0, "speedup": 1.0, "speedup_low": None, "speedup_high": None,
    "lossless": True, "identical_to_target": 1.0, "differing": 0, "near_ties": 0, "quality": {},
    "tokens": 400, "acceptance_rate": 0.0, "tokens_per_target_call": 1.0,
    "baseline": "autoregressive",
}  # fmt: skip


def entry(speedup: float, **changes: Any) -> dict[str, Any]:
    return ALONE | {"ms_per_token": 2.0 / speedup, "speedup": speedup} | changes


def run(**others: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"autoregressive": ALONE, **others}


def make_sampled(**changes: Any) -> dict[str, Any]:
    return {"identical_to_target": None, "differing": None, "near_ties": None} | changes


LOSSY = {"lossless": False, "differing": None, "near_ties": None, "identical_to_target": 0.75}


def test_every_question_has_an_answer_for_all_kinds_of_results():
    kinds = [
        synthetic.results(),
        synthetic.old_results(),
        {"strategies": run(), "data": {"examples": 3}},
        {"strategies": run(lossy=entry(2.0, **LOSSY)), "data": {"examples": 3}},
    ]
    for results in kinds:
        found = answers(results)
        assert len(found) == 3
        for answer in found:
            assert answer.question.endswith("?") and answer.short
            for sentence in (answer.short, *answer.sentences):
                assert sentence[0] in "`" or sentence[0].isupper() or sentence[0].isdigit()
                assert not {"None", "nan", "inf"} & set(sentence.split())
            assert all(sentence.endswith(".") for sentence in answer.sentences)


def test_the_fastest_has_its_interval_and_both_times():
    short, sentences = fastest(
        run(
            slow=entry(1.2, speedup_low=1.1, speedup_high=1.3),
            fast=entry(1.6, speedup_low=1.5, speedup_high=1.7),
        )
    )
    assert short == "`fast`: 1.60 times as fast as the target alone"
    assert sentences == [
        "The fastest strategy that keeps the target's output is `fast`: 1.60 times as fast as the"
        " target alone (95% interval 1.50 to 1.70), 1.25 ms per token instead of 2.00."
    ]


def test_intervals_that_overlap_are_named():
    near = entry(1.5, speedup_low=1.45, speedup_high=1.55)
    _, sentences = fastest(run(near=near, fast=entry(1.6, speedup_low=1.5, speedup_high=1.7)))
    assert sentences[1].startswith("Its interval overlaps that of `near`:")


def test_a_faster_lossy_strategy_is_told_apart():
    short, sentences = fastest(run(fast=entry(1.5), loose=entry(1.9, **LOSSY)))
    assert short.startswith("`fast`: 1.50")
    assert sentences[1].startswith("Fastest of all is `loose`, 1.90 times")
    _, sentences = fastest(run(fast=entry(1.5), loose=entry(1.2, **LOSSY)))
    assert "loose" not in " ".join(sentences)


def test_without_a_lossless_strategy_the_fastest_is_called_lossy():
    short, (sentence,) = fastest(run(loose=entry(1.9, **LOSSY)))
    assert short == "`loose`: 1.90 times as fast as the target alone, but lossy"
    assert sentence.startswith("All strategies may change the text;")


def test_a_speedup_below_one_is_no_speedup():
    short, (sentence,) = fastest(run(slow=entry(0.8, speedup_low=0.7, speedup_high=0.9)))
    assert short == "The target alone, `autoregressive`"
    assert "no strategy" in sentence.lower() and "2.00 ms per token" in sentence


def test_an_interval_around_one_is_no_winner():
    short, (sentence,) = fastest(run(even=entry(1.05, speedup_low=0.95, speedup_high=1.1)))
    assert short.startswith("No clear winner") and "may be no faster" in sentence


def test_a_run_of_the_target_alone_compares_nothing():
    assert fastest(run()) == (
        "Nothing was compared",
        ["Only the target alone was measured: 2.00 ms per token with `autoregressive`."],
    )
    assert exact(run(), 3)[0] == "Yes, nothing was drafted"
    assert why_not_faster(run())[0] == "Nothing was drafted"


def test_sampled_strategies_are_compared_with_their_own_baseline():
    strategies = run(
        greedy=entry(1.5),
        sampled=ALONE | make_sampled(baseline="sampled", ms_per_token=3.0),
        draws=entry(1.4, **make_sampled(baseline="sampled", ms_per_token=3.0 / 1.4)),
    )
    _, (first, second) = fastest(strategies)
    assert first.startswith("Against `autoregressive`: the fastest")
    assert second.startswith("Against `sampled`, which draws tokens at random: the fastest")
    assert second.endswith("2.14 ms per token instead of 3.00.")
    del strategies["greedy"]
    short, (only,) = fastest(strategies)
    assert short.startswith("`draws`: 1.40") and only.startswith("The fastest")


def test_equal_tokens_are_exact():
    short, sentences = exact(run(a=entry(2.0), b=entry(1.5)), 40)
    assert short == "Yes, token for token"
    assert sentences == ["`a` and `b` gave the target's own tokens in all 40 examples."]


@pytest.mark.parametrize(
    ("differing", "ties", "short", "words"),
    [
        (3, 3, "Yes, up to rounding", "3 of 40 examples, all at near ties"),
        (3, 2, "Not in every example", "2 at near ties"),
        (3, 0, "Not in every example", "3 elsewhere"),
    ],
)
def test_differences_at_near_ties_are_counted_apart(differing, ties, short, words):
    strategies = run(a=entry(2.0, differing=differing, near_ties=ties), b=entry(1.5))
    found, sentences = exact(strategies, 40)
    assert found == short and sentences[0].startswith("`b` gave")
    assert sentences[1].startswith("`a` has other tokens in 3 of 40") and words in sentences[1]


def test_older_results_know_differences_by_their_share():
    strategies = run(a=entry(2.0, differing=None, near_ties=None, identical_to_target=0.9))
    assert exact(strategies, 40) == (
        "Not in every example",
        ["`a` has other tokens in 4 of 40 examples."],
    )


def test_sampling_is_exact_in_distribution():
    strategies = run(draws=entry(1.4, **make_sampled()))
    short, (sentence,) = exact(strategies, 40)
    assert short == "Yes, by its distribution" and "by construction" in sentence


def test_lossy_strategies_say_what_they_cost():
    strategies = run(loose=entry(1.9, **LOSSY, quality={"bleu": 33.0}))
    strategies["autoregressive"] = ALONE | {"quality": {"bleu": 34.5}}
    assert exact(strategies, 40) == (
        "No, all strategies are lossy",
        [
            "`loose` may change the text: 75.0% of its texts are the target's own;"
            " bleu is 33.00 against 34.50 (-1.50)."
        ],
    )
    unscored = run(fast=entry(2.0), loose=entry(1.9, **LOSSY))
    short, sentences = exact(unscored, 40)
    assert short == "Yes, token for token; `loose` may differ"
    assert sentences[1].endswith("its quality was not measured.")


def test_many_lossy_strategies_are_counted():
    _, sentences = exact(run(**{f"loose_{i}": entry(1.9, **LOSSY) for i in range(7)}), 40)
    assert len(sentences) == 5 and sentences[-1] == "The table has 3 more lossy strategies."


def make_timed(**changes: Any) -> dict[str, Any]:
    """4 tokens a round; of 10 s 6 in the target, 1 in the drafter, 1 fixed, 2 between."""
    return entry(
        1.5,
        acceptance_rate=0.8,
        tokens_per_target_call=4.0,
        acceptance={"tested": 300},
        rounds={"count": 100},
        handovers={"dropped": 100},
        time={"total": 10.0, "target": 6.0, "drafter": 1.0, "fixed": 1.0, "rest": 2.0},
        predicted={"with_v": 2.0, "measured": 1.6, "error_percent": 25.0},
        **changes,
    )


def base() -> dict[str, Any]:
    """15 s, 14 of them in 400 calls of the target: 35 ms each."""
    time = {"total": 15.0, "target": 14.0, "drafter": 0.0, "fixed": 1.0, "rest": 0.0}
    return ALONE | {"rounds": {"count": 400}, "time": time}


def test_each_cost_is_priced_by_what_the_run_would_take_without_it():
    assert what_if(make_timed(), base()) == pytest.approx(
        {
            "checks": 1.5 * 10 / (10 - 6 + 3.5),
            "rest": 1.5 * 10 / (10 - 2),
            "drafts": 1.5 * 10 / (1 + 9 * 400 / 500),
            "drafter": 1.5 * 10 / (10 - 1),
            "fixed": 1.6,
        }
    )
    assert list(what_if(make_timed(), base()))[:2] == ["checks", "rest"]


def test_the_two_largest_costs_are_named_with_what_helps():
    short, sentences = why_not_faster({"autoregressive": base(), "fast": make_timed()})
    assert short == "Checking the drafts: most of what is left to gain"
    accepted, round_, shares, predicted, first, second = sentences
    assert "80.0%" in accepted and "gives 4.00 tokens instead of 1" in accepted
    assert "2.50 single steps" in round_ and "makes 1.60 times" in round_ and "1.50" in round_
    assert "60% in the target, 10% in the drafter, 10% for reading" in shares
    assert "predict 2.00 for its rounds, 25% above the measured 1.60, so that" in predicted
    assert "about 2.00 times" in first and "about 1.88 times" in second


def test_the_page_says_which_way_rounds_were_priced():
    """Older results have nothing but calls, timed alone."""
    old = make_timed()
    new = make_timed() | {
        "predicted": {
            "with_v": 1.62, "calls_alone": 2.24, "priced": "in place", "round_ms": 1.9,
            "calls_ms": 1.25, "measured": 1.6, "error_percent": 1.25,
        }
    }  # fmt: skip
    _, by_calls = why_not_faster({"autoregressive": base(), "fast": old})
    _, in_place = why_not_faster({"autoregressive": base(), "fast": new})
    assert any(said.startswith("Calls timed one by one predict 2.00") for said in by_calls)
    assert not any("in place" in said for said in by_calls)
    assert (
        "Rounds priced in place, by other decodes, predict 1.62 for its rounds, 1% above the"
        " measured 1.60." in in_place
    )
    assert (
        "A round takes 1.90 ms in place, its calls timed one by one 1.25 ms: they predict 2.24."
        in in_place
    )


def test_calls_that_were_dearer_alone_are_scaled_to_the_run():
    time = {"total": 10.0, "target": 12.0, "drafter": 6.0, "fixed": 1.0, "rest": -9.0}
    _, sentences = why_not_faster({"autoregressive": base(), "fast": make_timed() | {"time": time}})
    assert any("60% in the target, 30% in the drafter, 10% for" in each for each in sentences)
    assert not any("between the model calls" in each for each in sentences)


def test_unpriced_calls_explain_what_is_known():
    time = {"total": 10.0, "target": None, "drafter": None, "fixed": 1.0, "rest": 9.0}
    predicted = {"theorem_3_8": None, "with_v": None, "measured": 1.5, "error_percent": None}
    strategy = make_timed() | {"time": time, "predicted": predicted, "handovers": None}
    short, sentences = why_not_faster({"autoregressive": base(), "fast": strategy})
    assert short == "4.00 tokens for each call of the target"
    assert len(sentences) == 2


def test_a_strategy_that_never_calls_the_target_has_no_rounds_to_explain():
    strategy = make_timed() | {"tokens_per_target_call": 0.0, "rounds": {"count": 0}}
    _, sentences = why_not_faster({"autoregressive": base(), "fast": strategy})
    assert sentences[0] == "`fast`, the strategy explained here, never called the target."
    assert not any("single steps" in each for each in sentences)
