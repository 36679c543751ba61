"""Audio files as waveforms: one channel of 16,000 numbers from -1 to 1 a second.

Files in WAVE form are read by Python's own library, others (FLAC, MP3, floating-point WAVE) by
`soundfile` where it is installed (the extra `audio`). Channels are averaged; another rate is
resampled (polyphase filters, `scipy.signal.resample_poly`).
"""

from __future__ import annotations

import math
import os
import wave
from pathlib import Path

import numpy as np

from specjax.runtime.errors import UserError
from specjax.runtime.files import expand_path, shorten_path

RATE = 16_000
"""Sample rate of the audio input of speech models."""

RATES = (1_000, 1_000_000)
"""Lowest and highest sample rates that can be resampled; speech has 8,000 to 192,000."""

WIDTHS = (1, 2, 3, 4)
"""Supported bytes of an integer sample."""

UNSIGNED = 1
"""Sample width (bytes) that WAVE files store unsigned."""


def read_audio(file: str | Path) -> np.ndarray:
    """The waveform [N] float32 of a file.

    Raises:
      UserError: when it cannot be read.
    """
    path = expand_path(file)
    if not os.path.isfile(path):
        raise UserError(f"audio {shorten_path(file)!r} is not a file")
    try:
        samples, rate = _read_wave(path)
    except (wave.Error, EOFError):
        samples, rate = _read_other(path)
    except OSError as error:
        raise UserError(f"audio {str(file)!r} cannot be read: {error.strerror}") from None
    least, most = RATES
    if not least <= rate <= most:
        raise UserError(
            f"audio {str(file)!r} has {rate:,} samples a second; it must have from {least:,} to"
            f" {most:,}"
        )
    return resample(samples.mean(axis=1, dtype=np.float32), rate)


def resample(samples: np.ndarray, rate: int) -> np.ndarray:
    """Resamples a waveform [N] from `rate` to `RATE`, float32."""
    if rate == RATE:
        return samples
    from scipy.signal import resample_poly  # slow to import

    shared = math.gcd(rate, RATE)
    return resample_poly(samples, RATE // shared, rate // shared).astype(np.float32)


def _read_wave(path: Path) -> tuple[np.ndarray, int]:
    """Samples [N, channels] from -1 to 1 of a WAVE file of integers, and their rate."""
    with wave.open(str(path)) as file:
        channels, width, rate = file.getnchannels(), file.getsampwidth(), file.getframerate()
        if width not in WIDTHS:
            raise wave.Error(f"samples of {width} bytes")
        stored = np.frombuffer(file.readframes(file.getnframes()), np.uint8)
    stored = stored[: stored.size // (width * channels) * width * channels].reshape(-1, width)
    if width == UNSIGNED:
        stored = stored - np.uint8(128)
    # Little-endian integers of one to four bytes, as the high bytes of 32 bits.
    wide = np.zeros((len(stored), 4), np.uint8)
    wide[:, 4 - width :] = stored
    return wide.view("<i4").reshape(-1, channels) / np.float32(2**31), rate


def _read_other(path: Path) -> tuple[np.ndarray, int]:
    """Samples and rate of a file that `soundfile` reads."""
    try:
        import soundfile
    except ImportError:
        raise UserError(
            f"audio {str(path)!r} is no WAVE file of integers; other files are read where the"
            " package soundfile is installed (pip install 'specjax[audio]')"
        ) from None
    try:
        return soundfile.read(path, dtype="float32", always_2d=True)
    except (RuntimeError, OSError) as error:
        raise UserError(f"audio {str(path)!r} cannot be read: {error}") from None
