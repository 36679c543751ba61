"""Audio files to waveforms, and these to what a model hears."""

from __future__ import annotations

import wave
from pathlib import Path

import numpy as np
import pytest

from specjax.checkpoints.extractor import Extractor, load_extractor
from specjax.data.audio import RATE, read_audio
from specjax.errors import UserError
from specjax.models.base import Frames

FRAMES = Frames(100, 8, 2)


def sine(hertz: float, rate: int = RATE, seconds: float = 0.5) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * hertz * np.arange(int(rate * seconds)) / rate)


def write(path: Path, channels: list[np.ndarray], rate: int = RATE, width: int = 2) -> Path:
    """A WAVE file of integers of `width` bytes."""
    most = 2 ** (8 * width - 1) - 1
    stored = np.rint(np.stack(channels, axis=1) * most).astype(np.int64)
    stored = stored + 128 if width == 1 else stored
    with wave.open(str(path), "wb") as file:
        file.setnchannels(len(channels))
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(b"".join(int(x).to_bytes(width, "little", signed=width > 1)
                                  for x in stored.ravel()))  # fmt: skip
    return path


@pytest.fixture(scope="module")
def extractor(tmp_path_factory: pytest.TempPathFactory) -> Extractor:
    return load_extractor(tmp_path_factory.mktemp("none"), FRAMES)


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_samples_of_any_width_are_read(width, tmp_path):
    found = read_audio(write(tmp_path / "a.wav", [sine(440)], width=width))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, sine(440), atol=2.0 ** (2 - 8 * width) + 1e-6)


def test_channels_are_averaged(tmp_path):
    found = read_audio(write(tmp_path / "a.wav", [sine(440), np.zeros(8000)]))
    np.testing.assert_allclose(found, sine(440) / 2, atol=1e-4)


@pytest.mark.parametrize("rate", [8_000, 44_100])
def test_another_rate_is_resampled(rate, tmp_path):
    found = read_audio(write(tmp_path / "a.wav", [sine(440, rate)], rate))
    assert len(found) == 8000
    inside = slice(500, -500)  # filters know nothing of what is beyond the ends
    np.testing.assert_allclose(found[inside], sine(440)[inside], atol=5e-3)


def test_what_is_heard_is_as_transformers_extracts_it(extractor):
    from transformers import WhisperFeatureExtractor

    heard = extractor("prompt 0", sine(440))
    theirs = WhisperFeatureExtractor(feature_size=8, chunk_length=1)
    expected = theirs(sine(440).astype(np.float32), sampling_rate=RATE)["input_features"][0]
    assert heard.shape == (FRAMES.count, FRAMES.width) and heard.dtype == np.float32
    np.testing.assert_array_equal(heard, np.asarray(expected).T)
    np.testing.assert_array_equal(extractor("prompt 0", np.asarray(expected)), heard)


def test_audio_of_any_length_is_extracted_whole(extractor):
    from transformers import WhisperFeatureExtractor

    theirs = WhisperFeatureExtractor(feature_size=8, chunk_length=1)
    for seconds in (0.5, 1.0, 3.7):
        audio = np.resize(sine(440), int(seconds * RATE)).astype(np.float32)
        settings = {"truncation": False, "padding": "longest"} if seconds > 1 else {}
        expected = theirs(audio, sampling_rate=RATE, **settings)["input_features"][0]
        heard = extractor.whole("prompt 0", audio)
        np.testing.assert_array_equal(heard, np.asarray(expected).T)
        np.testing.assert_array_equal(extractor.whole("prompt 0", np.asarray(expected)), heard)
        assert len(heard) == max(FRAMES.count, seconds * FRAMES.count)


def test_a_file_is_heard_as_its_waveform(extractor, tmp_path):
    file = write(tmp_path / "a.wav", [sine(440)], width=4)
    heard, expected = extractor("prompt 0", str(file)), extractor("prompt 0", sine(440))
    np.testing.assert_allclose(heard, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("audio", "said"),
    [
        (np.zeros(16_001, np.float32), "prompt 3 has 1.00 seconds; .* at most 1, as longer audio"),
        (np.zeros(0, np.float32), "prompt 3 has 0.00 seconds"),
        (np.full(9, np.nan), "prompt 3 has numbers that are not finite"),
        ([1, 2, 3], "prompt 3 is of type list; it must be an audio file, a waveform"),
        ([[1.0], [1.0, 2.0]], "prompt 3 is of type list"),
        (np.zeros((8, 99)), r"shape \(8, 99\); the model hears 8 numbers of each of 100 frames"),
        ("missing.wav", "audio 'missing.wav' is not a file"),
    ],
)
def test_audio_of_no_use_is_refused(audio, said, extractor):
    with pytest.raises(UserError, match=said):
        extractor("prompt 3", audio)


def test_a_file_that_is_no_audio_is_refused(tmp_path):
    (tmp_path / "a.wav").write_text("no audio")
    with pytest.raises(UserError, match="package soundfile is installed|cannot be read"):
        read_audio(tmp_path / "a.wav")


def test_an_extractor_of_another_model_is_refused(tmp_path):
    from transformers import WhisperFeatureExtractor

    WhisperFeatureExtractor(feature_size=8).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="gives 8 numbers of each of 3000 frames .* hears 8 of 100"):
        load_extractor(tmp_path, FRAMES)
