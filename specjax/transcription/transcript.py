"""Transcribes speech of any length, window by window.

A speech model reads a window of 30 seconds. If its text ends a part within the window, the next
window begins after that part, and later text is dropped: so a word that the end of a window cuts is
complete in the next one. Radford et al., "Robust Speech Recognition via Large-Scale Weak
Supervision" (2023), section 2.3; parts and windows are those of transformers' `generate`, and so
are the text that a window is conditioned on and the decisions of `fallback`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence, Sized
from itertools import pairwise
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specjax.api import Generator
from specjax.checks import check_integers
from specjax.data.batching import Batch
from specjax.decoding.state import Generation
from specjax.decoding.summary import Statistics, summarize
from specjax.logits.timestamps import Timestamps
from specjax.models.info import Frames, Samples
from specjax.models.whisper import Whisper
from specjax.runtime.errors import UserError
from specjax.runtime.programs import release_programs
from specjax.runtime.progress import UNNOTICED, progress
from specjax.sampling import replace_temperature
from specjax.transcription.fallback import LOW, Fallback, Previous, Scores, check_previous, scores

STEP = 0.02
"""Seconds from one timestamp to the next."""

NO_TIMES = "whose model writes no times; it reads audio in one piece by a Generator"
"""Ends the refusal of models that cannot transcribe long audio."""

Part = tuple[int, int, list[int]]
"""Start and end timestamp of a part within its window, and its tokens."""


@dataclasses.dataclass(frozen=True)
class Segment:
    """The text of a stretch of audio."""

    start: float  # seconds
    end: float
    tokens: list[int]  # its timestamps included
    text: str | None  # None without a tokenizer


@dataclasses.dataclass(frozen=True)
class Transcript:
    """The text of each audio, its segments, and statistics of decoding."""

    texts: list[str] | None  # None without a tokenizer
    segments: list[list[Segment]]
    statistics: Statistics  # of all windows, tokens that were dropped included


def transcribe(
    generator: Generator,
    audio: Sequence[Any],
    *,
    seed: int = 0,
    batch_size: int = 8,
    condition_on_prev_tokens: bool = False,
    temperature: float | Sequence[float] | None = None,
    compression_ratio_threshold: float | None = None,
    logprob_threshold: float | None = None,
    no_speech_threshold: float | None = None,
) -> Transcript:
    """Transcribes audio of any length: files, waveforms, or features [M, N].

    The target writes timestamps (`in_language(target, timestamps=True)`); without them audio must
    fit into one window. Up to `batch_size` audios are decoded at a time, a window of each. Without
    a given language it is detected for each window.

    With `condition_on_prev_tokens` the previous transcript precedes a window's text, truncated to
    half of the decoder's positions. `temperature` is one value or several, tried in turn until the
    thresholds hold (`fallback.Fallback`); None: that of the generator's strategy. All five have the
    names and the meaning of transformers' `generate`; log probabilities cost one more call of the
    target for each window.

    Raises:
      UserError: when an argument is invalid.
    """
    frames = _check(generator, audio)
    check_integers(seed=seed, batch_size=batch_size)
    thresholds = compression_ratio_threshold, logprob_threshold, no_speech_threshold
    fallback = Fallback(_temperatures(generator, temperature), *thresholds)
    check_settings(generator, fallback, condition_on_prev_tokens)
    audios = _read_audio(generator, list(audio), frames.count)
    reading = _Reading(generator, audios, frames, fallback, condition_on_prev_tokens)
    size = generator.padded_size(min(batch_size, len(reading.audios)))
    traces: list[tuple[Generation, int]] = []
    seconds = STEP * sum(map(len, reading.audios)) / frames.stride
    with progress(total=round(seconds), unit="s", desc="transcribing", delay=UNNOTICED) as bar:
        while unfinished := reading.list_unfinished(size):
            release_programs()
            traces += reading.decode_window(unfinished, size, seed)
            bar.update(reading.seconds - bar.n)
    return reading.transcript(summarize(generator.decoder, traces))


class _Reading:
    """Position in each audio, and its transcript so far."""

    def __init__(
        self,
        generator: Generator,
        audios: list[np.ndarray],
        frames: Frames,
        fallback: Fallback,
        conditioned: bool,
    ) -> None:
        self.generator, self.audios, self.fallback = generator, audios, fallback
        self.frames, model = frames, generator.target.model
        self.first = _first_time(generator)
        self.place = [0] * len(audios)  # frames
        self.windows = [0] * len(audios)
        self.parts: list[list[Part]] = [[] for _ in audios]  # counted from the audio's begin
        self.previous = None
        if conditioned and isinstance(model, Whisper):
            self.previous = Previous(model, len(audios))

    @property
    def seconds(self) -> int:
        """Seconds of audio that are transcribed."""
        frames = sum(map(min, self.place, map(len, self.audios)))
        return round(STEP * frames / self.frames.stride)

    def list_unfinished(self, most: int) -> list[int]:
        """The first unfinished audios."""
        return [i for i, frames in enumerate(self.audios) if self.place[i] < len(frames)][:most]

    def decode_window(self, rows: list[int], size: int, seed: int) -> list[tuple[Generation, int]]:
        """Decodes the next window of each of these audios; returns the outputs.

        Rows that fall back are decoded again together, at one temperature after another.
        """
        made, left = [], rows
        for attempt, temperature in enumerate(self.fallback.temperatures):
            batch, generation = self._decode_windows(left, size, seed, attempt, temperature)
            made.append((generation.replace(memory=()), len(left)))  # of the drafter, maybe large
            last = attempt == len(self.fallback.temperatures) - 1
            left = self._judge_windows(left, batch, generation, temperature, last)
            if not left:
                break
        return made

    def _decode_windows(
        self, rows: list[int], size: int, seed: int, attempt: int, temperature: float | None
    ) -> tuple[Batch, Generation]:
        """One decode of the windows of these audios."""
        generator, frames = self.generator, self.frames
        full = [np.pad(cut, ((0, frames.count - len(cut)), (0, 0))) for cut in map(self._cut, rows)]
        batch = generator.batch(full, size)
        index, windows = np.zeros((2, size), np.int32)
        index[: len(rows)], windows[: len(rows)] = rows, [self.windows[i] for i in rows]
        keys = generator.keys(dataclasses.replace(batch, index=index), seed)
        keys = jax.vmap(jax.random.fold_in)(keys, windows)
        if attempt:
            keys = jax.vmap(jax.random.fold_in, (0, None))(keys, attempt)
        options = generator.options
        if temperature is not None:
            options = options.replace(sampling=replace_temperature(options.sampling, temperature))
        if self.previous:
            options = options.replace(previous=self.previous.batch(rows, size))
        return batch, generator.run(batch, keys, options=options)

    def _cut(self, i: int) -> np.ndarray:
        """The frames [N, M] of an audio's next window."""
        return self.audios[i][self.place[i] :][: self.frames.count]

    def _judge_windows(
        self,
        rows: list[int],
        batch: Batch,
        generation: Generation,
        temperature: float | None,
        last: bool,
    ) -> list[int]:
        """Accepts windows that pass the thresholds; returns the audios to decode again."""
        vocab_size = self.generator.target.model.info.vocab_size
        texts, found = self.generator.rows(generation), Scores.unknown(len(rows))
        if self.fallback.needs_scores:
            found = scores(self.generator, batch, generation)
        again = []
        for row, i in enumerate(rows):
            values = found.logprob[row], found.no_speech[row]
            repeat, silent = self.fallback.decide(texts[row], vocab_size, *values)
            if repeat and not last:
                again.append(i)
                continue
            self._advance_audio(i, texts[row], silent)
            if self.previous:
                self.previous.use(i, temperature is None or temperature < LOW)
        return again

    def _advance_audio(self, i: int, tokens: list[int], silent: bool) -> None:
        model, frames = self.generator.target.model, len(self._cut(i))
        said = tokens[:-1] if tokens and tokens[-1] in model.info.eos else tokens
        parts, passed = split(said, self.first, frames, self.frames.stride)
        offset = self.place[i] // self.frames.stride
        made = [(offset + start, offset + end, part) for start, end, part in parts if part]
        self.parts[i] += [] if silent else made
        if self.previous and not silent:
            self.previous.add(i, [token for *_, part in made for token in part])
        self.place[i] += frames if silent else passed
        self.windows[i] += 1

    def transcript(self, statistics: Statistics) -> Transcript:
        segments = [[self._segment(*part) for part in parts] for parts in self.parts]
        whole = [[token for _, _, part in parts for token in part] for parts in self.parts]
        return Transcript(self.generator.decode(whole), segments, statistics)

    def _segment(self, start: int, end: int, tokens: list[int]) -> Segment:
        texts = self.generator.decode([tokens])
        return Segment(start * STEP, end * STEP, tokens, texts[0] if texts else None)


