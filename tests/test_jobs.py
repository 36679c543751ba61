"""Experiments from Python: `specjax.run`, `specjax.plan`, and the pair that notebooks train."""

from __future__ import annotations

import json

import pytest

import specjax
from specjax.experiments.decode import results
from specjax.experiments.quickstart import DONE


def make_config(pair, **changes):
    return specjax.decode_config(
        target=str(pair / "target"),
        drafter=str(pair / "drafter"),
        source_file=str(pair / "source.txt"),
        examples=2,
        max_new_tokens=4,
        bucket=64,
        repeats=1,
        strategies={"autoregressive": {"drafter": "none"}},
        **changes,
    )


@pytest.mark.slow
def test_a_run_returns_what_its_workdir_holds(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(results, "write_report", lambda *_: None)  # seconds of drawing
    content = specjax.run(make_config(pair), tmp_path / "run")
    assert content["strategies"]["autoregressive"]["tokens"] > 0
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == json.loads(
        json.dumps(content)
    )


def test_a_plan_is_printed_and_nothing_is_written(pair, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    specjax.plan(make_config(pair))
    assert "autoregressive" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"target": "somewhere"}, "it must be a ConfigDict"),
        (specjax.decode_config(exmples=3), "config.exmples is no field"),
        (specjax.decode_config(topology="v4:2x2x1"), "config.topology is 'v4:2x2x1'"),
    ],
)
def test_what_cannot_be_run_is_refused_in_one_sentence(config, words, tmp_path):
    with pytest.raises(specjax.UserError, match=words):
        specjax.run(config, tmp_path / "run")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("field", ["steps", "layers"])
def test_a_pair_of_nothing_is_refused(field, tmp_path):
    with pytest.raises(specjax.UserError, match=f"{field} is 0; it must be an integer of at least"):
        specjax.grammar_pair(tmp_path, **{field: 0})


@pytest.mark.slow
def test_a_pair_is_trained_once(tmp_path):
    target, drafter = specjax.grammar_pair(tmp_path, steps=2, layers=3)
    assert (target.model.info.depth, drafter.model.info.depth) == (3, 1)
    trained = (tmp_path / DONE).stat().st_mtime_ns
    specjax.grammar_pair(tmp_path, steps=2, layers=3)
    assert (tmp_path / DONE).stat().st_mtime_ns == trained
    specjax.grammar_pair(tmp_path, steps=3, layers=3)
    assert (tmp_path / DONE).stat().st_mtime_ns != trained
