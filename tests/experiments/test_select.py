"""Offline data, policies and their curves, end to end on a tiny pair; resumption and bad input."""

from __future__ import annotations

import csv
import dataclasses
import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from specjax.api import Generator
from specjax.experiments.config.defaults import (
    AUTOREGRESSIVE,
    decode_config,
    neural_spec,
    select_config,
    select_curve_config,
    select_data_config,
)
from specjax.experiments.config.validation import check_config
from specjax.experiments.decode import job as decode
from specjax.experiments.recipes.selection import choices
from specjax.experiments.selection import curve as select_curve
from specjax.experiments.selection import data as select_data
from specjax.experiments.selection import policy as select
from specjax.experiments.selection.parts import prepare
from specjax.experiments.selection.times import measure_times
from specjax.loading import load
from specjax.models.base import LanguageModel
from specjax.models.shapes import get_parameter_shapes
from specjax.runtime.errors import UserError
from specjax.selection import data, policy
from specjax.selection import policy as features
from specjax.selection.reward import rouge_l, token_lcs
from specjax.training.surgery import take

ARMS = {
    "exit": {"drafter": "early_exit", "exit": 1, "length": 2},
    "none": AUTOREGRESSIVE,
    "small": neural_spec("drafter", 2),
}
LIMIT = 5


def make_config(pair: Path, **changes) -> ConfigDict:
    """Six English and four German queries of one padded length."""
    config = select_data_config(
        tasks={
            "en": {"source_file": str(pair / "source.txt"), "prefix": "now: ", "examples": 6},
            "de": {"source_file": str(pair / "reference.txt"), "examples": 4},
        },
        target=str(pair / "target"), drafter=str(pair / "drafter"), strategies=ARMS,
        batch_size=4, bucket=64, max_new_tokens=LIMIT, max_prompt_tokens=64,
    )  # fmt: skip
    config.update(changes)
    return config


@pytest.fixture(scope="module")
def made(pair, tmp_path_factory) -> Path:
    """A finished folder of offline data."""
    workdir = tmp_path_factory.mktemp("data") / "run"
    select_data.run(make_config(pair), workdir)
    return workdir


@pytest.fixture(scope="module")
def timed(made, tmp_path_factory) -> Path:
    """The same with times, of which `small` has the shortest for German and `none` for English."""
    folder = tmp_path_factory.mktemp("timed")
    rows, found = make_rows(made), data.load(made)
    for row in rows:
        fast = "small" if row["task"] == "de" else "none"
        row["seconds"] = {arm: 1.0 if arm == fast else 2.0 for arm in (*ARMS, data.ALONE)}
        row["tokens"] = dict.fromkeys((*ARMS, data.ALONE), LIMIT)
    shape = json.loads((made / data.SHAPE).read_text("utf-8")) | {"timed": True}
    data.save(folder, shape, rows, found.embeddings)
    return folder


def make_rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / data.ROWS).read_text("utf-8").splitlines()]


@pytest.mark.slow
def test_every_query_has_what_each_model_says_alone(made, pair):
    target, drafter = load(pair / "target"), load(pair / "drafter")
    first = take(target.model, target.params, (0,))
    exit_ = dataclasses.replace(target, model=first[0], params=first[1])
    rows = make_rows(made)
    assert [row["id"] for row in rows] == [f"de/{i}" for i in range(4)] + [
        f"en/{i}" for i in range(6)
    ]
    assert rows[4]["text"].startswith("now: ")
    texts = [row["text"] for row in rows]
    limits = {"max_new_tokens": LIMIT, "bucket": 64}
    writers = {"target": target, "drafter": drafter, "target_exit_1": exit_}
    said = {name: Generator(who, **limits)(texts, batch_size=4) for name, who in writers.items()}
    for index, row in enumerate(rows):
        for name, result in said.items():
            assert row["outputs"][name] == result.texts[index], (row["id"], name)
        for arm, name in (("small", "drafter"), ("exit", "target_exit_1")):
            ids = [[t for t in said[n].tokens[index] if t != 1] for n in ("target", name)]
            assert row["token_lcs"][arm] == pytest.approx(token_lcs(*ids))
        sample = rouge_l(row["outputs"]["target"], row["outputs"]["target_sample"])
        assert row["rouge_l"]["none"] == pytest.approx(sample)


