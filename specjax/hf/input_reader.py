"""What turns audio or images into the input of a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specjax.hf.extractor import load_extractor
from specjax.hf.images import load_image_reader
from specjax.hf.patches import load_patch_reader
from specjax.hf.spectrograms import load_spectrogram_reader
from specjax.hf.waveforms import load_waveform_reader
from specjax.models.info import Frames, Input, Patches, PlacedPatches, Samples, Spectrogram


def load_input_reader(path: Path | None, given: Input | None) -> Any:
    """The reader of a checkpoint directory, or the usual one; None: no files are read.

    Raises:
      UserError: when its files are damaged, or do not fit the model.
    """
    if isinstance(given, Patches):
        return load_image_reader(path, given)
    if isinstance(given, PlacedPatches):
        return load_patch_reader(path, given)
    if isinstance(given, Spectrogram):
        return load_spectrogram_reader(path, given)
    if isinstance(given, Samples):
        return load_waveform_reader(path, given)
    return load_extractor(path, given) if isinstance(given, Frames) else None
