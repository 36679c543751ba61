"""Training jobs end to end on a tiny pair: every config, resumption, outputs, and bad input."""

from __future__ import annotations

import collections
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from mtp_heads import embed_head
from safetensors.numpy import load_file
from slow_cases import some_slow
from training_configs import ROOT, SHAPES, get_config, small

import specjax
from specjax.acceptance import analytic_acceptance
from specjax.api import Generator
from specjax.decoding.strategy import Strategy, autoregressive
from specjax.drafting.hydra import Hydra
from specjax.drafting.medusa import Medusa
from specjax.experiments.config.defaults import decode_config
from specjax.experiments.config.validation import check_config
from specjax.experiments.train import data as train_data
from specjax.experiments.train import job as train
from specjax.experiments.train.data import OUTPUTS
from specjax.experiments.train.planning import show_plan
from specjax.experiments.train.target_outputs import write_outputs
from specjax.hf import heads as heads_file
from specjax.hf import huggingface
from specjax.hf.tensors import SINGLE
from specjax.loading import load
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.runtime.errors import UserError

NAMES = sorted(file.stem for file in (ROOT / "configs" / "training").glob("*.py"))
WHOLE = ("align", "distill", "early_exit", "finetune", "scratch")
BLOCKS = ("dflash", "dflash2", "dspark", "jetspec")
LAYERS = ("assistant", "eagle", "p_eagle")
QUICK = (*WHOLE, *BLOCKS, *LAYERS, "blockwise", "medusa", "middle", "whisper")
ON_CAUSAL = ("mtp",)
RUN_HERE = (*QUICK, *ON_CAUSAL, "lines", "paragraphs", "smollm2")
DEAR = ("bild_align_mt5_iwslt", "blockwise_wmt", "lines", "mtp", "smollm2", "trocr")  # to plan


@pytest.mark.parametrize("name", some_slow(NAMES, *(name for name in NAMES if name not in DEAR)))
def test_every_config_passes_the_checks_and_can_be_planned(name: str, capsys) -> None:
    config = get_config(name)
    with config.unlocked():
        if name in QUICK:
            config.target = "google/t5-v1_1-small"
        if name in ON_CAUSAL:
            config.target = "Qwen/Qwen3-0.6B"
        if name in QUICK and name not in SHAPES:
            config.model.checkpoint = "google/t5-v1_1-small"
    train.check_train_fields(config)
    planned = show_plan(config)
    assert planned["parameters"] > 0
    # Adam keeps two numbers per parameter; Adafactor rows and columns only.
    share = planned["optimizer"] / planned["gradients"]
    assert share == pytest.approx(2.0, rel=0.01) if "adam" in config.optimizer.name else share < 0.1
    assert "GiB" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_flags_can_set_every_field(name: str) -> None:
    fields = get_config(name).to_dict()
    leaves = jax.tree.leaves(fields, is_leaf=lambda value: isinstance(value, list))
    assert not [value for value in leaves if isinstance(value, list)]  # absl parses tuples only


@pytest.mark.parametrize("name", [name for name in NAMES if name not in RUN_HERE])
def test_a_paper_recipe_says_what_was_not_run(name: str) -> None:
    words = (ROOT / "configs" / "training" / f"{name}.py").read_text("utf-8")
    assert f"--config=configs/training/{name}.py --dry_run" in words
    assert "Not run here" in words and "Resources" in words


LOSS_ONLY = {
    "evaluation__decode": False,
    "evaluation__acceptance": (),
    "evaluation__keep": "loss",
}
"""Each figure is programs to compile; one job measures them all."""


@pytest.fixture(scope="module", params=some_slow(WHOLE, "align"))
def finished(request, pair, tmp_path_factory) -> tuple[ConfigDict, Path, dict]:
    workdir = tmp_path_factory.mktemp(request.param) / "run"
    less = {**LOSS_ONLY, "evaluation__acceptance": (0.0,)}
    config = small(request.param, pair, **({} if request.param == "align" else less))
    return config, workdir, train.run(config, workdir)


