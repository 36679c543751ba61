"""The n-gram job: through main, on files, tasks and generated outputs, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from command import ROOT, command
from ml_collections import ConfigDict
from tiny import corpus

from specjax.data.sources import hold_out
from specjax.experiments import ngram as job
from specjax.experiments.config.defaults import decode_config, ngram_config
from specjax.experiments.config.validation import check_config
from specjax.experiments.decode.data import load_data
from specjax.experiments.decode.tables import load_tables, reads_rest
from specjax.hf.descriptions import describe
from specjax.hf.tokenizer import load_tokenizer
from specjax.models.info import ModelInfo
from specjax.runtime.errors import UserError
from specjax.training import ngram

GRAMMAR = {"task": "multi30k_ende", "data": {"kind": "grammar", "split": "train"}}


@pytest.fixture(scope="module", name="pair")
def weightless(pair, tmp_path_factory) -> Path:
    """A tiny pair without weights: the job must not read them."""
    folder = tmp_path_factory.mktemp("weightless") / "pair"
    shutil.copytree(pair, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    return folder


def make_config(pair: Path, **changes) -> ConfigDict:
    fields = {"target": str(pair / "target"), "heldout": 10}
    return ngram_config(**fields | changes)


CONFIG = f"--config={ROOT / 'configs' / 'ngram.py'}"


def test_a_table_made_through_main_is_the_table_fitted_at_once(pair, tmp_path):
    flags = {"target": pair / "target", "text_file": pair / "reference.txt", "heldout": 10}
    fields = (f"--config.{name}={value}" for name, value in flags.items())
    done = command(CONFIG, f"--workdir={tmp_path}", *fields)
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "ngram.json").read_text())
    assert content["sequences"] == 50 and content["heldout_rows"] == 10
    assert {"environment", "config", "distinct_pairs"} <= content.keys()
    assert 1 < content["bigram_perplexity"] < content["unigram_perplexity"] < 300
    assert 0 < content["bigram_accuracy"] < 1
    for value in (f"{content['tokens']:,}", f"{content['bigram_perplexity']:.2f}"):
        assert value in done.stdout

    config = make_config(pair, text_file=str(pair / "reference.txt"))
    model = describe(config.target, jnp.float32)
    tokenizer = load_tokenizer(pair / "target")
    heldout, rest = hold_out(job.rows(config, model), 10, config.seed)
    counted = tokenizer([text for row in rest for text in row]).input_ids
    expected = ngram.fit(counted, model.info.vocab_size, start_token=model.info.start_token)
    made = ngram.load(tmp_path / "ngram.safetensors", model.info.vocab_size)
    for name in expected:
        np.testing.assert_array_equal(made[name], expected[name], err_msg=name)


def test_outputs_of_an_encoder_decoder_are_references_wherever_they_lie(pair, tmp_path):
    """The same sentences as files, as a task's, as JSONL of both sides, as generated outputs."""
    rows = [{"source": p.source, "reference": p.target} for p in corpus()]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    files = {name: str(pair / f"{name}.txt") for name in ("source", "reference")}
    places = (
        {"source_file": files["source"], "reference_file": files["reference"]},
        {"source_file": str(tmp_path / "rows.jsonl")},
        {"text_file": str(tmp_path / "rows.jsonl")},
        {"text_file": files["reference"]},
        GRAMMAR | {"examples": len(rows)},
    )
    expected = [[row["reference"]] for row in rows]
    for place in places:
        config = make_config(pair, **place)
        assert list(job.rows(config, job.check(config))) == expected, place
    some = make_config(pair, text_file=files["reference"], examples=3)
    assert list(job.rows(some, job.check(some))) == expected[:3]


def test_a_decoder_only_target_learns_prompts_too(pair):
    config = make_config(pair, examples=2, prefix="now: ", **GRAMMAR)
    found = list(job.rows(config, SimpleNamespace(info=ModelInfo(9, 1))))
    start = "now: translate English to German: "
    assert found == [[start + pair.source, pair.target] for pair in corpus()[:2]]


def test_a_plan_says_what_is_read_and_leaves_nothing(pair, capsys):
    job.plan(make_config(pair, text_file=str(pair / "reference.txt"), successors=8))
    printed = capsys.readouterr().out
    assert "reference.txt" in printed and "at most 8 successors" in printed
    with pytest.raises(UserError, match="text_file './nowhere.txt' is not a file"):
        job.plan(make_config(pair, text_file="./nowhere.txt"))


