"""Converts images to a model's patches, with its checkpoint's image processor."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import numpy as np

from specjax.hf.extractor import find_stored
from specjax.models.info import Patches
from specjax.runtime.errors import UserError
from specjax.runtime.files import expand_path, shorten_path
from specjax.runtime.json_files import read_json


@dataclasses.dataclass(frozen=True)
class ImageReader:
    """Patches of an image that is a file, a Pillow image, or an array of pixels.

    Pixels are unsigned bytes, gray [H, W] or in colors [H, W, 3]; the processor resizes and
    normalizes them, or their brightness for a model of one channel. Numbers of floating point
    [C, H, W] are what it has made.
    """

    processor: Any  # transformers' image processor
    patches: Patches

    def __call__(self, where: str, prompt: Any) -> np.ndarray:
        """Patches [P, M] float32; `where` names the prompt in error messages.

        Raises:
          UserError: when the image is invalid.
        """
        grid = self.patches
        pixels = self.pixels(where, prompt)
        shape = grid.channels, grid.rows, grid.height, grid.columns, grid.breadth
        # From channels, rows and columns to the grid, then a patch's columns, rows and channels.
        return pixels.reshape(shape).transpose(1, 3, 4, 2, 0).reshape(grid.count, grid.width)

    def pixels(self, where: str, prompt: Any) -> np.ndarray:
        """Normalized pixels [C, H, W] float32 of the size that the model reads.

        Raises:
          UserError: when the image is invalid.
        """
        given = np.asarray(None if isinstance(prompt, str | Path) else prompt)
        wanted = self.patches.channels, *self.patches.size
        if np.issubdtype(given.dtype, np.floating) and given.shape == wanted:
            if not np.isfinite(given).all():
                raise UserError(f"{where} has numbers that are not finite")
            return given.astype(np.float32)
        if wanted[0] not in (1, 3):
            raise UserError(f"{where} must be numbers {list(wanted)}; images have 1 or 3 channels")
        colors = read_pixels(where, prompt, f"or numbers {list(wanted)} as the model reads them")
        return self._process(colors if wanted[0] == 3 else make_gray(colors))

    def _process(self, pixels: np.ndarray) -> np.ndarray:
        """Pixels [H, W, C] resized and normalized, [C, H, W] float32."""
        made = self.processor(pixels, return_tensors="np", input_data_format="channels_last")
        return np.asarray(made["pixel_values"][0], np.float32)

    def check(self, path: Path) -> None:
        """Checks that the processor, which is that of a directory, makes what the model reads.

        Raises:
          UserError: when it does not.
        """
        channels, size = self.patches.channels, self.patches.size
        try:
            found = self._process(np.zeros((*size, channels), np.uint8)).shape
        except ValueError as error:  # of normalization by color, of a gray image
            raise UserError(
                f"the image processor of {str(path)!r} cannot be used: {error}"
            ) from None
        if found != (channels, *size):
            raise UserError(
                f"the image processor of {str(path)!r} gives images of shape {list(found)};"
                f" the model reads {[channels, *size]}"
            )


def make_gray(colors: np.ndarray) -> np.ndarray:
    """The brightness [H, W, 1] of colored pixels [H, W, 3], unsigned bytes."""
    from PIL import Image  # slow to import

    return np.asarray(Image.fromarray(colors).convert("L"))[..., None]


def read_pixels(where: str, prompt: Any, others: str) -> np.ndarray:
    """The pixels [H, W, 3] of an image that is a file, a Pillow image, or an array of them.

    Unsigned bytes; gray pixels become colors. `others` names what else is allowed in an error.

    Raises:
      UserError: when the image is invalid.
    """
    given = read_image(prompt) if isinstance(prompt, str | Path) else np.asarray(prompt)
    gray, colored = given.ndim == 2, given.ndim == 3 and given.shape[-1] == 3
    if given.dtype != np.uint8 or not (gray or colored) or not given.size:
        raise UserError(
            f"{where} is {_describe(prompt, given)}; it must be an image file, a Pillow image,"
            f" or pixels: unsigned bytes [H, W] or [H, W, 3], {others}"
        )
    return np.repeat(given[..., None], 3, axis=-1) if gray else given


def _describe(prompt: Any, given: np.ndarray) -> str:
    numbers = given.dtype != object and given.ndim
    return f"{given.dtype} {list(given.shape)}" if numbers else f"of type {type(prompt).__name__}"


def read_image(file: str | Path) -> np.ndarray:
    """The pixels [H, W, 3] of a file, unsigned bytes; transparent ones lie on white.

    Raises:
      UserError: when it cannot be read.
    """
    from PIL import Image, UnidentifiedImageError  # slow to import

    path = expand_path(file)
    if not os.path.isfile(path):
        raise UserError(f"image {shorten_path(file)!r} is not a file")
    try:
        with Image.open(path) as image:
            colored = image.convert("RGBA")
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError) as error:
        raise UserError(f"image {str(file)!r} cannot be read: {error}") from None
    white = Image.new("RGBA", colored.size, "white")
    return np.asarray(Image.alpha_composite(white, colored).convert("RGB"))


def load_image_reader(path: Path | None, patches: Patches) -> ImageReader:
    """The reader of a checkpoint directory, that of ViT where it has no file of a processor.

    Raises:
      UserError: when the file is damaged, or its images do not fit the model.
    """
    from transformers import AutoImageProcessor  # slow to import
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    stored = find_stored(path)
    if stored is None:
        (height, width), half = patches.size, [0.5] * patches.channels
        size = {"height": height, "width": width}
        return ImageReader(
            ViTImageProcessorPil(size=size, image_mean=half, image_std=half), patches
        )
    read_json(stored)
    try:
        processor = AutoImageProcessor.from_pretrained(
            stored.parent, backend="pil", trust_remote_code=False
        )
    except (ImportError, KeyError, OSError, TypeError, ValueError) as error:
        raise UserError(f"{str(stored)!r} cannot be used: {error}") from None
    reader = ImageReader(processor, patches)
    reader.check(stored.parent)
    return reader