def test_a_job_leaves_its_model_and_its_evaluations(finished):
    config, workdir, results = finished
    steps = [row["step"] for row in results["evaluations"]]
    assert steps == [0, 2, 4]
    measured = {"loss", "acceptance_0"}
    measured |= {"bleu", "acceptance_1"} if config.evaluation.decode else set()
    assert all(set(row) == measured | {"step"} for row in results["evaluations"])
    assert json.loads((workdir / "results.json").read_text("utf-8"))["best"] == results["best"]
    made = load(workdir / "model")
    assert made.tokenizer is not None
    assert sum(x.size for x in jax.tree.leaves(made.params)) == results["parameters"]
    lines = workdir / "target_outputs.jsonl"
    assert lines.exists() == (config.sequences.target > 0)


def test_the_exported_model_is_the_best_one(finished, pair):
    """Its acceptance, measured from the files alone, is the one that was reported."""
    config, workdir, results = finished
    target, made = load(pair / "target"), load(workdir / "model")
    sources = (pair / "source.txt").read_text("utf-8").splitlines()[:6]
    prefix = "translate English to German: "
    ids = [target.tokenizer(prefix + line).input_ids for line in sources]
    alpha, _ = analytic_acceptance(target, made, ids, max_new_tokens=16, batch_size=4, bucket=128)
    assert alpha == pytest.approx(results["best"]["acceptance_0"], abs=1e-6)


def test_a_finished_job_run_again_trains_no_more(finished):
    config, workdir, results = finished
    before = (workdir / "model" / "model.safetensors").read_bytes()
    again = train.run(config, workdir)
    assert again["evaluations"] == results["evaluations"]
    assert (workdir / "model" / "model.safetensors").read_bytes() == before


def test_a_workdir_of_another_run_is_refused(finished):
    config, workdir, _ = finished
    other = config.copy_and_resolve_references()
    other.optimizer.learning_rate = 0.5
    with pytest.raises(UserError, match=r"holds a run with config.optimizer.learning_rate"):
        train.run(other, workdir)


@pytest.mark.slow
def test_on_policy_distillation_and_layers_of_the_target(pair, tmp_path):
    config = small(
        "distill", pair, sequences__data=0.5, sequences__drafter=0.5, optimizer__steps=6,
        model__checkpoint=str(pair / "target"), model__decoder_layers=(1,), **LOSS_ONLY,
    )  # fmt: skip
    results = train.run(config, tmp_path / "run")
    assert load(tmp_path / "run" / "model").model.config.num_decoder_layers == 1
    assert all(np.isfinite(row["loss"]) for row in results["evaluations"])


@pytest.mark.slow
@pytest.mark.parametrize("trunk", ("frozen", "trained"))
def test_heads_are_trained_and_draft(pair, tmp_path, trunk):
    config = small(
        "blockwise", pair, objective__trunk=trunk, objective__heads=2, evaluation__decode=False
    )
    results = train.run(config, tmp_path / "run")
    losses = [row["loss"] for row in results["evaluations"]]
    assert losses[-1] < losses[0]
    assert (tmp_path / "run" / "model").exists() == (trunk == "trained")
    names = {"step", "loss", "acceptance_0", "acceptance_1"}
    assert set(results["best"]) == (names if trunk == "trained" else {"step", "loss"})
    heads = heads_file.load(tmp_path / "run" / "heads.safetensors")
    target = load(pair / "target")
    drafter = load(tmp_path / "run" / "model" if trunk == "trained" else pair / "drafter")
    generator = Generator(
        target, {"drafter": drafter}, Strategy(drafter=Medusa(2)),
        tables={"heads": heads}, max_new_tokens=8, bucket=128,
    )  # fmt: skip
    baseline = Generator(target, max_new_tokens=8, bucket=128)
    prompts = (pair / "source.txt").read_text("utf-8").splitlines()[:2]
    assert generator(prompts).tokens == baseline(prompts).tokens


