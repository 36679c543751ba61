"""Long audio, window by window; its segments are compared with transformers in tests/parity."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from standins import WORDS

import specjax
from specjax.hf.tokenizer import train_tokenizer
from specjax.loading import LoadedModel, load
from specjax.transcription.transcript import split

FOLDER = Path(__file__).parents[1] / "golden" / "whisper"
FIRST = 91
"""The token of 0 seconds."""
FRAMES = 100


def encode_times(*said: Any) -> list[int]:
    """Tokens of words, and of timestamps that are written as floating-point numbers of steps."""
    return [FIRST + int(one) if isinstance(one, float) else one for one in said]


@pytest.mark.parametrize(
    ("said", "parts", "passed"),
    [
        # Nothing of times, and nothing at all: the window is one part.
        (encode_times(7, 8), [(0, 40)], 80),
        ([], [(0, 40)], 80),
        # One part whose last time is known, or says nothing.
        (encode_times(0.0, 7, 8, 30.0), [(0, 30)], 80),
        (encode_times(0.0, 7, 8), [(0, 40)], 80),
        # A pair ends a part; what was begun behind it is heard again.
        (encode_times(2.0, 7, 9.0, 9.0, 8), [(2, 9)], 18),
        (encode_times(2.0, 7, 9.0, 9.0, 8, 20.0, 21.0), [(2, 9), (9, 20)], 40),
        # A single time at the end: nothing is said behind it.
        (encode_times(2.0, 7, 9.0, 11.0, 8, 20.0), [(2, 9), (11, 20)], 80),
    ],
)
def test_pairs_of_times_end_parts(
    said: list[int], parts: list[tuple[int, int]], passed: int
) -> None:
    found, frames = split(said, FIRST, frames=80, stride=2)
    assert ([part[:2] for part in found], frames) == (parts, passed)
    together = [token for *_, tokens in found for token in tokens]
    assert together == said[: len(together)]


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    """Writes timestamps, and has words for its tokens."""
    loaded = specjax.in_language(load(FOLDER), "fr", timestamps=True)
    return dataclasses.replace(loaded, tokenizer=train_tokenizer([WORDS], 80))


def features(*windows: float) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=(6, round(FRAMES * n))).astype(np.float32) for n in windows]


@pytest.mark.slow
def test_audio_is_heard_to_its_end_whatever_stands_beside_it(target: LoadedModel) -> None:
    """Under one seed, in another batch too."""
    generator = specjax.Generator(
        target, strategy=specjax.autoregressive(temperature=1.0), max_new_tokens=16
    )
    audio = features(1.0, 2.6, 1.7)
    found = specjax.transcribe(generator, audio, batch_size=3, seed=4)
    for row, one in enumerate(found.segments):
        assert all(segment.tokens and segment.start <= segment.end for segment in one)
        starts = [segment.start for segment in one]
        assert starts == sorted(starts) and starts[-1] >= audio[row].shape[1] / FRAMES - 1.0
        whole = generator.decode([[token for segment in one for token in segment.tokens]])
        assert found.texts[row] == whole[0]
        assert [s.text for s in one] == generator.decode([s.tokens for s in one])
    assert found.statistics.tokens >= sum(len(s.tokens) for one in found.segments for s in one)
    single = specjax.transcribe(generator, audio[:2], batch_size=1, seed=4)
    assert single.segments == found.segments[:2]
    other = specjax.transcribe(generator, audio[:2], batch_size=1, seed=5)
    assert other.segments != single.segments


@pytest.mark.slow
def test_windows_that_sound_alike_draw_for_themselves(target: LoadedModel) -> None:
    generator = specjax.Generator(
        target, strategy=specjax.autoregressive(temperature=1.0), max_new_tokens=16
    )
    found = specjax.transcribe(generator, [np.tile(features(1.0)[0], 6)], batch_size=3)
    assert len({tuple(segment.tokens) for segment in found.segments[0]}) > 4


@pytest.mark.slow
def test_without_times_audio_of_one_window_is_one_segment() -> None:
    generator = specjax.Generator(specjax.in_language(load(FOLDER), "fr"), max_new_tokens=16)
    (audio,) = features(1.0)
    found = specjax.transcribe(generator, [audio], batch_size=3)
    (segment,) = found.segments[0]
    (tokens,) = generator([audio]).tokens
    assert segment.tokens == tokens[:-1] if tokens[-1] == 80 else tokens
    assert (segment.start, segment.end, segment.text, found.texts) == (0.0, 1.0, None, None)
    with pytest.raises(
        specjax.UserError, match="audio 1 has more than the 100 frames .* write tim"
    ):
        specjax.transcribe(generator, [audio, *features(1.2)])


def test_what_cannot_be_heard_is_refused(target: LoadedModel) -> None:
    generator = specjax.Generator(target, max_new_tokens=16)
    for audio in ("speech.wav", [], Path("speech.wav")):
        with pytest.raises(specjax.UserError, match="list of audio files or waveforms"):
            specjax.transcribe(generator, audio)
    for audio, said in (
        (features(0.9), "at least 100 frames"),
        ([np.zeros((5, 200))], "at least 100 frames"),
        ([np.zeros(0)], "audio 0 has 0 seconds"),
        (["missing.wav"], "audio 'missing.wav' is not a file"),
    ):
        with pytest.raises(specjax.UserError, match=said):
            specjax.transcribe(generator, audio)
    with pytest.raises(specjax.UserError, match="batch_size is 0"):
        specjax.transcribe(generator, features(1.0), batch_size=0)
    with pytest.raises(specjax.UserError, match="max_new_tokens is 31; after the 3 "):
        specjax.transcribe(specjax.Generator(target, max_new_tokens=31), features(1.0))
    with pytest.raises(specjax.UserError, match="generator is 3; it must be"):
        specjax.transcribe(3, features(1.0))
    reads = specjax.Generator(load(FOLDER.parent / "t5_v1_1"))
    with pytest.raises(specjax.UserError, match="which reads no audio; it must be a speech model"):
        specjax.transcribe(reads, features(1.0))
