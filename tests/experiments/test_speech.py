"""Experiments with models that listen, on tiny random ones and on sines."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import pytest
from standins import WORDS, write_speech

from specjax.checkpoints import huggingface
from specjax.checkpoints.tokenizer import train_tokenizer
from specjax.data.examples import examples
from specjax.data.sources import Source
from specjax.errors import UserError
from specjax.experiments.config.file import read_config
from specjax.experiments.config.training import train_config
from specjax.experiments.decode import job as decode
from specjax.experiments.decode import planning
from specjax.experiments.train import planning as train
from specjax.models.whisper import Whisper, without_encoder

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


def config_of(folder: Path, **changes):
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


def test_a_plan_counts_one_encoder(folder, capsys):
    planned = planning.run(config_of(folder, only="distil_3"))
    printed = capsys.readouterr().out
    assert "drafter: its encoder is counted as the target's" in printed
    ours = huggingface.load(folder / "drafter")
    own = sum(leaf.size for leaf in jax.tree.leaves(without_encoder(ours.params)))
    assert planned["models"]["drafter"].parameters == own


@pytest.mark.slow
def test_a_run_gives_the_targets_own_texts(folder, tmp_path):
    config = config_of(folder, speech={"language": "german", "task": ""})
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
    with pytest.raises(UserError, match="config.target is a model that listens"):
        train.target_of(train_config(target=str(folder / "target")))
    with pytest.raises(UserError, match="config.prefix is 'say: '; it must be empty"):
        models = decode.load_models(config_of(folder))
        decode.prepare(config_of(folder, prefix="say: "), models, folder)