TRAINED = {
    "eagle": ({}, {"objective__steps": 2}),
    "assistant": ({}, {"objective__steps": 2}),
    "p_eagle": ({"num_decoder_layers": 2}, {"objective__slots": 2}),
    "dflash": ({"block_size": 3, "num_decoder_layers": 1}, {"objective__anchors": 4}),
    "dspark": (
        {"block_size": 2, "anchor_first": True, "markov_rank": 4, "num_decoder_layers": 1},
        {"objective__anchors": 4},
    ),
}
"""What makes feature drafters of two tokens."""
SURE = {
    "model_type": "dflash_t5", "draft_vocab_size": 60, "d_model": 12, "block_size": 2,
    "anchor_first": True, "markov_rank": 4, "num_decoder_layers": 1, "enable_confidence_head": True,
}  # fmt: skip
"""One with a confidence head."""


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(tuple(TRAINED), "eagle"))
def test_a_feature_drafter_is_trained_and_drafts(pair, tmp_path, capfd, name):
    more, changes = TRAINED[name]
    layers = {"dspark": "dflash"}.get(name, name)
    shape = {"model_type": f"{layers}_t5", "draft_vocab_size": 60, "d_model": 12, **more}
    config = small(
        name, pair, model__shape=shape, optimizer__learning_rate=1e-2, optimizer__steps=8,
        evaluation__every=8, **changes,
    )  # fmt: skip
    # Prompts are enough on both sides: what is learned and measured is what the target says.
    prefix = "translate English to German: "
    for side in (config.train, config.validation):
        side.update(task="", source_file=str(pair / "source.txt"), prefix=prefix)
    results = train.run(config, tmp_path / "run")
    before, after = results["evaluations"]
    assert after["loss"] < before["loss"]
    rates = {f"acceptance_{t}_at_{step}" for t in (0, 1) for step in (1, 2)}
    assert set(after) == {"step", "loss", "tokens_0"} | rates
    assert all(0 <= after[name] <= 1 for name in rates) and 1 <= after["tokens_0"] <= 3
    target, drafter = load(pair / "target"), load(tmp_path / "run" / "model")
    assert "model of type" not in capfd.readouterr().err  # transformers does not know the family
    np.testing.assert_array_equal(drafter.params["embedding"], target.params["embedding"])
    ids = np.asarray(drafter.params["ids"])
    said = [json.loads(line)["tokens"] for line in (tmp_path / "run" / OUTPUTS).open()]
    counts = collections.Counter(token for row in said for token in row)
    assert len(set(ids.tolist())) == 60 and {token for token, _ in counts.most_common(9)} <= {*ids}
    strategy = specjax.strategy(drafter=name, length=2)
    generator = Generator(target, {"drafter": drafter}, strategy, max_new_tokens=8, bucket=128)
    baseline = Generator(target, max_new_tokens=8, bucket=128)
    prompts = (pair / "source.txt").read_text("utf-8").splitlines()[:2]
    assert generator(prompts).tokens == baseline(prompts).tokens