@pytest.mark.slow
def test_the_target_alone_is_scored_by_a_sample_not_by_itself(made):
    assert any(
        row["outputs"]["target"] != row["outputs"]["target_sample"] for row in make_rows(made)
    )


@pytest.mark.slow
def test_embeddings_are_those_of_the_prefill_and_parameters_of_what_drafts(made, pair):
    target, found = load(pair / "target"), data.load(made)
    ids = [target.tokenizer(row["text"]).input_ids for row in make_rows(made)]
    generator = Generator(target, bucket=64)
    batch = generator.batch(ids, len(ids))
    start = jax.jit(target.model.start, static_argnums=3)
    expected = start(target.params, batch.tokens, batch.length, 70)[1].embedding
    np.testing.assert_allclose(found.embeddings, expected, atol=1e-5)
    assert (found.source, found.embeddings.shape[1]) == features.embedding_source(target.model)
    sizes = {
        "none": make_size(target.model),
        "small": make_size(load(pair / "drafter").model),
        "exit": make_size(take(target.model, target.params, (0,))[0]),
    }
    assert dict(zip(found.arms, found.parameters, strict=True)) == sizes


def make_size(model: LanguageModel) -> int:
    shapes = get_parameter_shapes(model)
    return sum(leaf.size for leaf in jax.tree.leaves(shapes))


@pytest.mark.slow
def test_a_killed_run_goes_on_and_loses_and_doubles_nothing(made, pair, tmp_path):
    """Cut in the middle of a line of one output, without all that comes later."""
    again = tmp_path / "run"
    shutil.copytree(made, again)
    file = again / "outputs" / "drafter.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:4]) + lines[4][:9])
    for gone in ("outputs/target_exit_1.jsonl", "embedded/00000.safetensors", data.SHAPE):
        (again / gone).unlink()
    select_data.run(make_config(pair), again)
    for file in sorted((again / "outputs").iterdir()):
        indices = [json.loads(line)["index"] for line in file.read_text("utf-8").splitlines()]
        assert sorted(indices) == list(range(10)), file.name
    assert make_rows(again) == make_rows(made)
    first, second = data.load(again), data.load(made)
    np.testing.assert_allclose(first.embeddings, second.embeddings, atol=1e-6)


