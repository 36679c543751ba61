"""Training a drafter that borrows its target's encoder, on a tiny random Whisper."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from standins import WORDS, write_speech
from training_configs import get_config

import specjax
from specjax.data.pipeline import pad_batch
from specjax.experiments.config.file import read_config
from specjax.experiments.train import job as train
from specjax.experiments.train.data import OUTPUTS, batches_of, get_decoder_info
from specjax.experiments.train.model import load_start
from specjax.experiments.train.planning import show_plan
from specjax.experiments.train.stored_prompts import ARRAYS, INDEX, StoredPrompts
from specjax.experiments.train.with_input import extract_decoder
from specjax.experiments.transcribe import job as transcribe
from specjax.hf import heads, huggingface
from specjax.hf.tokenizer import train_tokenizer
from specjax.models.whisper import Whisper
from specjax.models.with_input import compute_encoder_states, select_encoder
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden" / "whisper"
FILES = 6


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target and a manifest of audio files that differ."""
    made = tmp_path_factory.mktemp("speech")
    whole, tokenizer = huggingface.load(GOLDEN), train_tokenizer([WORDS], 80)
    endless = Whisper(dataclasses.replace(whole.model.config, eos=(79,)))
    huggingface.save(made / "target", endless, whole.params, tokenizer)
    rows = []
    for number in range(FILES):
        write_speech(made / f"{number}.wav", pitch=220 + 40 * number)
        rows.append({"audio": f"{number}.wav", "text": "two dogs"})
    (made / "speech.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return made


def make_config(folder: Path, **changes):
    """`configs/training/whisper.py` on what lies in the folder, for four steps."""
    config = get_config("whisper")
    config.target = config.model.checkpoint = str(folder / "target")
    config.model.decoder_layers = (0, 2)
    config.train.data.path = str(folder / "speech.jsonl")
    config.train.data.split, config.speech.task = "", ""
    config.validation.update(examples=2)
    config.optimizer.update(steps=4, warmup=1)
    config.evaluation.update(every=2, batch_size=2)
    config.target_outputs.batch_size = 2
    config.update(batch_size=2, bucket=16, max_output_tokens=12)
    for path, value in changes.items():
        group, _, field = path.rpartition("__")
        (config[group] if group else config)[field] = value
    return config


@pytest.fixture(scope="module")
def trained(folder, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("run")
    return workdir, train.run(make_config(folder), workdir)


@pytest.mark.slow
def test_a_job_trains_a_drafter_that_borrows_the_encoder(folder, trained):
    workdir, results = trained
    target, drafter = specjax.load(folder / "target"), specjax.load(workdir / "model")
    assert drafter.model.info.depth == 2 and drafter.extractor is not None
    same = jax.tree.map(
        np.array_equal, select_encoder(drafter.params), select_encoder(target.params)
    )
    assert jax.tree.all(same)
    assert np.array_equal(drafter.params["embedding"], target.params["embedding"])
    start = target.params["decoder_2"]["self_attention"]["q"]["kernel"]
    moved = drafter.params["decoder_1"]["self_attention"]["q"]["kernel"]
    assert not np.allclose(start, moved)
    assert {"loss", "acceptance_0"} <= set(results["best"])
    losses = [row["loss"] for row in results["evaluations"]]
    assert losses[-1] < losses[0]


@pytest.mark.slow
def test_the_drafter_that_was_trained_drafts_on_the_targets_encoder(folder, trained):
    workdir, _ = trained
    target, drafter = specjax.load(folder / "target"), specjax.load(workdir / "model")
    audio = [str(folder / "0.wav"), str(folder / "1.wav")]
    baseline = specjax.Generator(target, max_new_tokens=12)(audio)
    pair = specjax.Generator(
        target, {"drafter": drafter}, specjax.speculative(length=3), max_new_tokens=12
    )
    assert pair.decoder.models[1][1].info.borrows_encoder
    assert pair(audio).tokens == baseline.tokens


@pytest.mark.slow
def test_the_outputs_to_learn_are_the_targets_own(folder, trained):
    workdir, _ = trained
    lines = (workdir / "target_outputs.jsonl").read_text("utf-8").splitlines()
    rows = sorted(map(json.loads, lines), key=lambda row: row["index"])
    target = specjax.load(folder / "target")
    files = [str(folder / f"{number}.wav") for number in range(FILES - 2)]
    assert [row["source"] for row in rows] == files
    baseline = specjax.Generator(target, max_new_tokens=12)(files)
    assert [row["tokens"] for row in rows] == baseline.tokens


@pytest.mark.slow
def test_states_are_those_of_the_encoder_and_computed_once(folder, trained):
    workdir, _ = trained
    target = specjax.load(folder / "target")
    frames = target.extractor("audio", str(folder / "3.wav"))[None]
    expected = np.asarray(compute_encoder_states(target.model, target.params, frames)[0])
    store = StoredPrompts(workdir, str(folder / "target"), expected.shape[1])
    found = store([str(folder / "3.wav")], lambda file: pytest.fail(file))
    np.testing.assert_allclose(found[0], expected, atol=2e-3, rtol=1e-3)  # half precision
    with pytest.raises(UserError, match=r"has prompts of .*target'; remove it"):
        StoredPrompts(workdir, "another", expected.shape[1])


def test_states_that_a_kill_cut_off_are_computed_again(tmp_path):
    def states(file: str) -> np.ndarray:
        return np.full((3, 2), int(file), np.float32)

    StoredPrompts(tmp_path, "it", 2)(["1", "2"], states)
    with (tmp_path / ARRAYS).open("ab") as file:
        file.write(b"half")
    with (tmp_path / INDEX).open("a", encoding="utf-8") as file:
        file.write('{"file": "3"')
    rows = StoredPrompts(tmp_path, "it", 2)(["2", "3"], states)
    assert [row.tolist() for row in rows] == [[[2.0] * 2] * 3, [[3.0] * 2] * 3]
    assert [row.tolist() for row in rows[1:]] == [[[3.0] * 2] * 3]


@pytest.mark.slow
def test_a_decoder_reads_states_as_its_model_reads_audio(folder):
    target = specjax.load(folder / "target")
    frames = target.extractor("audio", str(folder / "0.wav"))
    states = np.asarray(compute_encoder_states(target.model, target.params, frames[None])[0])
    decoder = extract_decoder(target)
    assert decoder.model.info.input.count == len(states) and not select_encoder(decoder.params)
    batch = pad_batch([(states, [4, 5, 6, 79])], 8, target.model.info.start_token, 0, forced=2)
    length = {"prompt_length": np.array([len(frames)], np.int32)}
    (ours,) = decoder.model.teach(decoder.params, batch)
    (theirs,) = target.model.teach(target.params, {**batch, "prompt": frames[None], **length})
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert batch["mask"][0].tolist() == [False, False, True, True] + [False] * 4


@pytest.mark.slow
def test_a_decoder_writes_of_states_what_its_model_writes_of_audio(folder):
    target, audio = specjax.load(folder / "target"), str(folder / "0.wav")
    frames = target.extractor("audio", audio)
    states = np.asarray(compute_encoder_states(target.model, target.params, frames[None])[0])
    tokens = [specjax.Generator(m, max_new_tokens=8)([p]).tokens
              for m, p in ((target, audio), (extract_decoder(target), states))]  # fmt: skip
    assert tokens[0] == tokens[1]


@pytest.mark.slow
def test_a_model_learns_the_data_and_its_own_samples(folder, tmp_path):
    changes = {"sequences__data": 1.0, "sequences__target": 0.0, "sequences__drafter": 1.0}
    results = train.run(make_config(folder, **changes, speech__language="german"), tmp_path)
    assert np.isfinite(results["best"]["loss"])


def test_a_plan_counts_what_is_trained(folder, capsys):
    planned = show_plan(make_config(folder))
    target = huggingface.load(folder / "target")
    sizes = {name: sum(x.size for x in jax.tree.leaves(tree)) for name, tree in
             target.params.items() if not name.startswith("encoder")}  # fmt: skip
    kept = sum(sizes.values()) - sizes["decoder_1"]
    assert planned["parameters"] == 4 * kept
    assert planned["gradients"] == 4 * (kept - sizes["embedding"])


def test_what_cannot_be_trained_is_refused(folder, tmp_path):
    with pytest.raises(UserError, match=r"config.model.frozen has 'head'; the parameters"):
        train.run(make_config(folder, model__frozen=("head",)), tmp_path)
    with pytest.raises(UserError, match=r"config.train.prefix is 'say '; it must be empty"):
        train.run(make_config(folder, train__prefix="say "), tmp_path)
    other = huggingface.load(GOLDEN)
    tokenizer = specjax.load(folder / "target").tokenizer
    params = {**other.params, "encoder_norm": other.params["decoder_norm"]}
    model = Whisper(dataclasses.replace(other.model.config, eos=(79,)))
    huggingface.save(folder / "other", model, params, tokenizer)
    changed = make_config(folder, model__checkpoint=str(folder / "other"))
    with pytest.raises(UserError, match="another encoder than config.target"):
        train.run(changed, tmp_path)
    assert not list(tmp_path.iterdir())


def config_on_states(folder: Path, name: str):
    """A config that trains on the states of a target, for the speech target in the folder."""
    config = get_config(name)
    config.target, config.speech.language = str(folder / "target"), "german"
    config.train.data.path, config.train.task = str(folder / "speech.jsonl"), "transcribe"
    config.validation.update(examples=2, task="")
    config.optimizer.update(steps=20, warmup=1, learning_rate=1e-2)
    config.evaluation.update(every=10, batch_size=2)
    config.target_outputs.batch_size = 2
    config.update(batch_size=2, bucket=16, max_output_tokens=12)
    return config


@pytest.fixture(scope="module")
def state_drafter(folder, tmp_path_factory):
    """A run of `configs/training/eagle.py`."""
    config = config_on_states(folder, "eagle")
    config.model.shape.update(draft_vocab_size=60, d_model=12, d_ff=24)
    workdir = tmp_path_factory.mktemp("states")
    return workdir, train.run(config, workdir)


@pytest.mark.slow
def test_a_drafter_on_a_speech_targets_states_learns_its_transcripts(folder, state_drafter):
    workdir, results = state_drafter
    rows = map(json.loads, (workdir / OUTPUTS).read_text("utf-8").splitlines())
    written = {row["source"]: row["tokens"] for row in rows}
    target = specjax.in_language(specjax.load(folder / "target"), "german")
    assert target.model.info.forced[0] == 83 and len(written) == FILES - 2
    baseline = specjax.Generator(target, max_new_tokens=12)(list(written)).tokens
    assert list(written.values()) == baseline
    first, *_, last = results["evaluations"]
    assert last["loss"] < first["loss"] and last["tokens_0"] > first["tokens_0"]
    saved = specjax.load(workdir / "model")
    assert saved.model.info.reads_states and not select_encoder(saved.params)
    drafters, strategy = {"drafter": saved}, specjax.strategy(drafter="eagle", length=3)
    found = specjax.Generator(target, drafters, strategy, max_new_tokens=12)(list(written))
    assert found.tokens == baseline and found.statistics.accepted > 0
    store = StoredPrompts(workdir, str(folder / "target"), 16)
    store([str(folder / "0.wav")], lambda file: pytest.fail(file))


def test_of_a_speech_targets_texts_the_decoder_prefix_is_not_learned(folder):
    target = specjax.in_language(specjax.load(folder / "target"), "german")
    config = config_on_states(folder, "eagle")
    config.model.shape.update(draft_vocab_size=60, d_model=12, d_ff=24)
    start = load_start(config, target, None)
    info = get_decoder_info(start, target)
    assert not start.model.info.forced and len(info.forced) == 3
    pairs = [(np.zeros((50, 16), np.float32), [*info.forced, 5, 6, 79])] * 2
    batch = batches_of(config, info, pairs, 0)[0]
    assert batch["inputs"][0, :4].tolist() == [81, *info.forced]
    assert batch["mask"][0].tolist() == [False] * 3 + [True] * 3 + [False] * 10


@pytest.mark.slow
def test_a_plan_of_long_audio_takes_a_drafter_on_the_targets_states(folder, state_drafter, capsys):
    workdir, _ = state_drafter
    config = read_config("configs/whisper_long.py")
    config.update(target=str(folder / "target"), drafter=str(workdir / "model"))
    config.strategies = {"eagle": {"drafter": "eagle", "length": 3}}
    config.data.path = str(folder / "speech.jsonl")
    transcribe.plan(config)
    assert "drafter: " in capsys.readouterr().out


@pytest.mark.slow
def test_heads_on_a_speech_target_are_saved_alone(folder, tmp_path):
    train.run(config_on_states(folder, "medusa"), tmp_path)
    assert not (tmp_path / "model").exists()
    target = specjax.in_language(specjax.load(folder / "target"), "german")
    files = [str(folder / f"{number}.wav") for number in range(FILES)]
    tables = {"heads": heads.load(str(tmp_path / "heads.safetensors"))}
    strategy = specjax.strategy(drafter="medusa", model="target", length=3)
    plain = specjax.Generator(target, max_new_tokens=12)(files)
    found = specjax.Generator(target, strategy=strategy, tables=tables, max_new_tokens=12)(files)
    assert found.tokens == plain.tokens and found.statistics.accepted > FILES


@pytest.mark.slow
def test_a_trained_trunk_is_saved_with_its_encoder_and_its_heads(folder, tmp_path):
    changes = {"objective__name": "blockwise", "objective__trunk": "trained"}
    config = make_config(folder, **changes, model__frozen=(), evaluation__keep="loss")
    config.objective.divergence = get_config("blockwise").objective.divergence
    train.run(config, tmp_path)
    assert heads.load(str(tmp_path / "heads.safetensors")).heads.count == 4
    assert select_encoder(specjax.load(tmp_path / "model").params)
