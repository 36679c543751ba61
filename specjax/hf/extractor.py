"""Converts audio to a model's input features, with its checkpoint's feature extractor."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from specjax.data.audio import RATE, read_audio
from specjax.hf.families.schema import Schema, format_value, read
from specjax.models.info import Frames
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import read_json

FILES = ("preprocessor_config.json", "processor_config.json")
LOUDEST = 100.0
"""Largest number of a waveform or of features; waveforms slightly exceed 1."""

HOP = 160
"""Samples between frames, for a checkpoint without a file of the extractor."""


@dataclasses.dataclass(frozen=True)
class Extractor:
    """Log-mel features of audio that is a file, a waveform, or features already.

    A waveform is a list or an array of floating-point numbers from -1 to 1, `RATE` of them a
    second. Audio longer than the model's window is refused, because truncation would lose speech.
    `whole` accepts it, for callers that process several windows. Shorter audio is padded with
    silence, as in training.
    """

    processor: Any  # transformers' WhisperFeatureExtractor
    frames: Frames

    def __call__(self, where: str, prompt: Any) -> np.ndarray:
        """Input features [P, M] float32; `where` names the prompt in error messages.

        Raises:
          UserError: when the audio is invalid.
        """
        where, given = read_waveform(where, prompt)
        if given.ndim == 2:
            return self._check_features(where, given).T
        most = self.processor.n_samples
        if not 0 < given.size <= most:
            raise UserError(
                f"{where} has {given.size / RATE:.2f} seconds; it must have more than 0 and at most"
                f" {most / RATE:g}, as longer audio is not cut; specjax.transcribe takes any length"
            )
        return self._extract_features(given)

    def whole(self, where: str, prompt: Any) -> np.ndarray:
        """Input features of audio of any length [N, M], N at least the P frames of a window.

        Raises:
          UserError: when the audio is invalid.
        """
        where, given = read_waveform(where, prompt)
        if given.ndim == 2:
            return self._check_features(where, given, longer=True).T
        if not given.size:
            raise UserError(f"{where} has 0 seconds; it must have more than 0")
        if given.size <= self.processor.n_samples:
            return self._extract_features(given)
        return self._extract_features(given, truncation=False, padding="longest")

    def _extract_features(self, waveform: np.ndarray, **settings: Any) -> np.ndarray:
        made = self.processor(waveform, sampling_rate=RATE, return_tensors="np", **settings)
        return np.asarray(made["input_features"][0], np.float32).T

    def _check_features(self, where: str, given: np.ndarray, *, longer: bool = False) -> np.ndarray:
        """Checks given features [M, P], in the layout of the extractor."""
        (width, count), shape = given.shape, (self.frames.width, self.frames.count)
        if width != shape[0] or count < shape[1] or (count > shape[1] and not longer):
            raise UserError(
                f"{where} has features of shape {given.shape}; the model reads {shape[0]} numbers"
                f" of each of {'at least ' * longer}{shape[1]} frames, {shape}"
            )
        return given


def find_stored(path: Path | None) -> Path | None:
    """The file of a checkpoint's processor, if it has one."""
    files = [path / name for name in FILES] if path else []
    return next((file for file in files if file.exists()), None)


def read_stored(
    path: Path | None, part: str, schema: Schema
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Checked fields of a `part` of a checkpoint's processor, and all that its file has of it.

    Raises:
      UserError: when the file is damaged, or has other values.
    """
    file = find_stored(path)
    content = {} if file is None else read_json(file)
    stored = content.get(part, content)
    if not isinstance(stored, dict):
        raise UserError(f"{str(file)!r} has {part} {format_value(stored)}; it must be an object")
    try:
        fields = read(schema, {name: stored[name] for name in schema.fields if name in stored})
    except ValueError as error:
        raise UserError(f"{str(file)!r} cannot be used: {error}") from None
    return fields, stored


def load_extractor(path: Path | None, frames: Frames) -> Extractor:
    """The feature extractor of a checkpoint directory, Whisper's own where it has no file of one.

    Raises:
      UserError: when it is damaged, or its features do not fit the model.
    """
    from transformers import WhisperFeatureExtractor  # slow to import

    stored = find_stored(path)
    if stored is None:
        seconds = frames.count * HOP // RATE
        made = WhisperFeatureExtractor(feature_size=frames.width, chunk_length=seconds)
    else:
        read_json(stored)
        try:
            made = WhisperFeatureExtractor.from_pretrained(stored.parent)
        except (OSError, TypeError, ValueError) as error:
            raise UserError(f"{str(stored)!r} cannot be used: {error}") from None
    found, wanted = (made.feature_size, made.nb_max_frames), (frames.width, frames.count)
    if found != wanted or made.sampling_rate != RATE:
        raise UserError(
            f"the feature extractor of {str(path)!r} gives {found[0]} numbers of each of"
            f" {found[1]} frames at {made.sampling_rate} Hz; the model reads {wanted[0]} of"
            f" {wanted[1]} at {RATE}"
        )
    return Extractor(made, frames)


def read_waveform(where: str, prompt: Any) -> tuple[str, np.ndarray]:
    """What a prompt is called, and its waveform [N] or features [M, P]."""
    if isinstance(prompt, (str, Path)):
        where, prompt = f"audio {str(prompt)!r}", read_audio(prompt)
    return where, _numbers(where, prompt)


def _numbers(where: str, prompt: Any) -> np.ndarray:
    """A waveform [N], or features [M, P], float32."""
    try:
        given = np.asarray(prompt)
    except ValueError:  # rows of several lengths
        given = np.asarray(None)
    if given.ndim not in (1, 2) or not np.issubdtype(given.dtype, np.floating):
        raise UserError(
            f"{where} is of type {type(prompt).__name__}; it must be an audio file, a waveform of"
            f" floating-point numbers, {RATE:,} a second, or features [M, P]"
        )
    if not np.isfinite(given).all():
        raise UserError(f"{where} has numbers that are not finite")
    loudest = float(np.abs(given).max(initial=0.0))
    if loudest > LOUDEST:
        raise UserError(
            f"{where} has numbers as large as {loudest:.3g}; those of a waveform must be from -1 to"
            f" 1, and more than {LOUDEST:g} is no sound"
        )
    return given.astype(np.float32)
