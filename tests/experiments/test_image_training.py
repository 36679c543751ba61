"""Models that read images: trained whole from scratch, then a drafter on the encoder's states."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest
from standins import WORDS, write_line
from training_configs import get_config

import specjax
from specjax.experiments.train import job as train
from specjax.hf.tokenizer import train_tokenizer
from specjax.models.with_input import select_encoder

pytestmark = pytest.mark.slow

SIDES = {
    "encoder": {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2,
                "num_hidden_layers": 2, "image_size": [16, 64]},
    "decoder": {"d_model": 16, "decoder_layers": 2, "decoder_ffn_dim": 24,
                "decoder_attention_heads": 2, "cross_attention_hidden_size": 16},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("lines")
    write_line(made / "a.png")
    rows = [json.dumps({"image": "a.png", "text": "two dogs"})] * 6
    (made / "lines.jsonl").write_text("\n".join(rows), "utf-8")
    train_tokenizer([WORDS], 80).save_pretrained(made / "tokenizer")
    return made


def make_config(name: str, folder):
    config = get_config(name)
    config.train.data.path, config.train.data.split = str(folder / "lines.jsonl"), ""
    config.validation.update(examples=2)
    config.optimizer.update(steps=4, warmup=1)
    config.evaluation.update(every=2, batch_size=2)
    config.update(batch_size=2, max_output_tokens=12)
    return config


@pytest.fixture(scope="module")
def whole(folder, tmp_path_factory):
    config, workdir = make_config("lines", folder), tmp_path_factory.mktemp("whole")
    config.model.tokenizer, config.model.shape.vocab_size = str(folder / "tokenizer"), 80
    for side, fields in SIDES.items():
        config.model.shape[side].update(fields)
    return workdir, train.run(config, workdir)


def test_a_model_of_a_shape_is_trained_with_its_encoder(whole):
    workdir, results = whole
    losses = [row["loss"] for row in results["evaluations"]]
    assert losses[-1] < losses[0] and "character_accuracy" in results["best"]
    params = specjax.load(workdir / "model").params
    assert np.abs(params["encoder"]["norm"]["bias"]).max() > 0  # it began at 0


def test_a_drafter_is_trained_on_the_states_of_that_encoder(whole, folder, tmp_path):
    checkpoint = str(whole[0] / "model")
    config = make_config("trocr", folder)
    config.target = config.model.checkpoint = checkpoint
    config.model.decoder_layers, config.target_outputs.batch_size = (0,), 2
    train.run(config, tmp_path)
    target, drafter = specjax.load(checkpoint), specjax.load(tmp_path / "model")
    assert drafter.model.info.depth == 1
    ours, theirs = (select_encoder(one.params) for one in (drafter, target))
    assert jax.tree.all(jax.tree.map(np.array_equal, ours, theirs))
    given = {"drafter": drafter}
    pair = specjax.Generator(target, given, specjax.speculative(length=3), max_new_tokens=8)
    alone = specjax.Generator(target, max_new_tokens=8)
    files = [str(folder / "a.png")] * 2
    assert pair.decoder.models[1][1].info.borrows_encoder
    assert pair(files).tokens == alone(files).tokens