@pytest.mark.slow
def test_a_decode_prices_drafts_as_long_as_a_block_without_a_place_for_the_pending_token(
    pair, tmp_path
):
    """The number of places is known with the model, not before."""
    config = small(
        "dspark", pair, model__shape={**SURE, "enable_confidence_head": False},
        optimizer__steps=2, evaluation__every=2, objective__anchors=4,
    )  # fmt: skip
    train.run(config, tmp_path / "run")
    strategies = {"drafted": {"drafter": "dspark", "model": "drafter", "length": 2}}
    decode = decode_config(
        target=str(pair / "target"), drafter=str(tmp_path / "run" / "model"), examples=2, repeats=1,
        source_file=str(pair / "source.txt"), strategies=strategies, max_new_tokens=8, bucket=128,
        metric="none",
    )  # fmt: skip
    results = specjax.run(decode, tmp_path / "decoded")
    found = results["strategies"]["drafted"]
    assert found["identical_to_target"] == 1 and found["speedup_predicted"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", ("medusa", "hydra"))
def test_heads_on_the_target_are_trained_and_draft(pair, tmp_path, kind):
    config = small(
        "medusa", pair, objective__name=kind, objective__heads=2, optimizer__learning_rate=1e-2,
        optimizer__steps=8, evaluation__every=8,
    )  # fmt: skip
    results = train.run(config, tmp_path / "run")
    before, after = results["evaluations"]
    assert after["loss"] < before["loss"]
    rates = {f"acceptance_{t}_at_{head}" for t in (0, 1) for head in (1, 2)}
    assert set(after) == {"step", "loss", "tokens_0"} | rates
    assert not (tmp_path / "run" / "model").exists()
    target = load(pair / "target")
    heads = heads_file.load(tmp_path / "run" / "heads.safetensors")
    assert (heads.heads.state_lag, heads.heads.sequential) == (1, kind == "hydra")
    drafter = Hydra(2) if kind == "hydra" else Medusa(2, model="target")
    generator = Generator(
        target, strategy=Strategy(drafter), tables={"heads": heads}, max_new_tokens=8, bucket=128
    )
    baseline = Generator(target, max_new_tokens=8, bucket=128)
    prompts = (pair / "source.txt").read_text("utf-8").splitlines()[:2]
    assert generator(prompts).tokens == baseline(prompts).tokens


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"target": ""}, "config.target is empty; config.sequences.target needs"),
        ({"model__checkpoint": "other"}, "checkpoint is 'other'; it must not be set with"),
        ({"dropout": 0.1}, "dropout is 0.1; it must not be set with objective 'medusa'"),
        ({"objective__trunk": "trained"}, "trunk is 'trained'; objective 'medusa' does not read"),
    ],
)
def test_what_heads_on_the_target_are_not_trained_with_is_refused(pair, changes, words):
    with pytest.raises(UserError, match=words):
        train.check_train_fields(small("medusa", pair, **changes))


def causal_target(pair: Path, folder: Path) -> Path:
    """A random decoder-only target with the pair's tokenizer."""
    tokenizer = load(pair / "target").tokenizer
    shape = CausalConfig(
        "llama", len(tokenizer), d_model=24, d_ff=32, num_layers=3, num_heads=2, num_kv_heads=1,
        d_head=12, max_positions=256, rope=Rope(12), eos=(tokenizer.eos_token_id,),
    )  # fmt: skip
    model = Causal(shape)
    params = jax.tree.map(lambda x: x * 2.0, model.init(jax.random.key(0)))
    huggingface.save(folder, model, params, tokenizer)
    return folder


@pytest.mark.slow
def test_a_head_is_trained_afresh_and_on_from_its_targets_checkpoint(pair, tmp_path):
    target = causal_target(pair, tmp_path / "target")
    config = small(
        "mtp", pair, target=str(target), optimizer__learning_rate=1e-2, optimizer__steps=8,
        evaluation__every=8,
    )  # fmt: skip
    before, after = train.run(config, tmp_path / "run")["evaluations"]
    assert after["loss"] < before["loss"]
    head = tmp_path / "run" / "model"
    assert not {"embed_tokens.weight", "lm_head.weight"} & set(load_file(head / SINGLE))
    both = embed_head(target, head, "qwen")
    on = small(
        "mtp", pair, target=str(both), model__checkpoint=f"{both}#mtp", model__shape={},
        optimizer__learning_rate=1e-2, optimizer__steps=8, evaluation__every=8,
    )  # fmt: skip
    first, last = train.run(on, tmp_path / "on")["evaluations"]
    assert first["loss"] == pytest.approx(after["loss"], rel=1e-4)
    assert last["loss"] < first["loss"]
    drafter, strategy = load(head), specjax.strategy(drafter="eagle", length=2)
    generator = Generator(load(both), {"drafter": drafter}, strategy, max_new_tokens=8, bucket=128)
    baseline = Generator(load(target), max_new_tokens=8, bucket=128)
    prompts = (pair / "source.txt").read_text("utf-8").splitlines()[:2]
    assert generator(prompts).tokens == baseline(prompts).tokens


