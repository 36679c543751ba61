"""Audio files to waveforms, and these to what a model hears."""

from __future__ import annotations

import os
import struct
import wave
from pathlib import Path

import numpy as np
import pytest

from specjax.data.audio import RATE, read_audio
from specjax.hf.extractor import Extractor, load_extractor
from specjax.models.info import Frames
from specjax.runtime.errors import UserError

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
        (np.array([0.5, 1e30]), r"prompt 3 has numbers as large as 1e\+30; .* from -1 to 1"),
        (np.array([0.5, -1e300]), r"prompt 3 has numbers as large as 1e\+300"),
        (np.array([0.5, 12_000.0]), r"prompt 3 has numbers as large as 1.2e\+04"),
        (np.full((8, 100), 1e30), r"prompt 3 has numbers as large as 1e\+30"),
        (np.full(9, np.inf), "prompt 3 has numbers that are not finite"),
        ([1, 2, 3], "prompt 3 is of type list; it must be an audio file, a waveform"),
        ([[1.0], [1.0, 2.0]], "prompt 3 is of type list"),
        (np.zeros((8, 99)), r"shape \(8, 99\); the model reads 8 numbers of each of 100 frames"),
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


def header(channels: int = 1, rate: int = RATE, width: int = 2, kind: int = 1) -> bytes:
    """A WAVE file of four bytes of samples, whose head says what it is told."""
    fields = struct.pack(
        "<HHIIHH", kind, channels, rate, rate & 0xFFFF, channels * width & 0xFFFF, 8 * width
    )
    body = b"WAVEfmt " + struct.pack("<I", len(fields)) + fields + b"data\x04\0\0\0abcd"
    return b"RIFF" + struct.pack("<I", len(body)) + body


@pytest.mark.parametrize("rate", [0, 1, 999, 1_000_001, 2**31, 2**32 - 1])
def test_a_rate_that_no_sound_has_is_refused(rate, tmp_path):
    (tmp_path / "a.wav").write_bytes(header(rate=rate))
    with pytest.raises(UserError, match="samples a second; it must have from 1,000 to 1,000,000"):
        read_audio(tmp_path / "a.wav")


@pytest.mark.parametrize(
    "content",
    [
        b"", b"RIFF", header()[:20], header()[:40], header(channels=0), header(width=0),
        header(width=8), header(width=1000), header(kind=3, width=9), header(kind=77),
    ],
    ids=range(10),
)  # fmt: skip
def test_a_damaged_head_is_refused(content, tmp_path):
    (tmp_path / "a.wav").write_bytes(content)
    with pytest.raises(UserError, match="package soundfile is installed|cannot be read|samples"):
        load_extractor(tmp_path, FRAMES)("prompt 0", tmp_path / "a.wav")


@pytest.mark.parametrize("value", [1e30, np.inf, np.nan])
def test_floating_point_files_hold_sound(value, tmp_path):
    pytest.importorskip("soundfile").write(
        tmp_path / "a.wav", np.array([0.5, value], np.float32), RATE, subtype="FLOAT"
    )
    with pytest.raises(UserError, match="a.wav' has numbers"):
        load_extractor(tmp_path, FRAMES)("prompt 0", tmp_path / "a.wav")


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "~nobody-of-that-name/a.wav", ".", "fifo"])
def test_names_of_no_file_are_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    with pytest.raises(UserError, match="is not a file") as refusal:
        read_audio(name)
    assert len(str(refusal.value)) < 300


def test_an_extractor_of_another_model_is_refused(tmp_path):
    from transformers import WhisperFeatureExtractor

    WhisperFeatureExtractor(feature_size=8).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="gives 8 numbers of each of 3000 frames .* reads 8 of 100"):
        load_extractor(tmp_path, FRAMES)
