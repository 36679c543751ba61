"""Converts audio of any length to log-mel frames, as Fast Conformers read them.

In NumPy: transformers' extractor of these models needs PyTorch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specjax.data.audio import RATE
from specjax.hf.extractor import FILES, read_stored, read_waveform
from specjax.hf.families.schema import Field, Schema, choice, is_number, size
from specjax.models.info import Spectrogram
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import write_json

QUIET = 2.0**-24
"""Added to energies before the logarithm."""

EPS = 1e-5
"""Added to the deviation of a frequency."""

FEWEST = 2
"""Frames that have a deviation."""


def _is_rate(value: Any) -> bool:
    return value == RATE


def _is_factor(value: Any) -> bool:
    return value is None or is_number(value)


SCHEMA = Schema(
    {
        "feature_size": size(80),
        "sampling_rate": Field(RATE, f"{RATE}, to which audio is resampled", _is_rate),
        "hop_length": size(160),
        "n_fft": size(512, least=2),
        "win_length": size(400),
        "preemphasis": Field(0.97, "a number, or null", _is_factor),
        "padding_side": choice("right", ("right",)),
    }
)
"""Fields of `preprocessor_config.json`; silence that pads audio is not read."""


@dataclasses.dataclass(frozen=True)
class SpectrogramProcessor:
    """Log-mel energies of a waveform, each frequency normalized over the frames."""

    frequencies: int
    hop: int  # samples from one frame to the next
    points: int  # of the Fourier transform
    window: int  # samples of a frame, in the middle of the points
    preemphasis: float | None
    stored: Mapping[str, Any]  # all fields of the file

    def count(self, samples: int) -> int:
        """The number of frames of so many samples."""
        return (samples - self.points % 2) // self.hop

    def __call__(self, waveform: np.ndarray) -> np.ndarray:
        """Frames [P, M] float32 of a waveform [N]."""
        energies = self._compute_energies(waveform.astype(np.float64))
        made = np.log(energies @ self._make_filters() + QUIET)
        deviation = made.std(axis=0, ddof=1)
        return ((made - made.mean(axis=0)) / (deviation + EPS)).astype(np.float32)

    def _compute_energies(self, samples: np.ndarray) -> np.ndarray:
        """Squares of the spectrum [P, points / 2 + 1] of each frame."""
        if self.preemphasis is not None:
            samples = np.append(samples[:1], samples[1:] - self.preemphasis * samples[:-1])
        count, half = self.count(len(samples)), self.points // 2
        padded = np.pad(samples, half)
        frames = np.lib.stride_tricks.sliding_window_view(padded, self.points)[:: self.hop][:count]
        before = (self.points - self.window) // 2
        window = np.zeros(self.points)
        window[before : before + self.window] = np.hanning(self.window)
        return np.abs(np.fft.rfft(frames * window)) ** 2

    def _make_filters(self) -> np.ndarray:
        """Weights [points / 2 + 1, M] of the mel scale."""
        from transformers.audio_utils import mel_filter_bank  # slow to import

        bins, scale = self.points // 2 + 1, "slaney"
        return mel_filter_bank(bins, self.frequencies, 0.0, RATE / 2, RATE, scale, scale)

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes the extractor's file, as transformers' do."""
        write_json(Path(folder) / FILES[0], dict(self.stored))


@dataclasses.dataclass(frozen=True)
class SpectrogramReader:
    """Log-mel frames of audio that is a file or a waveform.

    A waveform is a list or an array of floating-point numbers from -1 to 1, `RATE` of them a
    second.
    """

    processor: SpectrogramProcessor
    shape: Spectrogram

    def __call__(self, where: str, prompt: Any) -> np.ndarray:
        """Frames [P, M] float32; `where` names the prompt in error messages.

        Raises:
          UserError: when the audio is invalid.
        """
        where, given = read_waveform(where, prompt)
        fewest, most = max(self.shape.fewest, FEWEST), self.shape.count
        if given.ndim != 1 or not fewest <= self.processor.count(given.size) <= most:
            hop = self.processor.hop
            raise UserError(
                f"{where} has {' x '.join(map(str, given.shape))} samples; it must have"
                f" {fewest * hop} to {most * hop:,} of one channel, {most * hop / RATE:g} seconds,"
                " as longer audio is not cut"
            )
        return self.processor(given)


def load_spectrogram_reader(path: Path | None, shape: Spectrogram) -> SpectrogramReader:
    """The reader of a checkpoint directory, the usual one where it has no file of one.

    Raises:
      UserError: when the file is damaged, or its frames do not fit the model.
    """
    fields, stored = read_stored(path, "feature_extractor", SCHEMA)
    if not stored:
        fields["feature_size"] = shape.width
    if fields["feature_size"] != shape.width:
        raise UserError(
            f"the feature extractor of {str(path)!r} gives {fields['feature_size']} numbers of each"
            f" frame; the model reads {shape.width}"
        )
    if fields["win_length"] > fields["n_fft"]:
        raise UserError(
            f"the feature extractor of {str(path)!r} has win_length {fields['win_length']}; it must"
            f" be at most n_fft, {fields['n_fft']}"
        )
    return SpectrogramReader(
        SpectrogramProcessor(
            frequencies=fields["feature_size"],
            hop=fields["hop_length"],
            points=fields["n_fft"],
            window=fields["win_length"],
            preemphasis=fields["preemphasis"],
            stored=stored,
        ),
        shape,
    )
