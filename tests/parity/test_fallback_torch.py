"""Previous text and temperature fallback against transformers' `generate` on random models."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from transformers import LogitsProcessorList  # noqa: E402
from transformers.generation.logits_process import WhisperNoSpeechDetection  # noqa: E402
from transformers.models.whisper.generation_whisper import WhisperGenerationMixin  # noqa: E402

import specjax  # noqa: E402
from specjax.loading import load  # noqa: E402
from specjax.transcription.fallback import Fallback  # noqa: E402

GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_whisper.py"))
NO_TIMESTAMPS, PREVIOUS, TIMES, NEW_TOKENS = GOLDEN["NO_TIMESTAMPS"], 88, 40, 10
VOCABULARY = NO_TIMESTAMPS + 1 + TIMES


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random PyTorch model and the same one loaded here, writing timestamps."""
    theirs = GOLDEN["build"](71, vocab_size=VOCABULARY)
    theirs.generation_config.prev_sot_token_id = PREVIOUS
    folder = tmp_path_factory.mktemp("whisper")
    GOLDEN["save"](theirs, folder)
    file = folder / "generation_config.json"
    said = json.loads(file.read_text("utf-8")) | {"prev_sot_token_id": PREVIOUS}
    file.write_text(json.dumps(said), "utf-8")
    return theirs, specjax.in_language(load(folder), "en", timestamps=True)


def audio(seed: int, windows: float, shape: Any) -> np.ndarray:
    """Random features [M, N], their spectrum another one every half window."""
    half = shape.max_source_positions
    halves = GOLDEN["heard"](seed, int(np.ceil(2 * windows)), shape.num_mel_bins, half)
    return np.concatenate(halves, axis=1)[:, : round(2 * half * windows)]


def transcribe_in_torch(theirs: Any, features: np.ndarray, **settings: Any) -> list[list[int]]:
    """Segments of `generate`, the last of a window without the time that begins another one."""
    made = theirs.generate(
        input_features=torch.tensor(features)[None], max_new_tokens=NEW_TOKENS, num_beams=1,
        language="en", return_timestamps=True, return_segments=True, **settings,
    )["segments"][0]  # fmt: skip
    segments = []
    for one in made:
        tokens = one["tokens"].tolist()
        opened = len(tokens) > 1 and min(tokens[-2:]) > NO_TIMESTAMPS
        segments.append(tokens[:-1] if opened else tokens)
    return [segment for segment in segments if segment]


def transcribe_here(ours: Any, rows: list[np.ndarray], **settings: Any) -> list[list[list[int]]]:
    generator = specjax.Generator(ours, max_new_tokens=NEW_TOKENS)
    made = specjax.transcribe(generator, rows, batch_size=2, **settings)
    return [[segment.tokens for segment in row] for row in made.segments]


@pytest.mark.slow
def test_windows_conditioned_on_previous_text_are_those_of_generate(pair: Any) -> None:
    theirs, ours = pair
    rows = [audio(seed, 3.3, theirs.config) for seed in range(3)]
    settings = {"condition_on_prev_tokens": True}
    made = transcribe_here(ours, rows, **settings)
    assert made == [transcribe_in_torch(theirs, row, **settings) for row in rows]
    assert made != transcribe_here(ours, rows)


@pytest.mark.slow
def test_thresholds_that_are_met_change_nothing(pair: Any) -> None:
    theirs, ours = pair
    row = audio(5, 3.3, theirs.config)
    settings = {
        "temperature": (0.0, 0.2, 0.4), "compression_ratio_threshold": 100.0,
        "logprob_threshold": -100.0, "no_speech_threshold": 0.99,
        "condition_on_prev_tokens": True,
    }  # fmt: skip
    assert transcribe_here(ours, [row], **settings) == [
        transcribe_in_torch(theirs, row, **settings)
    ]


@pytest.mark.slow
def test_windows_of_silence_are_those_of_generate(pair: Any) -> None:
    """One temperature: the scores alone decide which windows are skipped."""
    theirs, ours = pair
    row, counts = audio(6, 4.2, theirs.config), set()
    for logprob, silence in ((-1.0, 0.0), (-0.7, 0.0), (-0.5, 0.0), (-0.3, 0.01), (-0.3, 0.005)):
        settings = {"logprob_threshold": logprob, "no_speech_threshold": silence}
        theirs_made = transcribe_in_torch(theirs, row, temperature=(0.0,), **settings)
        assert transcribe_here(ours, [row], temperature=(0.0,), **settings) == [theirs_made]
        counts.add(len(theirs_made))
    assert len(counts) > 1


def theirs_decide(tokens: list[int], logprob: float, silence: float, fallback: Fallback) -> Any:
    """transformers' decision on a text whose tokens all have one log probability."""
    vocabulary = 64
    scores = np.full((len(tokens), vocabulary), -np.inf, np.float32)
    other = np.log(-np.expm1(logprob))
    for row, token in zip(scores, tokens, strict=True):
        row[token], row[(token + 1) % vocabulary] = logprob, other
    detector = WhisperNoSpeechDetection(no_speech_token=1, begin_index=1)
    detector._no_speech_prob = [silence]
    mixin = SimpleNamespace(
        _retrieve_compression_ratio=WhisperGenerationMixin._retrieve_compression_ratio,
        _retrieve_avg_logprobs=WhisperGenerationMixin._retrieve_avg_logprobs,
    )
    names = "compression_ratio_threshold", "logprob_threshold", "no_speech_threshold"
    settings = SimpleNamespace(**{name: getattr(fallback, name) for name in names})
    return WhisperGenerationMixin._need_fallback(
        mixin, torch.tensor(tokens), [{"scores": list(torch.tensor(scores))}], 0,
        LogitsProcessorList([detector]), settings, vocabulary, 0.0,
    )  # fmt: skip


def test_decisions_are_those_of_transformers() -> None:
    rng, kinds = np.random.default_rng(0), set()
    for _ in range(200):
        tokens = rng.integers(0, rng.choice([2, 60]), size=rng.integers(4, 60)).tolist()
        logprob, silence = float(-rng.uniform(0.1, 3.0)), float(rng.uniform())
        ratio = rng.choice([None, 1.35, 2.4])
        low = rng.choice([None, -1.0, -2.0])
        quiet = None if low is None else rng.choice([None, 0.3, 0.6])
        fallback = Fallback((0.0, 0.2), ratio, low, quiet)
        made = fallback.decide(tokens, 64, logprob, silence)
        assert made == theirs_decide(tokens, logprob, silence, fallback)
        kinds.add(made)
    assert kinds == {(False, False), (True, False), (False, True)}