@pytest.mark.slow
def test_a_published_drafter_is_trained_with_the_tables_of_its_target(pair, tmp_path):
    """It is left in the layout of the hub: without embedding and output layer."""
    causal_target(pair, tmp_path / "target")
    words = {"model_type": "dflash", "mask_token_id": 0, "block_size": 3, "num_hidden_layers": 1}
    config = small(
        "dflash", pair, target=str(tmp_path / "target"), model__shape=words, objective__anchors=4,
        optimizer__learning_rate=1e-2, optimizer__steps=8, evaluation__every=8,
    )  # fmt: skip
    before, after = train.run(config, tmp_path / "run")["evaluations"]
    assert after["loss"] < before["loss"]
    folder = tmp_path / "run" / "model"
    stored = set(load_file(folder / "model.safetensors"))
    assert "fc.weight" in stored and not {"embed_tokens.weight", "lm_head.weight"} & stored
    assert json.loads((folder / "config.json").read_text())["num_target_layers"] == 3
    target, drafter = load(tmp_path / "target"), load(folder)
    strategy = specjax.strategy(drafter="dflash", length=2)
    generator = Generator(target, {"drafter": drafter}, strategy, max_new_tokens=8, bucket=128)
    baseline = Generator(target, max_new_tokens=8, bucket=128)
    prompts = (pair / "source.txt").read_text("utf-8").splitlines()[:2]
    assert generator(prompts).tokens == baseline(prompts).tokens


@pytest.mark.slow
def test_a_confidence_head_is_calibrated_after_training(pair, tmp_path):
    """On held-out texts; the temperatures are kept with the drafter."""
    config = small(
        "dspark", pair, model__shape=SURE, objective__anchors=4, objective__calibrate=True,
        optimizer__steps=8, optimizer__learning_rate=1e-2, evaluation__every=8,
        evaluation__batch_size=12, validation__examples=48, sequences__data=1.0,
        sequences__target=0.0,
    )  # fmt: skip
    results = train.run(config, tmp_path / "run")
    made = results["calibration"]
    assert len(made["temperatures"]) == len(made["error_before"]) == len(made["error_after"]) == 2
    assert np.mean(made["error_after"]) < np.mean(made["error_before"])
    drafter = load(tmp_path / "run" / "model")
    assert drafter.model.config.correction.temperatures == made["temperatures"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes, words",
    [
        ({}, "calibrate is True; it must be False for a drafter without a confidence head"),
        ({"validation__examples": 1}, "calibrate is True with 1 held-out rows; it must be False"),
    ],
)
def test_a_calibration_that_cannot_be_is_refused(pair, tmp_path, changes, words):
    shape = SURE if changes else {**SURE, "enable_confidence_head": False}
    config = small("dspark", pair, model__shape=shape, objective__calibrate=True, **changes)
    with pytest.raises(UserError, match=words):
        train.run(config, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, changes, words",
    [
        ("eagle", {"objective__name": "distillation"}, "'distillation'; it must be 'eagle'"),
        ("align", {"objective__name": "eagle"}, "'eagle'; it must be another one"),
        ("dflash", {"objective__name": "eagle"}, "'eagle'; it must be 'dflash'"),
        ("eagle", {"dropout": 0.1}, "config.dropout is 0.1; it must be 0.0"),
        ("eagle", {"sequences__drafter": 0.5}, "config.sequences.drafter is 0.5; it must be 0.0"),
    ],
)
def test_what_a_feature_drafter_is_not_trained_with_is_refused(
    pair, tmp_path, name, changes, words
):
    if name in TRAINED:
        shape = {"model_type": f"{name}_t5", "draft_vocab_size": 60}
        changes = {"model__shape": shape, **changes}
    config = small(name, pair, **changes)
    with pytest.raises(UserError, match=words):
        train.run(config, tmp_path / "run")