@pytest.mark.slow
def test_measured_decodes_go_on_after_the_last_whole_line(pair, tmp_path):
    target = load(pair / "target")
    generators = {
        name: Generator(target, max_new_tokens=LIMIT, bucket=64) for name in ("alone", "same")
    }
    texts = (pair / "source.txt").read_text("utf-8").splitlines()[:5]
    ids = [target.tokenizer(text).input_ids for text in texts]
    settings = {"repeats": 2, "seed": 0}
    rows = measure_times(generators, ids, tmp_path / "times.jsonl", **settings)
    expected = generators["alone"](texts, batch_size=1).tokens
    for index, row in enumerate(rows):
        assert row["index"] == index and row["tokens"] == dict.fromkeys(
            generators, len(expected[index])
        )
        assert set(row["seconds"]) == set(generators) and min(row["seconds"].values()) > 0
    lines = (tmp_path / "times.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "times.jsonl").write_bytes(b"".join(lines[:2]) + lines[2][:11])
    again = measure_times(generators, ids, tmp_path / "times.jsonl", **settings)
    kept = {json.loads(line)["index"] for line in lines[:2]}
    assert all((again[i]["seconds"] == rows[i]["seconds"]) == (i in kept) for i in range(5))
    assert len((tmp_path / "times.jsonl").read_bytes().splitlines()) == 5
    with pytest.raises(UserError, match="times other arms"):
        measure_times({"alone": generators["alone"]}, ids, tmp_path / "times.jsonl", **settings)


@pytest.mark.slow
def test_arms_are_timed_on_what_the_target_says(pair, tmp_path):
    """Also one that writes nothing by itself; one that drafts nothing is the target alone."""
    strategies = ARMS | {"lookup": LOOKUP}
    select_data.run(make_config(pair, repeats=1, strategies=strategies), tmp_path / "run")
    generator = Generator(load(pair / "target"), max_new_tokens=LIMIT, bucket=64)
    rows = make_rows(tmp_path / "run")
    said = generator([row["text"] for row in rows], batch_size=4).tokens
    for row, tokens in zip(rows, said, strict=True):
        assert min(row["seconds"].values()) > 0
        assert row["tokens"] == dict.fromkeys((*strategies, data.ALONE), len(tokens))
        assert row["seconds"]["none"] == row["seconds"][data.ALONE]
        assert row["rouge_l"]["lookup"] is None
    assert data.load(tmp_path / "run").times.speedups.shape == (10, 4)
    select_data.run(make_config(pair, repeats=2, strategies=strategies), tmp_path / "run")
    assert (
        make_rows(tmp_path / "run") == rows
    )  # more repeats are no other data: what is there stays


@pytest.mark.slow
def test_a_workdir_of_other_settings_is_refused(made, pair):
    before = (made / data.SHAPE).read_bytes()
    with pytest.raises(UserError, match="holds a run with config.max_new_tokens 5"):
        select_data.run(make_config(pair, max_new_tokens=6), made)
    assert (made / data.SHAPE).read_bytes() == before


def test_prompts_that_are_too_long_are_left_out(pair, tmp_path, capsys):
    lengths = [len(load(pair / "target").tokenizer(line).input_ids) for line in
               (pair / "reference.txt").read_text("utf-8").splitlines()[:4]]  # fmt: skip
    config = make_config(pair, max_prompt_tokens=sorted(lengths)[-2], repeats=0)
    job = prepare(config)
    assert sum(query.task == "de" for query in job.queries) == 3
    assert "task de: 3 queries, 1 too long ones left out" in capsys.readouterr().out


LOOKUP = {"drafter": "prompt_lookup", "length": 2}


def test_a_plan_reads_no_weights(pair, tmp_path, capsys):
    for name in ("target", "drafter"):
        shutil.copytree(pair / name, tmp_path / name)
        (tmp_path / name / "model.safetensors").unlink()
    config = make_config(pair, target=str(tmp_path / "target"), drafter=str(tmp_path / "drafter"))
    select_data.plan(config)
    printed = capsys.readouterr().out
    assert "encoder_mean of width 24" in printed and "arm exit:" in printed
    assert "writes target_exit_1" in printed and "generated: 4 outputs" in printed


DATA_MISTAKES = {
    "no target": ({"target": ""}, "config.target is empty"),
    "one arm": ({"strategies": {"none": AUTOREGRESSIVE}}, "it must have at least two arms"),
    "a taken name": ({"strategies": {"alone": AUTOREGRESSIVE}}, "none of them called 'alone'"),
    "two temperatures": (
        {"strategies": {"small": neural_spec("drafter", 2, temperature=1.0)}},
        "config.strategies differ in temperature",
    ),
    "an unknown model": ({"strategies": {"big": neural_spec("big", 2)}}, "names the model 'big'"),
    "a table": ({"strategies": {"b": {"drafter": "bigram", "length": 2}}}, "strategies.b reads"),
    "silent and untimed": (
        {"strategies": {"lookup": LOOKUP}, "repeats": 0},
        "config.repeats must be at least 1",
    ),
    "no tasks": ({"tasks": {}}, "config.tasks has nothing"),
    "nothing to read": ({"tasks": {"en": {"source_file": ""}}}, "exactly one"),
    "an unknown task": ({"tasks": {"en": {"task": "wmt"}}}, "config.tasks.en.task is 'wmt'"),
    "a missing file": ({"tasks": {"en": {"source_file": "./nowhere"}}}, "./nowhere"),
    "negative repeats": ({"repeats": -1}, "config.repeats is -1"),
    "too short prompts": ({"max_prompt_tokens": 2}, "has no prompt of at most"),
    "an exit too deep": (
        {"strategies": {"exit": {"drafter": "early_exit", "exit": 3, "length": 2}}},
        "there are 0 to 1",
    ),
}


@pytest.mark.parametrize(("changes", "named"), DATA_MISTAKES.values(), ids=DATA_MISTAKES)
def test_a_mistake_in_offline_data_is_refused_in_one_sentence(changes, named, pair, tmp_path):
    config = make_config(pair)
    with config.unlocked():
        for field, value in changes.items():
            if value == {} or field == "strategies" and len(value) == 1 and "none" in value:
                config[field] = ConfigDict(value)
            elif isinstance(value, dict):
                config[field].update(value)
            else:
                config[field] = value
    with pytest.raises(UserError) as refused:
        check_config(config)
        select_data.run(config, tmp_path / "out")
    assert named in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def fitted(timed, tmp_path_factory) -> tuple[Path, dict]:
    workdir = tmp_path_factory.mktemp("policy") / "run"
    config = select_config(data=str(timed), heldout=0.3, hidden=8, fit={"batch_size": 4})
    return workdir, select.run(config, workdir)


@pytest.mark.slow
def test_a_policy_is_left_that_fits_target_and_arms(fitted, pair):
    workdir, content = fitted
    made, params = policy.load(workdir / select.POLICY)
    policy.check(
        made, ("exit", "none", "small"), *features.embedding_source(load(pair / "target").model)
    )
    written = json.loads((workdir / "results.json").read_text("utf-8"))
    assert written == json.loads(json.dumps(content))  # tuples are lists there
    assert content["queries"] == {"train": 7, "test": 3}
    assert 0 < content["choice_ms"] < 1e3 * content["fit_seconds"]
    for side in ("train", "test"):
        whole = content[side]["all"]
        assert sum(whole["shares"].values()) == pytest.approx(1)
        assert whole["reward"]["oracle"] >= whole["reward"]["policy_greedy"]
        assert whole["speedup"]["oracle"] >= whole["speedup"]["policy_greedy"]


@pytest.mark.slow
def test_policies_see_only_the_arms_that_are_offered_and_are_judged_elsewhere(timed, tmp_path):
    config = select_config(
        data=str(timed), test=str(timed), arms=("small", "none"), hidden=4,
        reward={"kind": "speedup"}, fit={"objective": "reinforce", "baseline": True},
    )  # fmt: skip
    content = select.run(config, tmp_path / "run")
    assert content["arms"] == ["small", "none"]
    assert content["queries"] == {"train": 10, "test": 10}
    # Alone it takes 2 seconds for each of 4 and 6 queries; `none` 2 and 1, `small` 1 and 2.
    speedups = {"none": 20 / 14, "small": 20 / 16, "oracle": 20 / 10}
    found = content["test"]["all"]["speedup"]
    assert {way: found[way] for way in speedups} == pytest.approx(speedups)
    assert policy.load(tmp_path / "run" / select.POLICY)[0].reward.kind == "speedup"


@pytest.mark.slow
def test_curves_have_a_row_for_every_size_weight_and_seed(timed, tmp_path):
    config = select_curve_config(data=str(timed), test=str(timed), hidden=4, seeds=2)
    config.update(sizes=(2, 10), align_weights=(0.0, 1.0))
    content = select_curve.run(config, tmp_path / "run")
    for name, by in (("curve", "queries"), ("align_weight", "align_weight")):
        with (tmp_path / "run" / f"{name}.csv").open(encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        assert len(rows) == len(content[name]) == 4
        assert {float(row[by]) for row in rows} == {float(row[by]) for row in content[name]}
    assert {"oracle", "random", "none", "small", "exit"} == content["levels"]["speedup"].keys()
    for plot in ("learning_curve", "align_weight"):
        assert (tmp_path / "run" / "plots" / f"{plot}.png").stat().st_size > 5000
    row = content["align_weight"][0]
    assert sum(row[f"share_{arm}"] for arm in ARMS) == pytest.approx(1)
    assert 0 <= row["agreement"] <= 1 and 0 <= row["cheapness"] < 1 and row["speedup"] > 0


@pytest.mark.slow
def test_measured_speedups_have_no_weight_to_vary(timed, tmp_path, capsys):
    config = select_curve_config(data=str(timed), test=str(timed), hidden=4, seeds=1)
    config.update(sizes=(10,), reward={"kind": "speedup"})
    content = select_curve.run(config, tmp_path / "run")
    assert not content["align_weight"] and "queries" in capsys.readouterr().out
    assert not (tmp_path / "run" / "align_weight.csv").exists()


@pytest.mark.slow
def test_a_decode_of_the_test_queries_takes_the_arms_that_were_chosen(timed, pair, tmp_path):
    """The policy as it was judged, the oracle as its file says, and the target's own tokens."""
    config = select_config(data=str(timed), test=str(timed), hidden=8, fit={"epochs": 30})
    config.update(arms=("none", "small"), reward={"kind": "speedup"})
    content = select.run(config, tmp_path / "run")
    places = (str(tmp_path / "run" / name) for name in (select.POLICY, select.ORACLE))
    strategies = choices({arm: ARMS[arm] for arm in config.arms}, *places)
    config = decode_config(
        target=str(pair / "target"), drafter=str(pair / "drafter"), examples=0, repeats=1,
        source_file=str(timed / data.ROWS), source_field="text", group_field="task", bucket=64,
        max_new_tokens=LIMIT, max_prompt_tokens=64,
        strategies={n: strategies[n] for n in (*config.arms, "policy_greedy", "oracle")},
    )  # fmt: skip
    written = decode.run(config, tmp_path / "decode")
    found = written["strategies"]
    for way, groups in written["groups"].items():
        assert set(groups) == {"en", "de"}, way
        assert sum(each["tokens"] for each in groups.values()) == found[way]["tokens"]
        assert all(each["speedup"] > 0 for each in groups.values())
    texts = {
        way: {arm: figures["texts"] for arm, figures in found[way]["arms"].items()}
        for way in ("policy_greedy", "oracle")
    }
    shares = content["test"]["all"]["shares"]
    assert texts["policy_greedy"] == {arm: round(10 * share) for arm, share in shares.items()}
    assert texts["oracle"] == {"none": 6, "small": 4}
    assert all(entry["identical_to_target"] == 1 for entry in found.values())


FIT_MISTAKES = {
    "no data": ({"data": ""}, "config.data is empty"),
    "no folder": ({"data": "./nowhere"}, "'nowhere' is not a folder with data.json"),
    "an unknown arm": ({"arms": ("small", "big")}, "arms has 'big'"),
    "one arm": ({"arms": ("small",)}, "config.arms is ('small',)"),
    "nothing held out": ({"heldout": 0.01}, "config.heldout is 0.01 of 10 queries"),
    "all held out": ({"heldout": 1.0}, "config.heldout is 1.0"),
    "an unknown reward": ({"reward": {"kind": "luck"}}, "config.reward.kind is 'luck'"),
    "a weight beyond 1": ({"reward": {"align_weight": 2.0}}, "config.reward.align_weight is 2.0"),
    "an unknown objective": ({"fit": {"objective": "luck"}}, "config.fit.objective is 'luck'"),
    "no units": ({"hidden": 0}, "config.hidden is 0"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("changes", "named"), FIT_MISTAKES.values(), ids=FIT_MISTAKES)
def test_a_mistake_in_a_policy_is_refused_in_one_sentence(changes, named, made, tmp_path):
    config = select_config(data=str(made))
    config.update(changes)
    for job in (select.run, lambda config, _: select.plan(config)):
        with pytest.raises(UserError) as refused:
            check_config(config)
            job(config, tmp_path / "out")
        assert named in str(refused.value)
        assert "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"sizes": (3, 99)}, "config.sizes has 99; it must be an integer from 1 to"),
        ({"align_weights": (0.5, 1.5)}, "config.align_weights is (0.5, 1.5)"),
        ({"seeds": 0}, "config.seeds is 0"),
    ],
)
def test_a_mistake_in_a_curve_is_refused_in_one_sentence(changes, named, made, tmp_path):
    config = select_curve_config(data=str(made))
    config.update(changes)
    with pytest.raises(UserError) as refused:
        check_config(config)
        select_curve.run(config, tmp_path / "out")
    assert named in str(refused.value) and not (tmp_path / "out").exists()
