"""Images, of files or of pixels, to what a model reads."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image

from specjax.hf.images import ImageReader, load_image_reader, read_image
from specjax.models.info import Patches
from specjax.runtime.errors import UserError

GRID = Patches(rows=2, columns=3, height=4, breadth=8, channels=3, states=7)  # 8 x 24 pixels
PIXELS = np.random.default_rng(0).integers(0, 256, (20, 50, 3), np.uint8)


@pytest.fixture(scope="module")
def reader(tmp_path_factory) -> ImageReader:
    return load_image_reader(tmp_path_factory.mktemp("none"), GRID)


def test_a_patch_holds_its_pixels_by_column_row_and_channel(reader):
    image = np.random.default_rng(1).normal(size=(3, 8, 24)).astype(np.float32)
    patches = reader("image", image)
    assert patches.shape == (6, 96) and patches.dtype == np.float32
    for row in range(2):
        for column in range(3):
            there = image[:, 4 * row : 4 * row + 4, 8 * column : 8 * column + 8]
            np.testing.assert_array_equal(patches[3 * row + column], there.T.ravel())


def test_an_image_is_read_as_transformers_processes_it(reader, tmp_path):
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    made = ViTImageProcessorPil(size={"height": 8, "width": 24})(PIXELS, return_tensors="np")
    expected = reader("image", np.asarray(made["pixel_values"][0], np.float32))
    Image.fromarray(PIXELS).save(tmp_path / "a.png")
    for given in (PIXELS, Image.fromarray(PIXELS), tmp_path / "a.png", str(tmp_path / "a.png")):
        np.testing.assert_array_equal(reader("image", given), expected)


def test_gray_and_transparent_images_have_three_colors(reader, tmp_path):
    gray = PIXELS[..., 0]
    np.testing.assert_array_equal(
        reader("image", gray), reader("image", np.repeat(gray[..., None], 3, axis=-1))
    )
    clear = np.zeros((5, 6, 4), np.uint8)  # black, and not to be seen
    Image.fromarray(clear).save(tmp_path / "clear.png")
    assert (read_image(tmp_path / "clear.png") == 255).all()


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (np.zeros((5, 6, 4), np.uint8), r"prompt 3 is uint8 \[5, 6, 4\]; it must be an image file"),
        (np.zeros((0, 6), np.uint8), r"uint8 \[0, 6\]"),
        (np.zeros((5, 6), np.float32), r"float32 \[5, 6\].* or numbers \[3, 8, 24\]"),
        (np.full((3, 8, 24), np.nan), "prompt 3 has numbers that are not finite"),
        (None, "of type NoneType"),
        (7, "of type int"),
        ("missing.png", "image 'missing.png' is not a file"),
        ("a\0b", "is not a file"),
    ],
)
def test_images_of_no_use_are_refused(image, said, reader):
    with pytest.raises(UserError, match=said):
        reader("prompt 3", image)


def test_a_model_of_one_channel_reads_the_brightness(reader, tmp_path):
    gray = load_image_reader(None, dataclasses.replace(GRID, channels=1))
    found, bright = gray("image", PIXELS), np.asarray(Image.fromarray(PIXELS).convert("L"))
    assert found.shape == (6, 32)
    np.testing.assert_array_equal(found, gray("image", bright))
    # A patch's channels come last, so every third number of a gray image's three colors is one.
    np.testing.assert_array_equal(found, reader("image", bright)[:, ::3])
    gray.processor.save_pretrained(tmp_path)
    np.testing.assert_array_equal(load_image_reader(tmp_path, gray.patches)("image", PIXELS), found)
    reader.processor.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="cannot be used: mean must have 1 element"):
        load_image_reader(tmp_path, gray.patches)


def test_other_channels_are_read_as_numbers_alone():
    four = load_image_reader(None, dataclasses.replace(GRID, channels=4))
    assert four("image", np.ones((4, 8, 24), np.float32)).shape == (6, 128)
    with pytest.raises(UserError, match=r"must be numbers \[4, 8, 24\]; images have 1 or 3"):
        four("image", PIXELS)


def test_a_file_that_is_no_image_is_refused(tmp_path):
    (tmp_path / "a.png").write_text("no image")
    with pytest.raises(UserError, match=r"a.png' cannot be read"):
        read_image(tmp_path / "a.png")
    Image.fromarray(PIXELS).save(tmp_path / "b.png")
    (tmp_path / "b.png").write_bytes((tmp_path / "b.png").read_bytes()[:300])
    with pytest.raises(UserError, match=r"b.png' cannot be read"):
        read_image(tmp_path / "b.png")


def test_processors_of_old_and_other_checkpoints_are_read_or_refused(tmp_path):
    file = tmp_path / "preprocessor_config.json"
    old = {"feature_extractor_type": "ViTFeatureExtractor", "size": [24, 8], "resample": 2}
    old |= {"image_mean": [0.0] * 3, "image_std": [1.0] * 3}
    file.write_text(json.dumps(old | {"size": {"height": 8, "width": 24}}))
    white = load_image_reader(tmp_path, GRID)("image", np.full((9, 9), 255, np.uint8))
    np.testing.assert_allclose(white, 1.0, rtol=1e-6)
    file.write_text(json.dumps(old | {"size": 16}))
    with pytest.raises(UserError, match=r"shape \[3, 16, 16\]; the model reads \[3, 8, 24\]"):
        load_image_reader(tmp_path, GRID)
    file.write_text(json.dumps({"image_processor_type": "Imagined"}))
    with pytest.raises(UserError, match=r"preprocessor_config.json' cannot be used"):
        load_image_reader(tmp_path, GRID)