@pytest.mark.slow
def test_a_feature_drafter_trained_on_begins_where_it_was(pair, tmp_path):
    """With its own output layer and ids, though other texts would choose others."""
    shape = {"model_type": "eagle_t5", "draft_vocab_size": 60}  # as wide as the target
    first = small(
        "eagle", pair, model__shape=shape, optimizer__learning_rate=1e-2, evaluation__keep="loss"
    )
    done = train.run(first, tmp_path / "first")
    own = str(tmp_path / "first" / "model")
    more = small(
        "eagle", pair, model__shape={}, model__checkpoint=own, train__examples=24,
        objective__steps=first.objective.steps,
    )  # fmt: skip
    before = train.run(more, tmp_path / "more")["evaluations"][0]
    expected = done["best"]
    assert before["loss"] == pytest.approx(expected["loss"], rel=1e-4)


def test_outputs_go_on_after_the_last_whole_line(pair, tmp_path):
    target = load(pair / "target")
    sampled = autoregressive(temperature=1.0)
    generator = Generator(target, strategy=sampled, max_new_tokens=8, bucket=64)
    prompts = (pair / "source.txt").read_text("utf-8").splitlines()[:10]
    ids = generator.encode(prompts)
    settings = {"batch_size": 4, "seed": 3}
    whole = write_outputs(generator, prompts, ids, tmp_path / "whole.jsonl", **settings)
    lines = (tmp_path / "whole.jsonl").read_text("utf-8").splitlines(keepends=True)
    rows = [json.loads(line) for line in lines]
    assert sorted(row["index"] for row in rows) == list(range(10))
    for row in rows:
        assert row["source"] == prompts[row["index"]] and row["tokens"] == whole[row["index"]]
        text = target.tokenizer.decode(row["tokens"], skip_special_tokens=True)
        assert row["reference"] == text
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(lines[:5]) + lines[5][:7], "utf-8")
    assert write_outputs(generator, prompts, ids, cut, **settings) == whole
    with pytest.raises(UserError, match="answers another prompt"):
        write_outputs(generator, prompts[::-1], ids[::-1], cut, **settings)


