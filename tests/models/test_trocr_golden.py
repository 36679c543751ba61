"""TrOCR against logits and texts that PyTorch computed once (tests/golden/make_trocr.py)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import specjax
from specjax.experiments.config.file import read_config
from specjax.hf.shared_encoder import with_encoder_of
from specjax.loading import LoadedModel, load
from specjax.models.vision import ImageToText

FOLDER = Path(__file__).parents[1] / "golden" / "trocr"
EXPECTED = load_file(FOLDER / "expected.safetensors")
NEW_TOKENS = EXPECTED["texts"].shape[1]


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    return load(FOLDER)


def test_teacher_forced_logits_equal_pytorch(target):
    patches = np.stack([target.extractor("image", image) for image in EXPECTED["pixels"]])
    length = np.full(len(patches), patches.shape[1], np.int32)
    batch = {"prompt": patches, "prompt_length": length, "inputs": EXPECTED["target"]}
    found = np.asarray(target.model.teach(target.params, batch)[0])
    np.testing.assert_allclose(found, EXPECTED["logits"], rtol=0, atol=1e-4)


def test_texts_of_images_are_those_of_generate(target):
    generator = specjax.Generator(target, max_new_tokens=NEW_TOKENS)
    assert generator(list(EXPECTED["pixels"])).tokens == EXPECTED["texts"].tolist()


@pytest.mark.slow
def test_more_images_than_rows_are_read_one_by_one_the_same(target):
    images, texts = list(EXPECTED["pixels"]) * 3, EXPECTED["texts"].tolist() * 3
    generator = specjax.Generator(target, max_new_tokens=NEW_TOKENS)
    assert generator(images, batch_size=2).tokens == texts


@pytest.fixture(scope="module")
def drafter(target: LoadedModel) -> LoadedModel:
    """The target's encoder with the first of its decoder layers."""
    config = dataclasses.replace(target.model.config, num_decoder_layers=1)
    params = {name: part for name, part in target.params.items() if name != "decoder_1"}
    return LoadedModel(ImageToText(config), jax.tree.map(jnp.array, params))


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [3, 2])
def test_a_drafter_borrows_the_encoder_and_changes_no_text(target, drafter, batch_size):
    given = {"drafter": drafter}
    generator = specjax.Generator(
        target, given, specjax.speculative(length=3), max_new_tokens=NEW_TOKENS
    )
    assert generator.decoder.models[1][1].info.borrows_encoder
    assert not any(name.startswith("encoder") for name in generator.params["drafter"])
    made = generator(list(EXPECTED["pixels"]), batch_size=batch_size)
    assert made.tokens == EXPECTED["texts"].tolist()
    assert made.statistics.accepted > 0


@pytest.mark.slow
def test_a_drafter_with_other_encoder_weights_keeps_its_own(target, drafter):
    own = jax.tree.map(jnp.array, drafter.params)
    own["encoder"]["norm"]["bias"] = own["encoder"]["norm"]["bias"].at[3].add(1e-3)
    other = dataclasses.replace(drafter, params=own)
    assert with_encoder_of(target, other) is other


@pytest.mark.slow
def test_a_plan_has_a_borrowed_encoder_of_another_width_than_the_decoder(target, capsys):
    assert target.model.config.encoder_width != target.model.config.d_model
    config = read_config("configs/trocr.py")
    config.target = config.drafter = str(FOLDER)
    config.max_new_tokens = NEW_TOKENS
    specjax.plan(config)
    assert "drafter: its encoder is counted as the target's" in capsys.readouterr().out
