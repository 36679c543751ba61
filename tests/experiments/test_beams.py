"""The beams experiment: searches side by side, their files, and what is refused."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from pathlib import Path

import pytest
from ml_collections import ConfigDict
from pairs import pair_fields

import specjax
from specjax.experiments.beams import job as beams
from specjax.experiments.config.defaults import beams_config
from specjax.experiments.config.validation import check_config
from specjax.runtime.errors import UserError
from specjax.training import ngram

ROOT = Path(__file__).parents[2]
BEAMS = {"beams": 3, "sequences": 2}


def make_config(pair: Path, **changes) -> ConfigDict:
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
            "copied": {"drafter": "max_gram", "length": 1, **BEAMS},
        },
        "ngram_file": str(pair / "reference.txt"),
    }
    return beams_config(**{**fields, **changes})


@pytest.mark.slow
def test_drafted_searches_give_the_texts_of_the_plain_one(pair, tmp_path, capsys):
    content = beams.run(make_config(pair), tmp_path)
    assert "steps/call" in capsys.readouterr().out
    assert content == json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert list(content["strategies"]) == ["plain", "copied", "drafted", "greedy"]
    plain, copied, drafted, greedy = content["strategies"].values()
    assert plain["steps_per_round"] == 1.0 and plain["nodes_per_round"] == 3.0
    assert drafted["same_as_first"] == 3 and drafted["nodes_per_round"] == 6.0
    assert drafted["tokens"] == plain["tokens"] > 0
    assert plain["drafts"] == 0
    assert drafted["rounds"] <= drafted["drafts"] <= 2 * drafted["rounds"]
    lines = (tmp_path / "outputs.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["strategy"] for row in rows] == ["plain", "copied", "drafted", "greedy"] * 3
    assert copied["same_as_first"] == 3 and copied["drafts"] == 0
    assert greedy["steps_per_round"] == greedy["nodes_per_round"] == 1.0
    assert "bleu" in greedy["quality"]
    baseline = specjax.Generator(specjax.load(pair / "target"), max_new_tokens=6, bucket=64)
    texts = baseline([row["source"] for row in rows[3::4]]).texts
    assert [row["output"] for row in rows[3::4]] == texts
    assert not (tmp_path / beams.KEPT).exists()
    for row in rows:
        if row["strategy"] == "greedy":
            continue
        first, second = row["hypotheses"]
        assert first["score"] >= second["score"] and first["tokens"] != second["tokens"]
        assert row["output"] == first["text"]


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(pair, tmp_path, monkeypatch):
    """Batches that all had decoded are not decoded again, and the texts are the same."""
    config = make_config(pair, batch_size=1, repeats=2, strategies={"plain": BEAMS})
    turn, turns = beams._turn, []

    def count(job, ids):
        if len(turns) == 4:
            raise KeyboardInterrupt
        turns.append(ids)
        return turn(job, ids)

    monkeypatch.setattr(beams, "_turn", count)
    with pytest.raises(KeyboardInterrupt):
        beams.run(config, tmp_path)
    first = [json.loads(line) for line in (tmp_path / beams.KEPT).open()][1:]
    assert [(row["repeat"], row["batch"]) for row in first] == [(0, 0), (0, 1), (0, 2)]
    turns[:] = []
    content = beams.run(config, tmp_path)
    assert len(turns) == 4  # one that compiles, and the second repeat
    assert content["strategies"]["plain"]["tokens"] > 0
    rows = [json.loads(line) for line in (tmp_path / "outputs.jsonl").open()]
    kept = [row["decoded"][name]["hypotheses"][0] for row in first for name in ("plain", "greedy")]
    assert [row["hypotheses"] for row in rows] == kept


def test_searches_that_do_not_fit_into_memory_are_refused(pair, tmp_path):
    config = make_config(pair, batch_size=1 << 20, max_new_tokens=1 << 12)
    with pytest.raises(UserError, match="config.batch_size 1,048,576, .* do not fit"):
        beams.run(config, tmp_path)


def test_a_plan_says_what_a_call_feeds(pair, capsys):
    beams.plan(make_config(pair))
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
        ({"drafter": "bigram", "table": "heads"}, "table is 'heads'; it must be a name other than"),
        (3, "config.strategies.a is 3; it must be a group of fields"),
    ],
)
def test_a_search_that_cannot_be_is_refused(pair, spec, message):
    with pytest.raises(UserError, match=message):
        config = make_config(pair, strategies={"a": spec})
        check_config(config)
        beams.check(config)


def test_the_name_of_greedy_decoding_is_taken(pair):
    with pytest.raises(UserError, match="strategies.greedy needs another name"):
        beams.check(make_config(pair, strategies={"greedy": BEAMS}))


@pytest.mark.slow
def test_a_stream_joins_to_the_best_text(pair):
    """By rounds of any number; prompts and counts that are of no use are refused at once."""
    target, sizes = specjax.load(pair / "target"), {"max_new_tokens": 12, "bucket": 64}
    generator = specjax.BeamGenerator(target, strategy=specjax.beam_search(beams=3), **sizes)
    for line in (pair / "source.txt").read_text("utf-8").splitlines()[:1]:
        whole = generator([line]).texts[0]
        pieces = list(generator.stream(line))
        assert "".join(pieces) == whole and all(pieces)
    bare = dataclasses.replace(target, tokenizer=None)
    generator = specjax.BeamGenerator(bare, strategy=specjax.beam_search(beams=3), **sizes)
    ids = target.tokenizer(line).input_ids
    assert sum(generator.stream(ids, rounds=5), []) == generator([ids]).tokens[0]
    with pytest.raises(UserError, match="prompts holds texts"):
        generator.stream(line)
    with pytest.raises(UserError, match="rounds is 0"):
        generator.stream(ids, rounds=0)


def test_python_refuses_what_is_no_search(pair):
    target = specjax.load(pair / "target")
    with pytest.raises(UserError, match="strategy is 'beams'; it must be what specjax.beam_search"):
        specjax.BeamGenerator(target, strategy="beams")
    with pytest.raises(UserError, match="model 'drafter' is not among 'target'"):
        specjax.BeamGenerator(target, strategy=specjax.beam_search(drafter="neural"))
    with pytest.raises(UserError, match="strategy: 'ngram' was not given; pass it in tables"):
        specjax.BeamGenerator(target, strategy=specjax.beam_search(drafter="bigram"))
    small = {"ngram": ngram.fit([[1, 2, 3]], 4)}
    with pytest.raises(UserError, match="table 'ngram' has too few tokens for it"):
        specjax.BeamGenerator(target, strategy=specjax.beam_search(drafter="bigram"), tables=small)
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
    assert beams.check(config).keys() == {"beams", "copies_1", "speculative_1", "speculative_2"}
