"""BiLD's experiments: its sweep and summary, one config for both drafters, oracle engagement."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest
from ml_collections import ConfigDict
from pairs import pair_fields

from specjax.experiments import engagement
from specjax.experiments.config.defaults import (
    bild_spec,
    decode_config,
    engagement_config,
    sweep_config,
)
from specjax.experiments.config.fields import model_names
from specjax.experiments.config.file import read_config
from specjax.experiments.config.validation import check_config
from specjax.experiments.decode.strategies import load_strategies
from specjax.experiments.sweep import job as sweep
from specjax.experiments.sweep.best import best
from specjax.experiments.sweep.grid import points
from specjax.metrics.statistics import fastest
from specjax.runtime.errors import UserError

CONFIGS = Path(__file__).parents[2] / "configs"


def multi30k(aligned: str = ":a") -> ConfigDict:
    config = read_config(f"{CONFIGS / 'sweep.py'}:{CONFIGS / 'bild_multi30k.py'}{aligned}")
    config.base.update(target="t", drafter="d")
    return config


def test_one_word_behind_the_file_names_the_aligned_drafter():
    assert model_names(multi30k().base) == {"target": "t", "drafter": "d", "aligned": "a"}


def test_one_drafter_is_enough():
    config = multi30k(aligned="")
    assert model_names(config.base) == {"target": "t", "drafter": "d"}
    assert not any("aligned" in name for name in config.base.strategies)
    assert {name for point in points(config) for name in point.config.strategies} == {
        "autoregressive", "bild", "speculative", "no_rollback", "no_fallback",
    }  # fmt: skip


def test_the_box_s_sweep_takes_every_strategy_by_itself():
    found = points(multi30k())
    swept = {}
    for point in found:
        names = {field.split(".")[1] for field in point.fields}
        assert len(names) == 1
        (name,) = names
        assert set(point.config.strategies) <= {"autoregressive", name}
        assert all(
            point.config.strategies[name][field.split(".")[2]] == value
            for field, value in point.fields.items()
        )
        swept[name] = swept.get(name, 0) + 1
    assert swept == {
        "bild": 12, "bild_aligned": 12, "no_rollback": 4, "no_fallback": 12, "speculative": 4,
        "speculative_aligned": 4,
    }  # fmt: skip
    assert len({point.name for point in found}) == len(found)
    assert len({point.models for point in found}) == 1


def test_the_ablations_are_those_of_the_paper():
    found = load_strategies(multi30k().base)
    numbers = {name: dict(strategy.numbers) for name, strategy in found.items()}
    assert numbers["no_rollback"]["rollback"] == math.inf
    assert numbers["no_fallback"]["fallback"] == 0.0
    assert found["speculative"].lossless and not found["bild"].lossless
    assert found["bild"].settings != found["bild_nucleus"].settings == found["nucleus"].settings
    assert found["bild_aligned"].drafter.model == "aligned"


@pytest.mark.parametrize(("ending", "reviewed"), [("", False), (";reviewed", True)])
def test_side_by_side_every_point_is_a_strategy(ending, reviewed):
    config = read_config(f"{CONFIGS / 'bild_side_by_side.py'}:a{ending}")
    config.update(target="t", drafter="d")
    found = load_strategies(config)
    assert len(found) == 1 + 2 * (4 + 6) + 2 + 9
    point = found["bild_aligned_50_2"]
    assert dict(point.numbers) == {"fallback": 0.5, "rollback": 2.0}
    assert (point.drafter.model, point.drafter.length) == ("aligned", 10)
    assert point.drafter.verify_eos is reviewed
    assert dict(found["no_rollback_30"].numbers)["rollback"] == math.inf
    fixed = found["no_fallback_5_1"].drafter
    assert (fixed.model, fixed.length, fixed.verify_eos) == ("aligned", 5, reviewed)


def test_side_by_side_refuses_other_endings():
    with pytest.raises(UserError, match="ending is 'eos'; it must be 'reviewed' or nothing"):
        read_config(f"{CONFIGS / 'bild_side_by_side.py'}:a;eos")


def test_fields_of_other_kinds_are_crossed_with_every_strategy():
    grid = {"strategies.a.fallback": (0.1, 0.2), "strategies.b.fallback": (0.3,), "seed": (0, 1)}
    base = decode_config(
        target="t", drafter="d", strategies={"a": bild_spec(0.5, 1.0), "b": bild_spec(0.5, 1.0)}
    )
    assert len(points(sweep_config(base, grid))) == 4
    apart = points(sweep_config(base, grid, apart=True))
    assert sorted(tuple(point.fields.values()) for point in apart) == [
        (0, 0.1), (0, 0.2), (0, 0.3), (1, 0.1), (1, 0.2), (1, 0.3),
    ]  # fmt: skip
    assert {set(point.config.strategies).pop() for point in apart} == {"a", "b"}


def test_a_grid_that_grows_leaves_finished_points_as_they_were():
    config = multi30k()
    first = points(config)[0].config.to_dict()
    config.base.sweep.bild.fallback = (0.2, 0.9)
    config.grid.strategies.bild.fallback = (0.2, 0.9)
    assert points(config)[0].config.to_dict() == first


def lines(*figures: tuple[str, float, float]) -> list[dict]:
    """(strategy, speed, bleu) of one run each, beside a target of BLEU 30."""
    made = []
    for index, (name, speed, bleu) in enumerate(figures):
        own = {"point": f"p{index}", "baseline": "alone"}
        made.append(own | {"strategy": "alone", "speedup": 1.0, "bleu": 30.0})
        made.append(own | {"strategy": name, "speedup": speed, "bleu": bleu})
    return made


def test_the_summary_takes_the_fastest_point_that_loses_no_more():
    found = best(
        lines(("a", 1.2, 30.4), ("a", 1.4, 29.91), ("a", 1.6, 29.89), ("a", 1.7, 29.1),
              ("a", 2.0, 28.9), ("b", 3.0, 20.0)),
        lambda line: line["speedup"],
        "bleu",
    )  # fmt: skip
    chosen = [(e["strategy"], e["loss"], e["point"], e["speed"]) for e in found]
    assert chosen == [
        ("a", "no loss", "p1", 1.4),
        ("a", "within one point", "p3", 1.7),
        ("b", "no loss", None, None),
        ("b", "within one point", None, None),
    ]
    assert found[1]["change"] == pytest.approx(-0.9)


def test_no_point_is_good_enough():
    assert fastest([1.0, 2.0], [math.nan, 3.0], 4.0) is None
    assert fastest([2.0, 1.0, 3.0], [5.0, 5.0, math.nan], 4.0) == 0


ENGAGEMENT = {"target": "t", "drafter": "d", "source_file": "x"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"thresholds": (0.1, -1.0)},
            r"thresholds is \(0.1, -1.0\); it must be a list",
        ),
        ({"thresholds": ("a",)}, r"thresholds is \('a',\)"),
        ({"thresholds": ()}, "it must be a list of different numbers"),
        ({"thresholds": (0.1, 0.1)}, "it must be a list of different numbers"),
        ({"drafter": ""}, "config.drafter is empty"),
    ],
)
def test_an_engagement_that_cannot_be_is_refused(changes, message):
    config = engagement_config(**ENGAGEMENT)
    with config.ignore_type():
        config.update(changes)
    with pytest.raises(UserError, match=message):
        check_config(config)
        engagement.to_decode_config(config)


@pytest.fixture(scope="module")
def job(pair) -> dict[str, str | int]:
    """What both jobs have in common."""
    return {
        **pair_fields(pair),
        "examples": 3,
        "max_new_tokens": 6,
        "bucket": 64,
        "repeats": 1,
    }


@pytest.mark.slow
def test_engagement_runs_from_none_to_all(job, tmp_path):
    config = engagement_config(**job, thresholds=(0.0, 0.1, 1.1))
    config.lock()
    found = engagement.run(config, tmp_path)
    shares = [row["engaged_percent"] for row in found]
    assert shares[0] == 0 and shares[2] == 100 and 0 <= shares[1] <= 100
    assert all(row["changed_percent"] <= row["engaged_percent"] for row in found)
    assert (tmp_path / "plots" / "engagement.png").stat().st_size > 5000
    with (tmp_path / "engagement.csv").open() as file:
        assert [float(row["threshold"]) for row in csv.DictReader(file)] == [0.0, 0.1, 1.1]


@pytest.mark.slow
def test_a_sweep_apart_writes_one_plot_and_the_summary(job, tmp_path, capsys):
    base = decode_config(
        **job,
        strategies={
            "autoregressive": {"drafter": "none"},
            "bild": bild_spec(0.5, 1.0),
            "no_rollback": bild_spec(0.5, "inf"),
            "speculative": {"drafter": "neural", "length": 2},
        },
        sweep={"bild": {"fallback": (0.1, 0.9)}, "no_rollback": {"fallback": (0.1,)},
               "speculative": {"length": (2,)}},
    )  # fmt: skip
    grid = {f"strategies.{s}.{f}": tuple(v) for s, fs in base.sweep.items() for f, v in fs.items()}
    rows = sweep.run(sweep_config(base, grid, apart=True), tmp_path)
    assert [row["error"] for row in rows] == [None] * 4
    assert (tmp_path / "plots" / "pareto_bleu.png").stat().st_size > 5000
    with (tmp_path / "best.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 6
    assert "within one point" in capsys.readouterr().out
