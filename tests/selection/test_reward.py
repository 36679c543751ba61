"""Agreement, cheapness and their blend, against values worked out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from specjax.selection.reward import Reward, blend, cheapness, rouge_l, token_lcs


def test_cheapness_of_three_drafters_of_60_80_and_220_million():
    np.testing.assert_allclose(cheapness([0.06e9, 0.08e9, 0.22e9]), [0.148, 0.131, 0], atol=5e-4)


def test_beside_an_arm_of_11_billion_drafters_cost_nothing_and_nothing_overflows():
    found = cheapness([11e9, 60e6, 80e6])
    assert found[0] == 0 and np.all(found[1:] > 0.9999)
    assert np.isfinite(cheapness([1e15, 1.0])).all()


def test_the_unit_scales_parameters():
    np.testing.assert_allclose(cheapness([60, 80], unit=1e3), cheapness([60e6, 80e6]), rtol=1e-6)


def test_rouge_l_counts_lower_case_words_in_order():
    # All four words of the output are among the reference's five: P = 1, R = 4/5.
    assert rouge_l("A man, riding his BIKE.", "a man riding bike") == pytest.approx(8 / 9)
    assert rouge_l("riding", "rides") == 0.0  # no stemming
    assert rouge_l("one two", "two one") == 0.5
    assert rouge_l("", "a") == rouge_l("a", "") == rouge_l("", "") == rouge_l("a", "...") == 0.0


def longest_by_trying(first, second) -> int:
    """Length of the longest common subsequence, by all subsequences of the first."""

    def inside(part, whole):
        rest = iter(whole)
        return all(item in rest for item in part)

    parts = (p for n in range(len(first) + 1) for p in itertools.combinations(first, n))
    return max(len(part) for part in parts if inside(part, second))


def test_token_lcs_is_the_f1_of_the_longest_common_subsequence():
    rng = np.random.default_rng(0)
    for _ in range(60):
        first, second = (rng.integers(0, 3, rng.integers(1, 8)).tolist() for _ in range(2))
        common = longest_by_trying(first, second)
        precision, recall = common / len(second), common / len(first)
        expected = 2 * precision * recall / (precision + recall) if common else 0.0
        assert token_lcs(first, second) == pytest.approx(expected)
    assert token_lcs([], [1]) == token_lcs([1], []) == 0.0


def test_rewards_are_equation_2():
    agreement = np.array([[0.2, 0.9], [1.0, 0.4]])
    found = blend(agreement, np.array([0.5, 0.0]), 0.75)
    np.testing.assert_allclose(found, [[0.275, 0.675], [0.875, 0.3]])
    np.testing.assert_array_equal(blend(agreement, np.array([0.5, 0.0]), 1.0), agreement)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"kind": "taste"}, "kind is 'taste'; it must be one of alignment, speedup"),
        ({"measure": "bleu"}, "measure is 'bleu'; it must be one of rouge_l, token_lcs"),
        ({"align_weight": 1.5}, "align_weight is 1.5"),
        ({"unit": 0.0}, "unit is 0.0"),
    ],
)
def test_settings_without_a_meaning_are_refused(fields, named):
    with pytest.raises(ValueError, match=named):
        Reward(**fields)
