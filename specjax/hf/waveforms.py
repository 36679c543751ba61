"""Converts audio to frames of samples, with its checkpoint's feature extractor."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from specjax.data.audio import RATE
from specjax.hf.extractor import find_stored, read_waveform
from specjax.models.info import Samples
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import read_json


@dataclasses.dataclass(frozen=True)
class WaveformReader:
    """Frames of samples of audio that is a file or a waveform.

    A waveform is a list or an array of floating-point numbers from -1 to 1, `RATE` of them a
    second. The extractor may normalize it.
    """

    processor: Any  # transformers' Wav2Vec2FeatureExtractor
    samples: Samples

    def __call__(self, where: str, prompt: Any) -> np.ndarray:
        """Frames [P, M] float32; `where` names the prompt in error messages.

        Samples after the last that a convolution reads are left out.

        Raises:
          UserError: when the audio is invalid.
        """
        where, given = read_waveform(where, prompt)
        shape = self.samples
        # The convolutions read all but the last sample of the last frame.
        fewest, most = shape.fewest * shape.width - 1, shape.count * shape.width
        if given.ndim != 1 or not fewest <= given.size <= most:
            raise UserError(
                f"{where} has {' x '.join(map(str, given.shape))} samples; it must have {fewest} to"
                f" {most:,} of one channel, {most / RATE:g} seconds, as longer audio is not cut"
            )
        made = self.processor(given, sampling_rate=RATE, return_tensors="np")
        count = (given.size + 1) // shape.width
        frames = np.zeros(count * shape.width, np.float32)
        frames[: given.size] = made["input_values"][0][: frames.size]
        return frames.reshape(count, shape.width)


def load_waveform_reader(path: Path | None, samples: Samples) -> WaveformReader:
    """The reader of a checkpoint directory, which normalizes nothing where it has no file of one.

    Raises:
      UserError: when the file is damaged, or gives something else than the model reads.
    """
    from transformers import Wav2Vec2FeatureExtractor  # slow to import

    stored = find_stored(path)
    if stored is None:
        return WaveformReader(
            Wav2Vec2FeatureExtractor(sampling_rate=RATE, do_normalize=False), samples
        )
    read_json(stored)
    try:
        made = Wav2Vec2FeatureExtractor.from_pretrained(stored.parent)
    except (OSError, TypeError, ValueError) as error:
        raise UserError(f"{str(stored)!r} cannot be used: {error}") from None
    if made.feature_size != 1 or made.sampling_rate != RATE:
        raise UserError(
            f"the feature extractor of {str(path)!r} gives {made.feature_size} numbers at"
            f" {made.sampling_rate} Hz; the model reads 1 at {RATE}"
        )
    return WaveformReader(made, samples)
