"""Offline data in their folder, rewards made of them, and what choices are worth."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from specjax.runtime.errors import UserError
from specjax.selection import data
from specjax.selection.data import ALONE, Queries, Times
from specjax.selection.reward import Reward
from specjax.selection.scores import ALL, best, expected_speedup, scores

ARMS = ("none", "small", "base")
MADE = Queries(
    arms=ARMS,
    parameters=np.array([0.22e9, 0.06e9, 0.08e9]),
    source="encoder_mean",
    ids=["x/0", "x/1", "y/0"],
    tasks=np.array(["x", "x", "y"]),
    embeddings=np.arange(6, dtype=np.float32).reshape(3, 2),
    agreement={
        "rouge_l": np.array([[0.5, 0.8, 0.7], [0.4, 0.2, 0.9], [0.3, 0.1, 0.1]]),
        "token_lcs": np.array([[0.1, 0.2, np.nan], [0.1, 0.2, np.nan], [0.1, 0.2, np.nan]]),
    },
    times=Times(
        np.array([[2.0, 1.0, 4.0, 2.0], [3.0, 6.0, 1.0, 3.0], [1.0, 2.0, 2.0, 1.0]]),
        np.array([[10.0, 10, 10, 10], [20, 20, 20, 20], [5, 5, 5, 5]]),
    ),
)
DESCRIPTION = {
    "queries": 3, "source": "encoder_mean", "width": 2, "timed": True,
    "arms": {a: {"parameters": int(p)} for a, p in zip(ARMS, MADE.parameters, strict=True)},
}  # fmt: skip


def make_rows(queries: Queries) -> list[dict]:
    """What the job would write of them."""

    def by_arm(values, names=ARMS):
        return {n: None if np.isnan(v) else float(v) for n, v in zip(names, values, strict=True)}

    return [
        {
            "id": queries.ids[i],
            "task": str(queries.tasks[i]),
            **{measure: by_arm(found[i]) for measure, found in queries.agreement.items()},
            "seconds": by_arm(queries.times.seconds[i], (*ARMS, ALONE)),
            "tokens": by_arm(queries.times.tokens[i], (*ARMS, ALONE)),
        }
        for i in range(len(queries))
    ]


@pytest.fixture
def folder(tmp_path):
    data.save(tmp_path, DESCRIPTION, make_rows(MADE), MADE.embeddings)
    return tmp_path


def same(first: Queries, second: Queries) -> None:
    for field in dataclasses.fields(Queries):
        a, b = getattr(first, field.name), getattr(second, field.name)
        if field.name == "times":
            a, b = dataclasses.asdict(a), dataclasses.asdict(b)
        np.testing.assert_equal(a, b)


def test_data_survive_their_folder(folder):
    same(data.load(folder), MADE)


def test_rewards_of_any_weight_are_computed_from_the_same_data():
    cheap = np.array([0.0, 1 - np.exp(-0.16), 1 - np.exp(-0.14)])
    for weight in (0.0, 0.3, 1.0):
        expected = weight * MADE.agreement["rouge_l"] + (1 - weight) * cheap
        np.testing.assert_allclose(MADE.rewards(Reward(align_weight=weight)), expected)
    speed = MADE.rewards(Reward(kind="speedup"))
    np.testing.assert_allclose(speed, [[1, 2, 0.5], [1, 0.5, 3], [1, 0.5, 0.5]])


def test_cheapness_is_among_the_arms_that_are_offered():
    """Without the largest arm the next one is free."""
    offered = MADE.only(("base", "small"))
    found = offered.rewards(Reward(align_weight=0.0))
    np.testing.assert_allclose(found, np.tile([0, 1 - np.exp(-0.02)], (3, 1)), atol=1e-9)
    np.testing.assert_array_equal(offered.times.speedups, MADE.times.speedups[:, [2, 1]])
    with pytest.raises(UserError, match="arms has 'large'; the data have none, small, base"):
        MADE.only(("small", "large"))


def test_what_the_data_do_not_have_is_refused(folder):
    with pytest.raises(UserError, match="arm 'base' writes nothing by itself"):
        MADE.rewards(Reward(measure="token_lcs"))
    untimed = dataclasses.replace(MADE, times=None)
    with pytest.raises(UserError, match="the data were made without seconds"):
        untimed.rewards(Reward(kind="speedup"))
    with pytest.raises(UserError, match="is not a folder with data.json"):
        data.load(folder / "nowhere")
    (folder / data.ROWS).write_text(json.dumps(make_rows(MADE)[0]) + "\n", "utf-8")
    with pytest.raises(UserError, match="have 1 queries instead of 3"):
        data.load(folder)


def test_speedups_are_ratios_of_totals():
    """Always `small`: 9 seconds for 35 tokens where the target alone takes 6."""
    always = np.tile([0.0, 1.0, 0.0], (3, 1))
    assert expected_speedup(always, MADE.times) == pytest.approx(6 / 9)
    mixed = np.tile([0.5, 0.5, 0.0], (3, 1))
    assert expected_speedup(mixed, MADE.times) == pytest.approx(6 / 7.5)


def test_scores_are_by_task_and_of_all_and_name_the_best_arm():
    policy = np.array([[0.2, 0.8, 0.0], [0.1, 0.1, 0.8], [0.6, 0.4, 0.0]])
    rewards = MADE.rewards(Reward(align_weight=1.0))
    found = scores(MADE, policy, rewards)
    assert list(found) == [ALL, "x", "y"]
    whole = found[ALL]
    assert whole["shares"] == pytest.approx({"none": 1 / 3, "small": 1 / 3, "base": 1 / 3})
    assert whole["reward"]["policy_greedy"] == pytest.approx((0.8 + 0.9 + 0.3) / 3)
    assert whole["reward"]["oracle"] == pytest.approx((0.8 + 0.9 + 0.3) / 3)
    assert whole["reward"]["random"] == pytest.approx(MADE.agreement["rouge_l"].mean())
    dynamic = (0.2 * 0.5 + 0.8 * 0.8 + 0.04 + 0.02 + 0.72 + 0.6 * 0.3 + 0.04) / 3
    assert whole["reward"]["policy_dynamic"] == pytest.approx(dynamic)
    assert whole["speedup"]["oracle"] == pytest.approx(6 / 3)
    assert whole["speedup"]["none"] == pytest.approx(1.0)
    assert whole["best_single"] == {"reward": "base", "speedup": "none"}
    assert found["y"]["queries"] == 1 and found["y"]["best_single"]["reward"] == "none"


def test_the_first_of_equal_arms_is_the_best():
    np.testing.assert_array_equal(best(np.array([[1.0, 1.0], [0.0, 2.0]])), [[1, 0], [0, 1]])
