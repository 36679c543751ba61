"""Accepted lengths by hand: pooled and per request, with and without the prefill's token."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from specjax.data.text import Example
from specjax.experiments.decode.evaluation import number_requests
from specjax.metrics.accepted_lengths import Requests, collect_requests, evaluate
from specjax.metrics.traces import Rounds


def rounds(committed: list[list[int]], drafted: list[list[int]] | None = None) -> Rounds:
    """Records [N, R] of rounds that committed so many tokens, 0 where a row had no round."""
    other = {field.name: None for field in dataclasses.fields(Rounds)}
    tokens = np.array(committed)
    given = np.maximum(tokens - 1, 0) if drafted is None else np.array(drafted)
    return Rounds(**other | {"committed": tokens, "drafted": given})


def figures(requests: Requests, categories: list[str] | None = None) -> dict:
    return evaluate({"own": requests}, {"own": "own"}, categories, seed=0)["own"]


TWO = rounds([[4, 4, 4], [1, 0, 0]], drafted=[[3, 3, 3], [3, 0, 0]])


def test_two_requests_have_four_means():
    found = figures(collect_requests(TWO, np.array([0, 1])))["overall"]
    assert found["without_prefill"]["pooled"]["value"] == 13 / 4
    assert found["without_prefill"]["per_request"]["value"] == 2.5
    assert found["with_prefill"]["pooled"]["value"] == 15 / 6
    assert found["with_prefill"]["per_request"]["value"] == (13 / 4 + 1) / 2
    assert found["verify_rate"]["value"] == 13 / (12 + 4)
    counts = {name: found[name] for name in ("requests", "turns", "rounds", "tokens", "drafted")}
    assert counts == {"requests": 2, "turns": 2, "rounds": 4, "tokens": 13, "drafted": 12}


def test_turns_of_a_conversation_are_one_request_with_a_prefill_each():
    examples = [Example("a"), Example("b", earlier=("a",)), Example("c")]
    assert number_requests(examples).tolist() == [0, 0, 1]
    made = rounds([[3, 1], [2, 0], [1, 0]])
    found = figures(collect_requests(made, number_requests(examples)))["overall"]
    assert (found["requests"], found["turns"]) == (2, 3)
    assert found["without_prefill"]["per_request"]["value"] == (6 / 3 + 1) / 2
    assert found["with_prefill"]["per_request"]["value"] == pytest.approx((8 / 5 + 2 / 2) / 2)
    assert found["with_prefill"]["pooled"]["value"] == 10 / 7


def test_shares_by_length_are_joint_and_conditional():
    found = figures(collect_requests(rounds([[4, 2, 1, 1], [2, 0, 0, 0]]), np.array([0, 1])))
    by_length = found["overall"]["without_prefill"]["by_length"]
    assert [(one["length"], one["steps"]) for one in by_length] == [(1, 5), (2, 3), (3, 1), (4, 1)]
    assert [one["joint"]["value"] for one in by_length] == [1, 3 / 5, 1 / 5, 1 / 5]
    assert [one["conditional"]["value"] for one in by_length] == [1, 3 / 5, 1 / 3, 1]
    # Each of two prefills is another step of one token.
    by_length = found["overall"]["with_prefill"]["by_length"]
    assert [one["joint"]["value"] for one in by_length] == [1, 3 / 7, 1 / 7, 1 / 7]
    assert [one["conditional"]["value"] for one in by_length] == [1, 3 / 7, 1 / 3, 1]


def test_the_mean_length_is_the_sum_of_the_joint_shares():
    found = figures(collect_requests(TWO, np.array([0, 1])))["overall"]
    for prefill in ("without_prefill", "with_prefill"):
        joint = [one["joint"]["value"] for one in found[prefill]["by_length"]]
        assert sum(joint) == pytest.approx(found[prefill]["pooled"]["value"])


def test_categories_are_told_apart_in_their_order():
    made = collect_requests(rounds([[4, 4], [1, 1], [2, 0]]), np.arange(3))
    found = figures(made, ["qa", "rag", "qa"])["categories"]
    assert list(found) == ["qa", "rag"]
    assert found["qa"]["without_prefill"]["pooled"]["value"] == 10 / 3
    assert found["qa"]["without_prefill"]["per_request"]["value"] == 3
    assert found["rag"]["without_prefill"]["pooled"]["value"] == 1


def test_a_request_without_rounds_has_no_length_of_its_own():
    found = figures(collect_requests(rounds([[3, 1], [0, 0]]), np.arange(2)))["overall"]
    assert found["without_prefill"]["per_request"]["value"] == 2
    assert found["with_prefill"]["per_request"]["value"] == (5 / 3 + 1) / 2


def test_without_drafts_there_is_no_verify_rate():
    found = figures(collect_requests(rounds([[1, 1]]), np.arange(1)))["overall"]
    assert found["verify_rate"] == {"value": None, "low": None, "high": None}
    assert found["without_prefill"]["pooled"]["value"] == 1
    assert found["speedup"]["value"] is found["tokens_per_second"] is None


def test_the_speedup_is_a_ratio_of_means_over_requests():
    requests = np.array([0, 0, 1])
    plain = collect_requests(rounds([[1] * 4, [1] * 4, [1] * 4]), requests, np.array([1, 1, 4.0]))
    own = collect_requests(rounds([[4, 0], [4, 0], [4, 0]]), requests, np.array([0.5, 0.5, 4.0]))
    baselines = {"plain": "plain", "own": "plain"}
    found = evaluate({"plain": plain, "own": own}, baselines, None, seed=0)
    assert found["own"]["overall"]["tokens_per_second"] == (8 + 1) / 2
    # (8 + 1) / (4 + 1); the mean of the ratios 2 and 1 would be 1.5.
    assert found["own"]["overall"]["speedup"]["value"] == 9 / 5
    assert found["plain"]["overall"]["speedup"]["value"] == 1


def test_intervals_resample_whole_requests():
    few = figures(collect_requests(rounds([[4, 1]] * 9), np.arange(9)))["overall"]
    assert few["without_prefill"]["pooled"] == {"value": 2.5, "low": None, "high": None}
    # Rounds differ inside every request, requests do not: they have no spread.
    same = figures(collect_requests(rounds([[4, 1]] * 20), np.arange(20)))["overall"]
    assert same["without_prefill"]["pooled"] == {"value": 2.5, "low": 2.5, "high": 2.5}
    mixed = rounds([[4, 4]] * 10 + [[1, 1]] * 10)
    pooled = figures(collect_requests(mixed, np.arange(20)))["overall"]["without_prefill"]["pooled"]
    # The standard error of 20 requests of 4 or 1 is 1.5 / sqrt(20).
    half = 1.96 * 1.5 / np.sqrt(20)
    assert pooled["low"] == pytest.approx(2.5 - half, abs=0.1)
    assert pooled["high"] == pytest.approx(2.5 + half, abs=0.1)


def test_strategies_share_the_samples():
    one = collect_requests(rounds([[4, 4]] * 6 + [[1, 1]] * 6), np.arange(12), np.ones(12))
    found = evaluate({"one": one, "two": one}, {"one": "one", "two": "one"}, None, seed=1)
    assert found["one"] == found["two"]
    assert found["two"]["overall"]["speedup"] == {"value": 1, "low": 1, "high": 1}
