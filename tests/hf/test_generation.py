"""What a checkpoint says of generation, in what is written of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import specjax
from specjax.experiments.train.subject import WholeModel
from specjax.hf.descriptions import describe_generation
from specjax.hf.huggingface import read_generation
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden"
FILE = "generation_config.json"
SETTINGS = {
    "bad_words_ids": [[3], [4, 5]], "forced_eos_token_id": 7, "min_new_tokens": 2,
    "no_repeat_ngram_size": 3, "repetition_penalty": 1.2, "suppress_tokens": [8, 9],
}  # fmt: skip
DRAWN = {"do_sample": True, "max_length": 30, "num_beams": 1, "temperature": 0.6, "top_k": 20}
TOKENS = {"eos_token_id": [4, 6], "pad_token_id": 4}


def checkpoint(folder: Path, name: str, said: dict[str, Any] | None) -> Path:
    """A copy of a golden checkpoint that says this of generation, None: has no file of it."""
    shutil.copytree(GOLDEN / name, folder / name)
    (folder / name / FILE).unlink(missing_ok=True)
    if said is not None:
        (folder / name / FILE).write_text(json.dumps(said), "utf-8")
    return folder / name


def test_a_saved_model_says_of_generation_what_its_checkpoint_said(tmp_path: Path) -> None:
    written_by = {"transformers_version": "4.1", "_from_model_config": True, "min_length": None}
    said = {**SETTINGS, **DRAWN, **TOKENS}
    loaded = specjax.load(checkpoint(tmp_path, "llama", {**said, **written_by}))
    loaded.save(tmp_path / "saved")
    written = json.loads((tmp_path / "saved" / FILE).read_text("utf-8"))
    assert {name: written.pop(name) for name in said} == said
    assert not any(written.values())
    again = specjax.load(tmp_path / "saved")
    assert again.settings == loaded.settings and set(again.settings) == set(SETTINGS)
    assert again.generation == loaded.generation and again.model == loaded.model


def test_a_trained_model_does_too(tmp_path: Path) -> None:
    start = specjax.load(checkpoint(tmp_path, "llama", {**SETTINGS, **DRAWN, **TOKENS}))
    WholeModel(start).save(start.params, tmp_path)
    assert read_generation(tmp_path / "model") == start.generation


def test_what_stood_in_config_json_is_said_in_the_file_of_its_own(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "bart", None)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    said = {"no_repeat_ngram_size": 3, "min_length": 5, "early_stopping": True}
    (folder / "config.json").write_text(json.dumps(config | said), "utf-8")
    loaded = specjax.load(folder)
    loaded.save(tmp_path / "saved")
    written = json.loads((tmp_path / "saved" / FILE).read_text("utf-8"))
    assert said.items() <= written.items()
    assert specjax.load(tmp_path / "saved").settings == loaded.settings


def test_changes_are_said_and_what_was_ignored_is_not(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "llama", {**SETTINGS, **TOKENS, "num_beams": 4})
    specjax.load(folder, generation={"num_beams": None, "min_length": 1}).save(tmp_path / "changed")
    expected = {**SETTINGS, **TOKENS, "min_length": 1}
    assert read_generation(tmp_path / "changed") == dict(sorted(expected.items()))
    specjax.load(folder, ignore_generation_config=True).save(tmp_path / "ignored")
    assert read_generation(tmp_path / "ignored") == TOKENS


def test_a_model_that_is_told_a_language_says_no_other(tmp_path: Path) -> None:
    said = json.loads((GOLDEN / "whisper" / FILE).read_text("utf-8"))
    folder = checkpoint(
        tmp_path, "whisper", {**said, "language": "en", "alignment_heads": [[0, 1]]}
    )
    adapted = specjax.in_language(specjax.load(folder), "de", "translate", timestamps=True)
    adapted.save(tmp_path / "saved")
    again = specjax.load(tmp_path / "saved")
    assert again.model.info.forced == adapted.model.info.forced == (83, 85)
    assert again.settings == {"return_timestamps": True}
    assert again.generation["alignment_heads"] == [[0, 1]]


def test_a_model_in_the_ids_of_another_is_not_saved(tmp_path: Path) -> None:
    loaded = specjax.load(GOLDEN / "llama")
    with pytest.raises(UserError, match="in another model's ids"):
        type(loaded)(loaded.model, loaded.params, own_tokenizer="its own").save(tmp_path / "saved")


START = {"decoder_start_token_id": 2, "eos_token_id": 2}
BEAMS = {**START, "num_beams": 3, "length_penalty": 0.5, "early_stopping": True}


def test_a_beam_search_that_is_told_nothing_is_the_checkpoints(tmp_path: Path) -> None:
    target = specjax.load(checkpoint(tmp_path, "bart", BEAMS))
    asked = specjax.BeamGenerator(target, max_new_tokens=5).strategy
    assert asked == specjax.beam_search(beams=3, length_penalty=0.5, early_stopping=True)
    adapted = specjax.BeamGenerator(target, {}, specjax.beam_search(beams=2), max_new_tokens=5)
    assert adapted.strategy == specjax.beam_search(beams=2)
    plain = specjax.load(checkpoint(tmp_path / "plain", "bart", START))
    assert specjax.BeamGenerator(plain, max_new_tokens=5).strategy == specjax.beam_search()


def test_a_stopping_that_no_beam_search_has_is_refused(tmp_path: Path) -> None:
    target = specjax.load(checkpoint(tmp_path, "bart", BEAMS | {"early_stopping": "soon"}))
    with pytest.raises(UserError, match="has an invalid beam search: early_stopping is"):
        specjax.BeamGenerator(target)


def test_decodes_without_the_beams_of_a_checkpoint_say_so_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint(tmp_path, "bart", BEAMS)
    for _ in range(2):
        specjax.Generator(specjax.load(folder), max_new_tokens=5)
    specjax.BeamGenerator(specjax.load(folder), max_new_tokens=5)
    note = f"model '{folder}' has num_beams 3; this decodes without beams\n"
    assert capsys.readouterr().out == note


THRESHOLDS = {
    "compression_ratio_threshold": 2.4, "logprob_threshold": -1.0, "no_speech_threshold": 0.6,
}  # fmt: skip


def test_a_speech_models_thresholds_can_be_turned_off(tmp_path: Path) -> None:
    said = json.loads((GOLDEN / "whisper" / FILE).read_text("utf-8"))
    folder = checkpoint(tmp_path, "whisper", {**said, **THRESHOLDS})
    with pytest.raises(UserError, match=r"compression_ratio_threshold is 2.4, which no strategy"):
        specjax.load(folder)
    loaded = specjax.load(folder, generation=dict.fromkeys(THRESHOLDS))
    assert not THRESHOLDS.keys() & loaded.generation.keys()
    off = dict.fromkeys(THRESHOLDS)
    assert describe_generation(folder, generation=off).generation == loaded.generation


def test_only_a_speech_model_has_thresholds(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, "llama", TOKENS)
    with pytest.raises(UserError, match="generation has 'logprob_threshold'; it must have fields"):
        specjax.load(folder, generation={"logprob_threshold": None})
