"""Converts images of any shape to patches with their rows and columns, as Pix2Struct reads them.

In NumPy: transformers' processor of these models needs PyTorch.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specjax.hf.extractor import FILES, read_stored
from specjax.hf.families.schema import Field, Schema, flag, is_int, only, size
from specjax.hf.images import read_pixels
from specjax.models.info import PlacedPatches
from specjax.models.pix2struct import PLACE
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import write_json

SIDES, COLORS = ("height", "width"), 3


def _fits(value: Any) -> bool:
    return isinstance(value, dict) and all(is_int(value.get(side)) for side in SIDES)


SCHEMA = Schema(
    {
        "max_patches": size(2048),
        "patch_size": Field({"height": 16, "width": 16}, "an object of height and width", _fits),
        "do_normalize": flag(True),
        "is_vqa": only(False, "others draw a question into the image, which cannot be given"),
    }
)
"""Fields of `preprocessor_config.json`."""


@dataclasses.dataclass(frozen=True)
class PatchProcessor:
    """Scales and cuts images, by the fields of a processor's file."""

    max_patches: int
    height: int  # of a patch
    width: int
    normalizes: bool
    stored: Mapping[str, Any]  # all fields of the file

    def __call__(self, pixels: np.ndarray) -> np.ndarray:
        """Patches [P, M] float32 of pixels [H, W, 3], row by row from the top left.

        The image is scaled to the most whole patches in each direction that keep its shape.
        """
        image = pixels.astype(np.float32)
        if self.normalizes:
            deviation = max(float(image.std()), image.size**-0.5)
            image = (image - image.mean()) / np.float32(deviation)
        most, (height, width, channels) = self.max_patches, image.shape
        scale = (most * (self.height / height) * (self.width / width)) ** 0.5
        rows = max(min(int(scale * height / self.height), most), 1)
        columns = max(min(int(scale * width / self.width), most), 1)
        down = make_scaling(height, rows * self.height)
        across = make_scaling(width, columns * self.width)
        scaled = np.einsum("ih,hwc,jw->ijc", down, image, across, optimize=True)
        parts = scaled.reshape(rows, self.height, columns, self.width, channels)
        flat = parts.transpose(0, 2, 1, 3, 4).reshape(rows * columns, -1)
        places = np.indices((rows, columns)).reshape(2, -1).T + 1
        return np.concatenate([places, flat], axis=1).astype(np.float32)

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the processor's file, as transformers' do."""
        write_json(Path(folder) / FILES[0], dict(self.stored))


def make_scaling(size: int, wanted: int) -> np.ndarray:
    """The weights [wanted, size] of bilinear scaling, wide enough that small images are smooth."""
    step = size / wanted
    centers = (np.arange(wanted) + 0.5) * step
    distance = np.abs(np.arange(size) + 0.5 - centers[:, None]) / max(step, 1.0)
    weights = np.maximum(1.0 - distance, 0.0)
    return (weights / weights.sum(1, keepdims=True)).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class PatchReader:
    """Patches of an image that is a file, a Pillow image, or an array of pixels.

    Numbers of floating point [P, M] are what the processor has made, perhaps with empty patches.
    """

    processor: PatchProcessor
    patches: PlacedPatches

    def __call__(self, where: str, prompt: Any) -> np.ndarray:
        """Patches [P, M] float32; `where` names the prompt in error messages.

        Raises:
          UserError: when the image is invalid.
        """
        shape = self.patches
        given = prompt if isinstance(prompt, str | Path) else np.asarray(prompt)
        if isinstance(given, np.ndarray) and np.issubdtype(given.dtype, np.floating):
            return self._check_patches(where, given)
        words = f"or patches of floating-point numbers [P, {shape.width}]"
        return self.processor(read_pixels(where, prompt, words))

    def _check_patches(self, where: str, given: np.ndarray) -> np.ndarray:
        shape = self.patches
        if given.ndim != 2 or given.shape[1] != shape.width or not np.isfinite(given).all():
            raise UserError(
                f"{where} has numbers of shape {list(given.shape)}; patches are finite numbers [P,"
                f" {shape.width}]"
            )
        filled = given[given.any(axis=1)].astype(np.float32)
        places = filled[:, :PLACE]
        if not (len(filled) and 1 <= places.min() <= places.max() <= shape.count):
            raise UserError(
                f"{where} has {len(filled)} patches; their rows and columns must be from 1 to"
                f" {shape.count}, and there must be 1 to {shape.count} of them"
            )
        return filled


def load_patch_reader(path: Path | None, patches: PlacedPatches) -> PatchReader:
    """The reader of a checkpoint directory, of square patches where it has no file of a processor.

    Raises:
      UserError: when the file is damaged, or its patches do not fit the model.
    """
    fields, stored = read_stored(path, "image_processor", SCHEMA)
    if not stored:
        square = dict.fromkeys(SIDES, math.isqrt((patches.width - PLACE) // COLORS))
        fields["max_patches"] = min(fields["max_patches"], patches.count)
        fields["patch_size"] = square
    height, width = (fields["patch_size"][side] for side in SIDES)
    made = PatchProcessor(fields["max_patches"], height, width, fields["do_normalize"], stored)
    if made.max_patches > patches.count or COLORS * height * width != patches.width - PLACE:
        raise UserError(
            f"the image processor of {str(path)!r} gives up to {made.max_patches} patches of"
            f" {height} x {width} pixels; the model reads up to {patches.count} of"
            f" {patches.width - PLACE} numbers"
        )
    return PatchReader(made, patches)
