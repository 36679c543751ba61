"""TrOCR against logits and texts that PyTorch computed once (tests/golden/make_trocr.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import specjax
from specjax.loading import LoadedModel, load

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
