"""Long audio against transformers' `generate` on fresh random models."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odd_shapes import speech_shapes

torch = pytest.importorskip("torch")

import specjax  # noqa: E402
from specjax.decoding.strategy import Strategy  # noqa: E402
from specjax.drafting.copying import PromptLookup  # noqa: E402
from specjax.drafting.early_exit import EarlyExit  # noqa: E402
from specjax.loading import load  # noqa: E402

pytestmark = pytest.mark.slow

GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_whisper.py"))
SHAPES: dict[str, dict[str, Any]] = {"even": {}, **speech_shapes(4)}
TIMES = 40
"""Tokens for times; with the five that the golden model has random texts hardly have any."""
WINDOWS = 1.0, 2.3, 3.7, 5.2
"""How many windows each audio has."""
NEW_TOKENS = 20
NO_TIMESTAMPS = GOLDEN["NO_TIMESTAMPS"]


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random PyTorch model and the same one loaded here, writing timestamps."""
    shape = SHAPES[request.param] | {"vocab_size": NO_TIMESTAMPS + 1 + TIMES}
    theirs = GOLDEN["build"](list(SHAPES).index(request.param) + 70, **shape)
    folder = tmp_path_factory.mktemp("whisper")
    GOLDEN["save"](theirs, folder)
    return theirs, specjax.in_language(load(folder), "en", timestamps=True)


def audios(shape: Any) -> list[np.ndarray]:
    """Random features [M, N], their spectrum another one every half window."""
    half = shape.max_source_positions
    rows = []
    for seed, windows in enumerate(WINDOWS):
        halves = GOLDEN["heard"](seed, int(np.ceil(2 * windows)), shape.num_mel_bins, half)
        rows.append(np.concatenate(halves, axis=1)[:, : round(2 * half * windows)])
    return rows


def transcribe_in_torch(theirs: Any, features: np.ndarray) -> list[tuple[float, float, list[int]]]:
    """Segments of `generate`, the last of a window without the time that begins another one."""
    made = theirs.generate(
        input_features=torch.tensor(features)[None],
        max_new_tokens=NEW_TOKENS,
        num_beams=1,
        language="en",
        return_timestamps=True,
        return_segments=True,
    )["segments"][0]
    segments = []
    for one in made:
        tokens = one["tokens"].tolist()
        opened = len(tokens) > 1 and min(tokens[-2:]) > NO_TIMESTAMPS
        tokens = tokens[:-1] if opened else tokens
        segments.append((float(one["start"]), float(one["end"]), tokens))
    return [segment for segment in segments if segment[2]]


def transcribe_here(
    transcript: specjax.Transcript, row: int
) -> list[tuple[float, float, list[int]]]:
    return [(one.start, one.end, one.tokens) for one in transcript.segments[row]]


def same(one: list[Any], other: list[Any]) -> None:
    assert [tokens for *_, tokens in one] == [tokens for *_, tokens in other]
    # They end a window that writes no time a step too early where 0.01 * frames / 0.02 rounds down.
    for place, tolerance in ((0, 1e-9), (1, 0.02 + 1e-9)):
        times = [[segment[place] for segment in segments] for segments in (one, other)]
        np.testing.assert_allclose(*times, rtol=0, atol=tolerance)


def test_segments_of_long_audio_are_those_of_generate(pair: Any) -> None:
    theirs, ours = pair
    features = audios(theirs.config)
    generator = specjax.Generator(ours, max_new_tokens=NEW_TOKENS)
    transcript = specjax.transcribe(generator, features, batch_size=3)
    for row, one in enumerate(features):
        same(transcribe_here(transcript, row), transcribe_in_torch(theirs, one))
    assert max(map(len, transcript.segments)) > max(WINDOWS)


def test_drafts_change_nothing(pair: Any) -> None:
    theirs, ours = pair
    features = audios(theirs.config)
    baseline = specjax.transcribe(specjax.Generator(ours, max_new_tokens=NEW_TOKENS), features)
    strategy = Strategy(EarlyExit(3, exit=1) if ours.model.info.depth > 1 else PromptLookup(3))
    drafted = specjax.transcribe(
        specjax.Generator(ours, strategy=strategy, max_new_tokens=NEW_TOKENS), features
    )
    assert drafted.segments == baseline.segments
