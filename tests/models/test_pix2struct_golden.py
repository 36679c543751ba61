"""Pix2Struct against patches, logits and texts of PyTorch (tests/golden/make_pix2struct.py)."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

import specjax
from specjax.hf.shared_encoder import with_encoder_of
from specjax.loading import LoadedModel, load
from specjax.models.pix2struct import Pix2Struct
from specjax.training.surgery import take

FOLDER = Path(__file__).parents[1] / "golden" / "pix2struct"
EXPECTED = load_file(FOLDER / "expected.safetensors")
NEW_TOKENS = EXPECTED["texts"].shape[1]
IMAGES = [EXPECTED[f"pixels_{number}"] for number in range(4)]
TEXTS = EXPECTED["texts"].tolist()


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    return load(FOLDER)


def generator(target: LoadedModel, *drafting: object) -> specjax.Generator:
    return specjax.Generator(target, *drafting, max_new_tokens=NEW_TOKENS)


@pytest.mark.slow
def test_patches_are_those_of_transformers_without_the_empty_ones(target):
    for image, expected in zip(IMAGES, EXPECTED["patches"], strict=True):
        found = target.extractor("image", image)
        np.testing.assert_allclose(found, expected[: len(found)], rtol=0, atol=1e-5)
        assert not expected[len(found) :].any()
        np.testing.assert_array_equal(target.extractor("image", expected), expected[: len(found)])


def test_images_of_several_shapes_have_the_logits_of_pytorch(target):
    made = generator(target)
    batch = made.batch(made.encode(IMAGES), len(IMAGES))
    assert batch.length.tolist() == [16, 21, 13, 24]
    given = {"prompt": batch.tokens, "prompt_length": batch.length, "inputs": EXPECTED["target"]}
    found = np.asarray(target.model.teach(target.params, given)[0])
    np.testing.assert_allclose(found, EXPECTED["logits"], rtol=0, atol=1e-4)


@pytest.mark.slow
def test_a_drafter_borrows_the_encoder_and_changes_no_text(target):
    """Also in slots, for which more images wait."""
    model, params = take(target.model, target.params, (0, 2))
    drafter = dataclasses.replace(target, model=model, params=params)
    drafted = generator(target, {"drafter": drafter}, specjax.speculative(length=3))
    assert drafted.decoder.models[1][1].info.borrows_encoder
    assert drafted(IMAGES).tokens == TEXTS
    assert drafted(IMAGES * 2, batch_size=3).tokens == TEXTS * 2
    own = jax.tree.map(jnp.array, params)
    own["encoder_norm"]["scale"] = own["encoder_norm"]["scale"].at[3].add(1e-3)
    other = LoadedModel(Pix2Struct(model.config), own)
    assert with_encoder_of(target, other) is other


@pytest.mark.slow
def test_an_export_keeps_the_model_and_its_processor(target, tmp_path):
    folder = tmp_path / "in"
    shutil.copytree(FOLDER, folder)
    file = folder / "preprocessor_config.json"
    fields = json.loads(file.read_text("utf-8")) | {"max_patches": 9, "do_normalize": False}
    file.write_text(json.dumps(fields), "utf-8")
    load(folder).save(tmp_path / "out")
    again = load(tmp_path / "out")
    assert again.model == target.model
    assert json.loads((tmp_path / "out" / file.name).read_text("utf-8")) == fields
    Image.fromarray(IMAGES[0]).save(tmp_path / "a.png")
    found = again.extractor("image", tmp_path / "a.png")
    assert len(found) == 9 and found[:, 2:].max() > 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "words"),
    [
        (np.zeros((5, 6, 4), np.uint8), r"uint8 \[5, 6, 4\]; .* or patches of .* \[P, 74\]"),
        (np.zeros((5, 6), np.float32), r"numbers of shape \[5, 6\]; patches are .* \[P, 74\]"),
        (np.zeros((5, 74), np.float32), "has 0 patches; their rows and columns must be from 1"),
        (np.full((5, 74), 40.0), "has 5 patches; .* must be from 1 to 31"),
        (3, "of type int; it must be an image file"),
    ],
)
def test_images_that_the_model_cannot_read_are_refused(target, image, words):
    with pytest.raises(specjax.UserError, match=words):
        target.extractor("prompt 0", image)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"is_vqa": True}, "is_vqa is True; it must be false: .* which cannot be given"),
        ({"max_patches": 32}, "up to 32 patches of 4 x 6 pixels; the model reads up to 31 of 72"),
        ({"patch_size": {"height": 4, "width": 4}}, "4 x 4 pixels"),
        ({"patch_size": 4}, "patch_size is 4; it must be an object of height and width"),
        ({"do_normalize": 1}, "do_normalize is 1; it must be true or false"),
    ],
)
def test_a_processor_that_does_not_fit_is_refused(change, words, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "in")
    file = tmp_path / "in" / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | change), "utf-8")
    with pytest.raises(specjax.UserError, match=words):
        load(tmp_path / "in")
