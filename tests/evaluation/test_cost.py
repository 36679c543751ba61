"""Predicted speedup and walltime improvement by hand-made counts; result files."""

from __future__ import annotations

import pytest

from specjax.decoding.summary import Statistics
from specjax.evaluation.cost import Costs, standardized_walltime_improvement
from specjax.writing import replacing, write_json

STATS = Statistics(
    tokens=30, rounds=10, drafted=40, accepted=20, tested=25, overlap=19.0,
    calls={"target": 10, "drafter": 40},
)  # fmt: skip
COSTS = Costs(step={"target": 2.0, "drafter": 0.2}, verify={1: 2.0, 5: 3.0})


def test_prediction_is_tokens_per_round_over_kc_plus_v():
    # 3 tokens per round; K c = 4 * 0.2 / 2 = 0.4, v = 3 / 2
    assert COSTS.predicted_speedup(STATS, "target", 4) == pytest.approx(3 / (0.4 + 1.5))


def test_autoregressive_decoding_is_predicted_at_one():
    alone = Statistics(30, 30, 0, 0, 0, 0.0, {"target": 30})
    assert COSTS.predicted_speedup(alone, "target", 0) == pytest.approx(1.0)
    assert standardized_walltime_improvement(alone, {"target": 100}, "target") == 1.0


def test_walltime_improvement_prices_calls_by_parameters():
    sizes = {"target": 100, "drafter": 10}
    value = standardized_walltime_improvement(STATS, sizes, "target")
    assert value == pytest.approx(30 / (10 + 40 * 0.1))


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