@pytest.mark.slow
def test_a_job_in_bfloat16_with_recomputed_layers(pair, tmp_path):
    config = small(
        "finetune", pair, dtype="bfloat16", remat=True, accumulate=2, target="",
        evaluation__decode=False, evaluation__acceptance=(),
    )  # fmt: skip
    results = train.run(config, tmp_path / "run")
    losses = [row["loss"] for row in results["evaluations"]]
    assert losses[-1] < losses[0]
    made = load(tmp_path / "run" / "model")
    assert made.params["embedding"].dtype == np.float32


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"optimizer__steps": 0}, "config.optimizer.steps is 0; it must be an integer"),
        ({"optimizer__name": "sgd"}, "optimizer.name is 'sgd'; it must be one of adamw"),
        ({"objective__name": "mse"}, "config.objective.name is 'mse'; it must be one of"),
        ({"objective__smoothing": 1.5}, "config.objective.smoothing is 1.5; it must be a number"),
        (
            {"objective__temperature": 2.0},
            "config.objective.temperature is 2.0; objective 'cross_entropy' does not read it",
        ),
        ({"objective__name": "blockwise", "objective__heads": 0}, "heads is 0; it must be an int"),
        (
            {
                "objective__name": "distillation", "target": "",
                "sequences__target": 0.0, "sequences__data": 1.0,
            },
            "config.target is empty; config.objective.name needs a directory",
        ),
        (
            {
                "objective__name": "distillation", "objective__divergence": "tv_ce",
                "objective__label_weight": 0.3,
            },
            "config.objective.label_weight is 0.3; it must be 0 with divergence 'tv_ce'",
        ),
        (
            {"objective__name": "dflash", "objective__weighting": "dpace"},
            "config.objective.divergence is 'forward_kl'; it must be 'cross_entropy' with weighti",
        ),
        (
            {"objective__name": "distillation", "objective__weighting": "prefix"},
            "config.objective.weighting is 'prefix'; objective 'distillation' does not read it",
        ),
        ({"accumulate": 3}, "config.batch_size is 8; it must be a multiple of"),
        ({"target": ""}, "config.target is empty; config.sequences.target needs a directory"),
        ({"sequences__target": 0.0}, "config.sequences is all zero"),
        ({"sequences__drafter": 1.0}, "config.sequences.drafter is on-policy"),
        ({"model__checkpoint": ""}, "config.model.checkpoint is '' and config.model.shape has 0"),
        ({"model__decoder_layers": (5,)}, "model.decoder_layers names layer 5; there are 0 to 0"),
        ({"evaluation__keep": "rouge1"}, "config.evaluation.keep is 'rouge1'; what is measured is"),
        ({"batch_size": 64}, "config.batch_size is 64; there are 48 training rows"),
        ({"target": "./nowhere"}, "model path './nowhere' is not a directory"),
        (
            {"mesh__data": 2, "evaluation__batch_size": 3},
            "config.evaluation.batch_size is 3; it must be a multiple of config.mesh.data, 2",
        ),
    ],
)  # fmt: skip
def test_a_useless_field_is_named(pair, tmp_path, changes, sentence):
    with pytest.raises(UserError) as refused:
        config = small("align", pair, **changes)
        check_config(config)
        train.run(config, tmp_path / "run")
    assert sentence in str(refused.value)
    assert not (tmp_path / "run").exists()  # the corrected config can have the workdir


@pytest.mark.parametrize(
    ("side", "task", "data", "words"),
    [
        ("validation", "transcribe", {}, "config.validation: task 'transcribe' has no source"),
        ("validation", "transcribe", {"split": "dev"}, "config.validation.data.path is empty, and"),
        ("train", "transcribe", {}, "config.train: task 'transcribe' has no source"),
        ("validation", "multi30k_ende", {"path": "./no"}, "config.validation.data.path './no' has"),
        ("validation", "multi30k_ende", {"path": "no.tsv"}, "config.validation: path 'no.tsv' can"),
        ("validation", "", {}, "config.validation.metric is 'bleu', but not every example has"),
    ],
)
def test_a_side_that_cannot_be_read_is_named(pair, side, task, data, words) -> None:
    config = small("finetune", pair)
    with config.unlocked():
        config[side].task = task
        config[side].data.update({"path": "", "reference_path": "", "kind": "", **data})
        config[side].update({} if task else {"source_file": str(pair / "source.txt")})
        config[side].metric = "bleu"
    with pytest.raises(UserError) as refusal:
        train_data.load_texts(config)
    assert str(refusal.value).startswith(words)


def test_validation_without_outputs_and_without_a_target_is_refused(pair) -> None:
    config = small("finetune", pair, target="")
    with config.unlocked():
        config.validation.update(task="", source_file=str(pair / "source.txt"), metric="")
        config.validation.data.update(path="", reference_path="", kind="")
    with pytest.raises(UserError, match="^config.validation has rows without an output, and"):
        train_data.load_texts(config)


@pytest.mark.slow
def test_without_validation_files_the_last_training_rows_are_held_out(pair, tmp_path):
    config = small("finetune", pair, validation__task="", validation__examples=8, **LOSS_ONLY)
    with config.unlocked():
        config.validation.data.update(path="", reference_path="", kind="")
    results = train.run(config, tmp_path / "run")
    assert results["data"] == {"train": 40, "validation": 8}
