"""The online experiment: what is learned from, resumption to the bit, what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import on_t5
from ml_collections import ConfigDict
from tiny import corpus

import specjax
from specjax.decoding.loop import generate
from specjax.experiments.config.defaults import online_config
from specjax.experiments.config.validation import check_config
from specjax.experiments.online import job as online
from specjax.experiments.online.checks import check
from specjax.experiments.online.learner import Learner, make_training_batch
from specjax.experiments.online.parts import prepare
from specjax.experiments.online.records import DecodeRecord
from specjax.hf import huggingface
from specjax.hf.tokenizer import train_tokenizer
from specjax.runtime.errors import UserError

NEURAL = {"drafter": "neural", "length": 2}
STRATEGIES = {"fixed": NEURAL, "shared": NEURAL}


@pytest.fixture(scope="module")
def near(pair, tmp_path_factory) -> Path:
    """A drafter of which the target accepts some tokens: its own weights with noise."""
    target, folder = specjax.load(pair / "target"), tmp_path_factory.mktemp("near")
    rng = np.random.default_rng(0)

    def noisy(x: jax.Array) -> jax.Array:
        return x + 0.2 * float(jnp.std(x)) * rng.normal(size=x.shape).astype(np.float32)

    params = jax.tree.map(noisy, target.params)
    huggingface.save(folder / "model", target.model, params, target.tokenizer)
    return folder / "model"


def make_config(pair: Path, drafter: Path | None = None, **changes) -> ConfigDict:
    """Eleven texts of two sources by twos; an update after every four."""
    files = {"second": "reference.txt", "first": "source.txt"}
    fields = {
        "target": str(pair / "target"),
        "drafter": str(drafter or pair / "drafter"),
        "strategies": STRATEGIES,
        "learns": "shared",
        "every": 4,
        "batch_size": 2,
        "max_new_tokens": 8,
        "bucket": 128,
        "blocks": 3,
        **changes,
    }
    sources = {
        name: {"source_file": str(pair / file), "examples": 5 + place}
        for place, (name, file) in enumerate(files.items())
    }
    config = online_config(sources=sources, **{"stream": ("first", "second"), **fields})
    config.optimizer.learning_rate = 1e-2
    return config


@pytest.fixture(scope="module")
def finished(pair, near, tmp_path_factory) -> tuple[ConfigDict, Path, dict]:
    workdir = tmp_path_factory.mktemp("online") / "run"
    config = make_config(pair, near)
    return config, workdir, online.run(config, workdir)


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def without_times(workdir: Path) -> list[dict]:
    rows = lines(workdir / online.DECODED)
    for row in rows:
        row["seconds"] = None
        row["learning"] = row["learning"] and row["learning"]["loss"]
    return rows


@pytest.mark.slow
def test_a_stream_leaves_figures_texts_a_plot_and_the_drafter(finished, pair):
    config, workdir, content = finished
    assert json.loads((workdir / "results.json").read_text("utf-8")) == json.loads(
        json.dumps(content)
    )
    assert list(content["strategies"]) == list(STRATEGIES)
    for entry in content["strategies"].values():
        whole, sources = entry["all"], entry["sources"]
        assert whole["texts"] == whole["same_as_first"] == 11  # greedy: the target's own texts
        assert {name: each["texts"] for name, each in sources.items()} == {"first": 6, "second": 5}
        for field in ("tokens", "tested", "accepted", "target_calls"):
            assert sum(each[field] for each in sources.values()) == whole[field] > 0
            assert sum(each[field] for each in entry["blocks"]) == whole[field]
        assert whole["acceptance"] == whole["accepted"] / whole["tested"]
        assert whole["tokens_per_target_call"] == whole["tokens"] / whole["target_calls"]
    assert content["learning"]["updates"] == 2 and content["learning"]["seconds"] > 0
    assert (workdir / "plots" / "stream.png").stat().st_size > 0
    rows = lines(workdir / "texts.jsonl")
    assert [(row["strategy"], row["text"]) for row in rows] == [
        (name, text) for name in STRATEGIES for text in range(11)
    ]
    baseline = specjax.Generator(specjax.load(pair / "target"), max_new_tokens=8, bucket=128)
    texts = (pair / "source.txt").read_text("utf-8").splitlines()[:2]
    assert [row["output"] for row in rows[:2]] == baseline(texts).texts


@pytest.mark.slow
def test_the_learned_drafter_is_what_the_last_texts_were_drafted_with(finished, pair, near):
    config, workdir, content = finished
    target, learned = specjax.load(pair / "target"), specjax.load(workdir / "model")
    assert learned.tokenizer is not None
    moved = [
        float(np.abs(np.asarray(one) - np.asarray(two)).max())
        for one, two in zip(
            jax.tree.leaves(learned.params),
            jax.tree.leaves(specjax.load(near).params),
            strict=True,
        )
    ]
    assert max(moved) > 1e-3
    last = lines(workdir / online.DECODED)[-1]
    strategy = specjax.strategy(**NEURAL)
    generator = specjax.Generator(
        target, {"drafter": learned}, strategy, max_new_tokens=8, bucket=128
    )
    statistics = generator(last["texts"], batch_size=2).statistics
    records = last["records"]["shared"]
    assert statistics.accepted == sum(sum(each["accepted"]) for each in records)
    assert statistics.tested == sum(sum(each["tested"]) for each in records)


@pytest.mark.slow
def test_a_finished_stream_run_again_decodes_nothing(finished, monkeypatch):
    config, workdir, content = finished
    before = (workdir / "model" / "model.safetensors").read_bytes()
    monkeypatch.setattr(online, "decode_batch", None)
    again = online.run(config, workdir)
    assert again["strategies"] == content["strategies"]
    assert (workdir / "model" / "model.safetensors").read_bytes() == before
    config = config.copy_and_resolve_references()
    config.every = 2
    with pytest.raises(UserError, match="holds a run with config.every 4, this config has 2"):
        online.run(config, workdir)


@pytest.mark.slow
@pytest.mark.parametrize("kept_every", [1, 20])
def test_a_stream_that_was_killed_goes_on_to_the_same_bits(
    finished, tmp_path, monkeypatch, kept_every
):
    """From its checkpoint, or by learning again from what was decoded; within an update, too."""
    config, workdir, _ = finished
    monkeypatch.setattr(online, "KEPT_EVERY", kept_every)
    update = Learner.update

    def kill(self, texts):
        if self.updates == 1:
            update(self, texts)
            raise KeyboardInterrupt  # before its line was written
        return update(self, texts)

    monkeypatch.setattr(Learner, "update", kill)
    with pytest.raises(KeyboardInterrupt):
        online.run(config, tmp_path / "run")
    monkeypatch.setattr(Learner, "update", update)
    file = tmp_path / "run" / online.DECODED
    whole = file.read_bytes()
    assert whole.count(b"\n") == 3
    file.write_bytes(whole + b'{"texts": ["half')
    turn, turns = online.decode_batch, []
    monkeypatch.setattr(
        online, "decode_batch", lambda job, batch, bar: turns.append(batch) or turn(job, batch, bar)
    )
    online.run(config, tmp_path / "run")
    assert turns == [3, 4, 5]
    assert without_times(tmp_path / "run") == without_times(workdir)
    same = (Path("model") / "model.safetensors", Path("model") / "config.json")
    for name in same:
        assert (tmp_path / "run" / name).read_bytes() == (workdir / name).read_bytes()


@pytest.mark.slow
def test_a_checkpoint_ahead_of_what_was_decoded_is_refused(finished, tmp_path, monkeypatch):
    config, _, _ = finished
    monkeypatch.setattr(online, "KEPT_EVERY", 1)
    online.run(config, tmp_path / "run")
    file = tmp_path / "run" / online.DECODED
    rows = file.read_text("utf-8").splitlines(keepends=True)
    file.write_text(rows[0], "utf-8")
    with pytest.raises(UserError, match="checkpoint after update 2 and decoded.jsonl ends after"):
        online.run(config, tmp_path / "run")
    file.write_text(rows[1], "utf-8")
    with pytest.raises(UserError, match="line 1 is of other texts"):
        online.run(config, tmp_path / "run")


@pytest.fixture(scope="module")
def job(finished):
    """The stream of `finished`, made ready anew."""
    config = finished[0]
    return prepare(config, check(config))


def make_records(workdir: Path, rows: int) -> list[DecodeRecord]:
    turns = lines(workdir / online.DECODED)[:rows]
    return [DecodeRecord(**each) for turn in turns for each in turn["records"]["shared"]]


@pytest.mark.slow
def test_updates_lower_the_loss_and_compile_no_decode_anew(finished, job):
    _, workdir, _ = finished
    texts = list(zip(job.prompts, make_records(workdir, 2), strict=False))
    generator, learner = job.generators["shared"], job.learner

    def decode_job():
        batch = generator.batch(job.prompts[:2], 2)
        trees = {"drafter": learner.params}
        return generator.rows(generator.run(batch, generator.keys(batch, 0), trees=trees))

    before, compiled = decode_job(), generate._cache_size()
    losses = [learner.update(texts)["loss"] for _ in range(4)]
    assert losses[-1] < losses[0] - 0.05
    assert decode_job() == before and generate._cache_size() == compiled


GIVEN = DecodeRecord([7, 8, 9, 5, 6, 1], committed=[3, 1, 2], drafted=[2, 2, 2], accepted=[2, 0, 1],
            tested=[2, 1, 2])  # fmt: skip
"""A draft that stood and a bonus token; a rejection at once; one token that stood, then the end."""


def test_a_bonus_token_was_not_tested():
    assert GIVEN.places.tolist() == [True, True, False, True, True, True]
    undrafted = DecodeRecord([4, 1], [1, 1], [0, 1], [0, 1], [0, 1])
    assert undrafted.places.tolist() == [False, True]


@pytest.mark.parametrize("start_token", [0, None])
def test_a_lesson_is_of_the_tested_positions(start_token):
    other = DecodeRecord([5, 1], [1, 1], [1, 1], [0, 1], [1, 1])
    batch = make_training_batch([([3, 4], GIVEN), ([2], other)], 4, start_token, pad=0)
    begin = 1 if start_token is None else 0
    learned = [
        (row, int(label))
        for row, place in zip(*np.nonzero(batch["mask"]), strict=True)
        for label in [batch["labels"][row, place]]
    ]
    assert learned == [(0, 7), (0, 8), (0, 5), (0, 6), (0, 1), (1, 5), (1, 1)]
    assert batch["inputs"][0, begin] == (0 if start_token is not None else 4)
    assert batch["labels"][0, begin] == 7


@pytest.mark.slow
def test_what_is_told_of_a_text_is_what_the_target_tested(finished):
    """Rejected drafts end at the token that the target put in their place."""
    _, workdir, _ = finished
    for each in make_records(workdir, 6):
        assert sum(each.committed) == len(each.tokens) > 0
        rounds = zip(each.committed, each.drafted, each.accepted, each.tested, strict=True)
        for committed, drafted, accepted, tested in rounds:
            assert tested == min(accepted + 1, drafted) and accepted <= committed <= accepted + 1
            if accepted < drafted:
                assert committed == tested


@pytest.mark.slow
def test_a_feature_drafter_learns_too(pair, tmp_path):
    target = specjax.load(pair / "target")
    ids = tuple(range(60))
    model, params = on_t5(target.model.config, (1, 2), ids)
    params["embedding"] = target.params["embedding"]
    huggingface.save(tmp_path / "drafter", model, params, target.tokenizer)
    eagle = {"drafter": "eagle", "length": 2}
    config = make_config(
        pair,
        tmp_path / "drafter",
        strategies={"fixed": eagle, "row": {**eagle, "online_rate": 0.5}, "shared": eagle},
    )
    config.objective.update(name="eagle", steps=2)
    content = online.run(config, tmp_path / "run")
    assert content["learning"]["updates"] == 2
    for entry in content["strategies"].values():
        assert entry["all"]["same_as_first"] == 11
    learned = specjax.load(tmp_path / "run" / "model").params
    np.testing.assert_array_equal(learned["ids"], params["ids"])
    np.testing.assert_array_equal(learned["embedding"], target.params["embedding"])
    assert float(np.abs(np.asarray(learned["head"]["kernel"] - params["head"]["kernel"])).max()) > 0


@pytest.mark.slow
def test_a_stream_in_bfloat16_learns_in_float32(pair, tmp_path):
    config = make_config(pair, dtype="bfloat16", strategies={"shared": NEURAL})
    content = online.run(config, tmp_path)
    assert content["learning"]["updates"] == 2
    assert specjax.load(tmp_path / "model").params["embedding"].dtype == np.float32


@pytest.mark.slow
def test_a_stream_without_learning_leaves_no_drafter(pair, tmp_path, capsys):
    config = make_config(pair, learns="", strategies={"fixed": NEURAL})
    content = online.run(config, tmp_path)
    assert content["learning"] == {"updates": 0, "seconds": 0, "losses": []}
    assert not (tmp_path / "model").exists()
    assert "tok/call" in capsys.readouterr().out


def test_a_plan_says_what_is_read_and_learned(pair, capsys):
    online.plan(make_config(pair))
    said = capsys.readouterr().out
    assert said.index("stream: first, 6 texts of source") < said.index("stream: second, 5 texts")
    assert "under 'shared', an update of 1 step(s) after every 4 texts" in said


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"every": 3}, "config.every is 3; it must be a multiple of config.batch_size, 2"),
        ({"every": 0}, "config.every is 0; it must be an integer of at least 1"),
        ({"learns": "best"}, "config.learns is 'best'; it must be a strategy of the config, fixed"),
        (
            {"strategies": {"a": {"drafter": "uniform", "length": 2}}, "learns": "a"},
            "config.learns is 'a'; it must be a strategy that drafts with the model 'drafter'",
        ),
        (
            {"strategies": {"a": {"drafter": "bigram", "length": 2}}, "learns": ""},
            "strategies.a reads the table 'ngram'; streams allow models only",
        ),
        ({"strategies": {}, "learns": ""}, "config.strategies is empty"),
        ({"optimizer.name": "sgd"}, "optimizer.name is 'sgd'; it must be one of adamw"),
        ({"optimizer.warmup": 9}, "config.optimizer.warmup is 9; it must be at most 2, the"),
        ({"objective.name": "eagle"}, "config.objective.name is 'eagle'; it must be another one"),
        ({"objective.name": "blockwise"}, "config.objective.name is 'blockwise'; it must be one"),
        ({"sources.first.source_file": ""}, "config.sources.first has task '' and source_file ''"),
        ({"sources.first.task": "gsm8k"}, "exactly one of them must be set"),
        (
            {"stream": ("first",)},
            "config.stream is ('first',); it must name each of",
        ),
        ({"stream": ("first", "last")}, "must name each of config.sources once, first, second"),
    ],
)
def test_what_cannot_be_is_refused(pair, tmp_path, changes, sentence):
    config = make_config(pair, **{k: v for k, v in changes.items() if "." not in k})
    config.update_from_flattened_dict({k: v for k, v in changes.items() if "." in k})
    with pytest.raises(UserError) as refused:
        check_config(config)
        online.run(config, tmp_path / "run")
    assert sentence in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_a_drafter_of_another_tokenizer_is_not_trained(pair, tmp_path):
    """It may draft; what it would learn from has the target's ids."""
    drafter, other = specjax.load(pair / "drafter"), tmp_path / "other"
    lines = [text for pair in corpus() for text in (pair.source, pair.target)]
    huggingface.save(other, drafter.model, drafter.params, train_tokenizer(lines, 150))
    with pytest.raises(UserError, match="'in training' has another tokenizer"):
        online.run(make_config(pair, other), tmp_path / "run")


@pytest.mark.slow
def test_a_turn_comes_back_from_its_line(finished):
    _, workdir, _ = finished
    row = lines(workdir / online.DECODED)[0]
    assert online.Turn.of_row(row).row() == row