def split(tokens: list[int], first: int, frames: int, stride: int) -> tuple[list[Part], int]:
    """The parts of a window's text without EOS, and how many of its `frames` they take.

    Tokens from `first` on are timestamps, `stride` frames apart. Two in a row end a part and begin
    another. Without such a pair all is one part and the window is done, as it is where a single
    timestamp ends the text; else the next window begins with the part that was not ended.
    """
    timed = [token >= first for token in tokens]
    cuts = [i for i in range(1, len(tokens)) if timed[i - 1] and timed[i]]
    if not cuts:
        times = [token - first for token in tokens if token >= first]
        return [(0, times[-1] if times and times[-1] else frames // stride, tokens)], frames
    done = timed[-2:] == [False, True]
    parts = [tokens[a:b] for a, b in pairwise([0, *cuts, *[len(tokens)] * done])]
    made = [(part[0] - first, part[-1] - first, part) for part in parts]
    return made, frames if done else stride * made[-1][1]


def _temperatures(generator: Any, given: Any) -> tuple[Any, ...]:
    """The temperatures to try; None is that of the generator's strategy."""
    if given is None:
        return (None,)
    return tuple(given) if isinstance(given, (list, tuple)) and given else (given,)


def check_settings(generator: Generator, fallback: Fallback, conditioned: Any) -> None:
    """Refuses thresholds and conditions that the model does not support.

    Raises:
      UserError: naming the setting.
    """
    model = generator.target.model
    speech = model.config.speech if isinstance(model, Whisper) else None
    if fallback.needs_scores and (speech is None or speech.no_timestamps is None):
        raise UserError("logprob_threshold is given; the model has no token for silence")
    if not isinstance(conditioned, bool):
        raise UserError(f"condition_on_prev_tokens is {conditioned!r}; it must be True or False")
    if conditioned:
        check_previous(model, generator.decoder.max_new_tokens)


def _first_time(generator: Generator) -> int:
    """The token of 0 seconds; beyond all tokens if the generator writes no timestamps."""
    writes = [one for one in generator.options.processors if isinstance(one, Timestamps)]
    return writes[0].first if writes else generator.target.model.info.vocab_size


def _read_audio(generator: Generator, audio: list[Any], most: int) -> list[np.ndarray]:
    """The frames [N, M] of each audio, N at least the `most` of a window."""
    audios = [generator.target.extractor.whole(f"audio {i}", one) for i, one in enumerate(audio)]
    longer = next((i for i, frames in enumerate(audios) if len(frames) > most), None)
    if longer is not None and _first_time(generator) == generator.target.model.info.vocab_size:
        raise UserError(
            f"audio {longer} has more than the {most} frames of a window; the generator's target"
            " must write timestamps, as in_language(target, timestamps=True) does"
        )
    return audios


def _check(generator: Any, audio: Any) -> Frames:
    """The frames of a window of the generator; refuses invalid generators and audio."""
    if not isinstance(generator, Generator):
        raise UserError(f"generator is {generator!r}; it must be a specjax.Generator")
    target, frames = generator.target, generator.target.model.info.input
    if isinstance(frames, Samples):
        raise UserError(f"generator decodes by {target.name!r}, {NO_TIMES}")
    if target.extractor is None or not isinstance(frames, Frames):
        raise UserError(
            f"generator decodes by {target.name!r}, which reads no audio; it must be a speech model"
        )
    if isinstance(audio, (str, Path)) or not isinstance(audio, Sized) or not len(audio):
        raise UserError(f"audio is {audio!r}; it must be a list of audio files or waveforms")
    generator.prompts.check_room()
    return frames