TEXT = {"text_file": "reference.txt"}
MISTAKES = {
    "no target": (TEXT | {"target": ""}, "config.target is empty"),
    "a missing target": (TEXT | {"target": "./nowhere"}, "./nowhere"),
    "no text": ({}, "config.text_file is empty"),
    "two texts": (TEXT | {"task": "xsum"}, "config.task is 'xsum' with config.text_file"),
    "a missing file": ({"text_file": "./nowhere.txt"}, "./nowhere.txt"),
    "an empty file": ({"text_file": "empty.txt"}, "text_file 'empty.txt' holds no text"),
    "rows without outputs": ({"text_file": "sources.jsonl"}, "field 'reference'"),
    "no references": ({"source_file": "source.txt"}, "config.reference_file is empty"),
    "an unknown task": ({"task": "wmt"}, "config.task is 'wmt'"),
    "an unknown kind": ({"task": "xsum", "data": {"kind": "csv"}}, "kind is 'csv'"),
    "no successors": (TEXT | {"successors": 0}, "config.successors is 0"),
    "no smoothing": (TEXT | {"smoothing": 0.0}, "config.smoothing is 0.0"),
    "smoothing nan": (TEXT | {"smoothing": float("nan")}, "config.smoothing is nan"),
    "all held out": (TEXT | {"heldout": 60}, "config.heldout is 60"),
    "none held out": (TEXT | {"heldout": 0}, "config.heldout is 0"),
    "a negative count": (TEXT | {"examples": -1}, "config.examples is -1"),
    "a negative seed": (TEXT | {"seed": -1}, "config.seed is -1"),
}


@pytest.mark.parametrize(("changes", "named"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_refused_in_one_sentence(changes, named, pair, tmp_path, monkeypatch):
    monkeypatch.chdir(pair)
    Path("empty.txt").write_text("")
    Path("sources.jsonl").write_text('{"source": "a"}\n')
    with pytest.raises(UserError) as refusal:
        config = make_config(pair, **changes)
        check_config(config)
        job.run(config, tmp_path / "out")
    assert named in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / "out" / "ngram.safetensors").exists()


def test_main_ends_a_refusal_with_code_2(pair, tmp_path):
    flags = (f"--workdir={tmp_path}", f"--config.target={pair / 'target'}", "--config.seed=-1")
    done = command(CONFIG, *flags)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "specjax: config.seed is -1; it must be an integer of at least 0 and at most 4,294,967,295"
    )


def fit_bigrams(config: ConfigDict, width: int, vocab_size: int):
    """What a decode experiment gives its bigram drafter."""
    model = SimpleNamespace(info=ModelInfo(width, 1, start_token=0))
    target = SimpleNamespace(model=model, tokenizer=None)
    return load_tables(config, {"ngram"}, target, vocab_size, [])["ngram"]


def test_a_decode_reads_a_table_instead_of_fitting_one(tmp_path):
    """Cut to the ids that all models have; of another vocabulary it is refused."""
    table = ngram.fit([[2, 3, 4, 1], [2, 4, 1]], 9, start_token=0)
    ngram.save(table, tmp_path / "ngram.safetensors")
    config = decode_config(ngram_table=str(tmp_path / "ngram.safetensors"))
    np.testing.assert_array_equal(fit_bigrams(config, 9, 9)["best"], table["best"])
    assert fit_bigrams(config, 9, 7)["unigram"].shape == (7,)
    with pytest.raises(UserError, match="has a vocabulary of 9, the target has 8"):
        fit_bigrams(config, 8, 8)


def test_a_decode_with_a_table_reads_no_further_rows():
    config = decode_config(task="multi30k_ende", examples=3, ngram_examples=5)
    config.data.update(GRAMMAR["data"])
    assert reads_rest(config, {"ngram"}) and len(load_data(config, more=True).rest) == 5
    config.ngram_table = "ngram.safetensors"
    assert not reads_rest(config, {"ngram"}) and load_data(config, more=False).rest == []


def test_a_prefix_that_the_task_says_already_is_refused():
    config = decode_config(task="multi30k_ende", examples=3, prefix="translate English to German: ")
    config.data.update(GRAMMAR["data"])
    with pytest.raises(UserError, match="config.prefix is .* task 'multi30k_ende' begin already"):
        load_data(config, more=False)
    config.prefix = "Please "
    assert len(load_data(config, more=False).examples) == 3
