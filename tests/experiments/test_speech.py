"""Experiments with models that listen, on tiny random ones and on sines."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import pytest
from sessions import make_session, model_plans
from standins import WORDS, write_speech

from specjax.data.examples import examples
from specjax.data.sources import Source
from specjax.experiments.config.fields import check_reads
from specjax.experiments.config.file import read_config
from specjax.experiments.decode import job as decode
from specjax.experiments.transcribe import job as transcribe
from specjax.hf import huggingface
from specjax.hf.tokenizer import train_tokenizer
from specjax.models.whisper import Whisper
from specjax.models.with_input import drop_encoder
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden" / "whisper"
CONFIG = str(Path(__file__).parents[2] / "configs" / "whisper.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, a drafter of its encoder and its first decoder layer, and a manifest of speech."""
    made = tmp_path_factory.mktemp("speech")
    whole, tokenizer = huggingface.load(GOLDEN), train_tokenizer([WORDS], 80)
    endless = Whisper(dataclasses.replace(whole.model.config, eos=(79,)))
    huggingface.save(made / "target", endless, whole.params, tokenizer)
    short = Whisper(dataclasses.replace(endless.config, num_decoder_layers=1))
    params = {k: v for k, v in whole.params.items() if k not in ("decoder_1", "decoder_2")}
    huggingface.save(made / "drafter", short, params, tokenizer)
    write_speech(made / "speech.wav")
    rows = [{"audio": "speech.wav", "text": "two dogs"}] * 3
    (made / "speech.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    return made


def make_config(folder: Path, **changes):
    """`configs/whisper.py` on what lies in the folder."""
    config = read_config(CONFIG)
    config.data.path = str(folder / "speech.jsonl")
    config.update(target=str(folder / "target"), drafter=str(folder / "drafter"))
    config.update(dtype="float32", mesh={"data": 1, "model": 1}, repeats=1, max_new_tokens=12)
    config.update(changes)
    return config


def test_files_of_a_manifest_are_beside_it(folder):
    found = examples("transcribe", Source("json", str(folder / "speech.jsonl")))
    assert [example.source for example in found] == [str(folder / "speech.wav")] * 3
    with pytest.raises(UserError, match="row 1 has audio itself in field 'audio'"):
        examples("transcribe", [{"audio": {"bytes": b""}, "text": ""}])


@pytest.mark.slow
def test_a_plan_counts_one_encoder(folder, capsys):
    planned = model_plans(make_config(folder, only="distil_3"))
    printed = capsys.readouterr().out
    assert "drafter: its encoder is counted as the target's" in printed
    ours = huggingface.load(folder / "drafter")
    own = sum(leaf.size for leaf in jax.tree.leaves(drop_encoder(ours.params)))
    assert planned["drafter"].parameters == own


def long_config(folder: Path, **windows):
    """`configs/whisper_long.py` on an audio file of two and a half windows, and a short one."""
    config = read_config(str(Path(CONFIG).with_name("whisper_long.py")))
    write_speech(folder / "long.wav", seconds=2.5)
    rows = [{"audio": name, "text": "two dogs"} for name in ("long.wav", "speech.wav")]
    (folder / "long.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    config.data.path = str(folder / "long.jsonl")
    config.update(target=str(folder / "target"), drafter=str(folder / "drafter"))
    config.update(repeats=2, max_new_tokens=12, batch_size=2)
    config.windows.update(windows)
    return config


@pytest.mark.slow
def test_audio_of_any_length_is_transcribed_window_by_window(folder, tmp_path, capsys):
    config = long_config(folder)
    content = transcribe.run(config, tmp_path)
    for name, entry in content["strategies"].items():
        assert entry["same_as_first"] == 2 and entry["tokens"] > 12, name
        assert set(entry["quality"]) == {"word_accuracy"}
        assert len(entry["speed_ratio_of_repeats"]) == 2
    rows = [json.loads(line) for line in (tmp_path / "outputs.jsonl").read_text().splitlines()]
    assert [row["strategy"] for row in rows] == ["autoregressive", "tiny_4"] * 2
    # A window of this model is a second.
    assert rows[0]["segments"][-1]["start"] >= 1.0 and rows[0]["segments"] == rows[1]["segments"]
    assert "tiny_4" in capsys.readouterr().out
    again = transcribe.run(config, tmp_path)
    assert again == json.loads(json.dumps(content))  # shown, not decoded
    with pytest.raises(UserError, match="more than 0 and at most 1, as longer audio is not cut"):
        decode.run(
            make_config(folder, data={"path": str(folder / "long.jsonl")}), tmp_path / "short"
        )


def test_windows_that_cannot_be_used_are_refused(folder, tmp_path):
    for windows, said in (
        ({"temperature": (0.0, -1.0)}, "config.windows.temperature has -1.0"),
        ({"no_speech_threshold": 0.6}, "config.windows.no_speech_threshold is 0.6 and"),
        ({"condition_on_prev_tokens": True}, "the model has no token for previous text"),
    ):
        with pytest.raises(UserError, match=said):
            transcribe.run(long_config(folder, **windows), tmp_path)
    config = long_config(folder)
    config.target = config.drafter = str(GOLDEN.parent / "t5_v1_1")
    config.speech.update(task="", timestamps=False)
    with pytest.raises(UserError, match="config.target reads texts; this experiment needs a"):
        transcribe.plan(config)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_run_gives_the_targets_own_texts(folder, tmp_path):
    config = make_config(folder, speech={"language": "german", "task": ""})
    content = decode.run(config, tmp_path)
    assert content["data"]["metric"] == "wer_english"
    for name, entry in content["strategies"].items():
        assert entry["identical_to_target"] == 1.0 and entry["tokens"] > 9, name
        assert set(entry["quality"]) == {"word_accuracy"}
    sizes = content["models"]
    assert sizes["drafter"]["parameters"] < sizes["target"]["parameters"] / 2
    reading = content["strategies"]["distil_3"]["operations"]
    drafter, target = (
        reading[name]["with_prompt"]["flops"] - reading[name]["flops"]
        for name in ("drafter", "target")
    )
    assert drafter < target / 2  # it reads no prompt but makes keys and values of it


def test_what_reads_texts_alone_refuses_such_a_model(folder):
    with pytest.raises(UserError, match="config.target is a speech model"):
        check_reads("target", huggingface.load(folder / "target").model)
    with pytest.raises(UserError, match="config.prefix is 'say: '; it must be empty"):
        make_session(make_config(folder, prefix="say: "), folder)
