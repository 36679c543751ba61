"""The beams experiment: searches side by side, their files, and what is refused."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from ml_collections import ConfigDict
from pairs import pair_fields

import specjax
from specjax.errors import UserError
from specjax.experiments import beams
from specjax.experiments.config.defaults import beams_config

ROOT = Path(__file__).parents[2]
BEAMS = {"beams": 3, "sequences": 2}


def config_of(pair: Path, **changes) -> ConfigDict:
    fields = {
        **pair_fields(pair),
        "examples": 3,
        "batch_size": 2,
        "max_new_tokens": 6,
        "bucket": 64,
        "repeats": 1,
        "strategies": {
            "plain": BEAMS,
            "drafted": {"drafter": "neural", "length": 1, **BEAMS},
        },
    }
    return beams_config(**{**fields, **changes})


def test_drafted_searches_give_the_texts_of_the_plain_one(pair, tmp_path, capsys):
    content = beams.run(config_of(pair), tmp_path)
    assert "steps/call" in capsys.readouterr().out
    assert content == json.loads((tmp_path / "results.json").read_text("utf-8"))
    plain, drafted = (content["strategies"][name] for name in ("plain", "drafted"))
    assert plain["steps_per_round"] == 1.0 and plain["nodes_per_round"] == 3.0
    assert drafted["same_as_first"] == 3 and drafted["nodes_per_round"] == 6.0
    assert drafted["tokens"] == plain["tokens"] > 0
    assert plain["drafts"] == 0
    assert drafted["rounds"] <= drafted["drafts"] <= 2 * drafted["rounds"]
    lines = (tmp_path / "outputs.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["strategy"] for row in rows] == ["plain", "drafted"] * 3
    for row in rows:
        first, second = row["hypotheses"]
        assert first["score"] >= second["score"] and first["tokens"] != second["tokens"]
        assert row["output"] == first["text"]


def test_a_plan_says_what_a_call_feeds(pair, capsys):
    beams.plan(config_of(pair))
    said = capsys.readouterr().out
    assert "plain: 3 tokens of a text in each target call, at most 1 beam steps" in said
    assert "drafted: 6 tokens of a text in each target call, at most 2 beam steps" in said


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"beams": 0}, "strategies.a.beams is 0; it must be an integer of at least 1"),
        ({"width": 4}, "strategies.a.width does not apply to a beam search with drafter 'none'"),
        ({"drafter": "medusa"}, "drafter is 'medusa'; it must be one of none, neural, bigram"),
        ({"drafter": "bigram", "model": "x"}, "strategies.a.model does not apply"),
        ({"early_stopping": "soon"}, "early_stopping is 'soon'; it must be one of False, True"),
        ({"length_penalty": 99.0}, "length_penalty is 99.0; it must be a number in"),
        ({"sequences": 5}, "strategies.a: sequences is 5; it must be at most beams, 4"),
        ({"drafter": "neural", "width": 2}, "width is 2; it must be 0 or at least beams, 4"),
        ({"drafter": "neural", "model": "x"}, "strategies.a names the model 'x'; the config has"),
        (3, "config.strategies.a is 3; it must be a group of fields"),
    ],
)
def test_a_search_that_cannot_be_is_refused(pair, spec, message):
    with pytest.raises(UserError, match=message):
        beams.check(config_of(pair, strategies={"a": spec}))


def test_python_refuses_what_is_no_search(pair):
    target = specjax.load(pair / "target")
    with pytest.raises(UserError, match="strategy is 'beams'; it must be what specjax.beam_search"):
        specjax.BeamGenerator(target, strategy="beams")
    with pytest.raises(UserError, match="model 'drafter' is not among 'target'"):
        specjax.BeamGenerator(target, strategy=specjax.beam_search(drafter="neural"))
    with pytest.raises(UserError, match="^length_penalty is 'a'; it must be a number in"):
        specjax.beam_search(length_penalty="a")
    with pytest.raises(UserError, match="^sequences is 2; it must be at most beams, 1"):
        specjax.beam_search(beams=1, sequences=2)
    assert specjax.beam_search(early_stopping=True).early_stopping == "True"


def test_the_config_of_the_repository_can_be_used(pair):
    file = ROOT / "configs" / "beams.py"
    spec = importlib.util.spec_from_file_location("beams_config", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    config = module.get_config()
    config.update(target=str(pair / "target"), drafter=str(pair / "drafter"))
    assert beams.check(config).keys() == {"beams", "speculative_1", "speculative_2"}
