"""Temperature fallback and previous text of long audio, without transformers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import specjax
from specjax.loading import LoadedModel, load
from specjax.models.whisper import Whisper
from specjax.transcription import transcript as module
from specjax.transcription.fallback import Fallback, Previous, Scores, compression_ratio

FOLDER = Path(__file__).parents[1] / "golden" / "whisper"


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    """Writes timestamps, and has a token for previous text."""
    loaded = specjax.in_language(load(FOLDER), "fr", timestamps=True)
    tokens = dataclasses.replace(loaded.model.config.speech, previous=88)
    model = Whisper(dataclasses.replace(loaded.model.config, speech=tokens))
    return dataclasses.replace(loaded, model=model)


def features(windows: float) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(6, round(100 * windows))).astype(np.float32)


def test_repetition_and_guesses_fall_back_and_guesses_of_silence_are_skipped() -> None:
    plain, repeated = list(range(40)), [7] * 40
    assert compression_ratio(repeated, 50_000) > 4 > 1.4 > compression_ratio(plain, 50_000)
    both = Fallback((0.0, 0.5), 2.4, -1.0, 0.6)
    assert both.decide(plain, 50_000, -0.5, 0.9) == (False, False)
    assert both.decide(repeated, 50_000, -0.5, 0.9) == (True, False)
    assert both.decide(plain, 50_000, -1.5, 0.5) == (True, False)
    assert both.decide(repeated, 50_000, -1.5, 0.9) == (False, True)
    assert Fallback((0.0,)).decide(repeated, 50_000, -9.0, 0.9) == (False, False)


@pytest.mark.slow
def test_only_windows_that_fall_back_are_decoded_again(target, monkeypatch) -> None:
    """At the temperatures in turn, and the last one is kept whatever it is."""
    tried, decode = [], module._Reading._decode_windows

    def decode_windows(self, rows, size, seed, attempt, temperature):
        tried.append((tuple(rows), temperature))
        return decode(self, rows, size, seed, attempt, temperature)

    def find_segments(generator, batch, made):
        worse = batch.tokens[:, 0, 0] > 0  # of the second audio
        return Scores(np.where(worse, -2.0, -0.5), np.zeros(len(worse)))

    monkeypatch.setattr(module._Reading, "_decode_windows", decode_windows)
    monkeypatch.setattr(module, "scores", find_segments)
    generator = specjax.Generator(target, max_new_tokens=8)
    first, second = features(1.0), features(1.0)
    first[0, 0], second[0, 0] = -1.0, 1.0
    settings = {"temperature": (0.0, 0.4, 0.8), "logprob_threshold": -1.0}
    made = specjax.transcribe(generator, [first, second], batch_size=2, **settings)
    assert tried[:3] == [((0, 1), 0.0), ((1,), 0.4), ((1,), 0.8)]
    assert made.segments[0] == specjax.transcribe(generator, [first]).segments[0]
    assert len({tuple(s.tokens) for s in made.segments[1]}) and made.statistics.tokens > 8


def test_previous_text_is_cut_to_half_of_the_positions(target) -> None:
    previous = Previous(target.model, 3)  # of 32 positions
    previous.add(0, list(range(20)))
    previous.add(1, [4, 5])
    previous.use(1, False)
    tokens, length = previous.batch([0, 1, 2], 4)
    assert length.tolist() == [16, 0, 0, 0]
    assert tokens[0].tolist() == [88, *range(5, 20)]
    previous.use(1, True)
    tokens, length = previous.batch([1], 1)
    assert tokens[0, :3].tolist() == [88, 4, 5] and length.tolist() == [3]


@pytest.mark.slow
def test_drafts_change_nothing_of_conditioned_windows(target) -> None:
    audio, settings = [features(3.2), features(2.1)], {"condition_on_prev_tokens": True}
    baseline = specjax.Generator(target, max_new_tokens=10)
    drafted = specjax.Generator(
        target, strategy=specjax.strategy(drafter="prompt_lookup", length=3), max_new_tokens=10
    )
    plain = specjax.transcribe(baseline, audio, batch_size=2, **settings)
    assert specjax.transcribe(drafted, audio, batch_size=2, **settings).segments == plain.segments
    assert specjax.transcribe(baseline, audio, batch_size=2).segments != plain.segments


@pytest.mark.slow
def test_batches_change_nothing_of_conditioned_windows(target) -> None:
    audio, settings = [features(3.2), features(2.1)], {"condition_on_prev_tokens": True}
    generator = specjax.Generator(target, max_new_tokens=10)
    both, single = (
        specjax.transcribe(generator, audio, batch_size=size, **settings).segments
        for size in (2, 1)
    )
    assert single == both


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": (0.0, -1.0)}, "temperature has -1.0; it must be a number of at least 0"),
        ({"temperature": (0.2, 0.2)}, "its values must differ"),
        ({"temperature": "hot"}, "temperature has 'hot'"),
        ({"logprob_threshold": "low"}, "logprob_threshold is 'low'; it must be a number, or None"),
        ({"no_speech_threshold": 0.6}, "logprob_threshold None; .* give both"),
        ({"condition_on_prev_tokens": 1}, "condition_on_prev_tokens is 1; it must be True or"),
    ],
)
def test_settings_that_cannot_be_used_are_refused(target, settings, said) -> None:
    generator = specjax.Generator(target, max_new_tokens=8)
    with pytest.raises(specjax.UserError, match=said):
        specjax.transcribe(generator, [features(1.0)], **settings)


def test_a_model_without_room_for_previous_text_is_refused(target) -> None:
    audio, setting = [features(1.0)], {"condition_on_prev_tokens": True}
    long = specjax.Generator(target, max_new_tokens=14)
    with pytest.raises(specjax.UserError, match="max_new_tokens 14; after 19 tokens .* for 13"):
        specjax.transcribe(long, audio, **setting)
    without = specjax.in_language(load(FOLDER), "fr", timestamps=True)
    with pytest.raises(specjax.UserError, match="no token for previous text"):
        specjax.transcribe(specjax.Generator(without, max_new_tokens=8), audio, **setting)
