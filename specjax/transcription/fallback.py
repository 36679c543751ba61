"""Decoding of a window of speech: previous text, and fallback to higher temperatures.

Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2023). Section 2.3:
previous text is placed before the start token, after a token that marks it. Section 4.5, by the
decisions of transformers' Whisper `generate`: a text that compresses too well is repetitive, and a
text of low mean log probability is a guess. Such a guess is silence if the model predicts silence.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.contracts.context import Context, Options
from specjax.contracts.distribution import pick_tokens
from specjax.contracts.logits_processor import bind_processors
from specjax.decoding.state import Generation
from specjax.models.base import LanguageModel
from specjax.models.whisper import Whisper
from specjax.runtime.errors import UserError
from specjax.sampling import Sampling


class Previous:
    """The previous text of each audio, and whether its next window is conditioned on it."""

    def __init__(self, model: Whisper, audios: int) -> None:
        self._mark, self._width = model.config.speech.previous, previous_text_width(model)
        self._pad = model.info.pad
        self._texts: list[list[int]] = [[] for _ in range(audios)]
        self._used = [True] * audios

    def add(self, audio: int, tokens: list[int]) -> None:
        """Appends the text of a window."""
        self._texts[audio] += tokens

    def use(self, audio: int, used: bool) -> None:
        """Sets whether the next window of an audio is conditioned."""
        self._used[audio] = used

    def batch(self, audios: list[int], size: int) -> tuple[np.ndarray, np.ndarray]:
        """The previous text [B, W] of these audios and its length [B], 0 where there is none."""
        tokens = np.full((size, self._width), self._pad, np.int32)
        length = np.zeros(size, np.int32)
        for row, audio in enumerate(audios):
            if text := self._texts[audio] if self._used[audio] else []:
                whole = [self._mark, *text[1 - self._width :]]
                tokens[row, : len(whole)], length[row] = whole, len(whole)
        return tokens, length


def previous_text_width(model: Whisper) -> int:
    """Most tokens of previous text including its marker: half of the decoder's positions."""
    return model.config.max_positions // 2


def check_previous(model: LanguageModel, max_new_tokens: int) -> None:
    """Refuses a model without a token or positions for previous text.

    Raises:
      UserError: naming the setting.
    """
    setting = "condition_on_prev_tokens is True"
    if not isinstance(model, Whisper) or model.config.speech.previous is None:
        raise UserError(f"{setting}; the model has no token for previous text (prev_sot_token_id)")
    fed = len(model.info.prefix) + previous_text_width(model)
    most = model.config.max_positions - fed
    if max_new_tokens > most:
        raise UserError(
            f"{setting} and max_new_tokens {max_new_tokens}; after {fed} tokens of previous text"
            f" and prefix the model has positions for {most}"
        )


LOW = 0.5
"""Temperature above which a text does not condition the next window."""


def is_real(value: Any) -> bool:
    """Whether a value is a finite number, but not a bool."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value)


@dataclasses.dataclass(frozen=True)
class Fallback:
    """Temperatures, tried in turn, and the thresholds that decide; None: not tested."""

    temperatures: tuple[float | None, ...]  # None: that of the strategy
    compression_ratio_threshold: float | None = None
    logprob_threshold: float | None = None
    no_speech_threshold: float | None = None

    def __post_init__(self) -> None:
        for value in self.temperatures:
            if value is not None and not (is_real(value) and value >= 0):
                raise UserError(f"temperature has {value!r}; it must be a number of at least 0")
        if len(set(self.temperatures)) < len(self.temperatures):
            raise UserError(f"temperature is {self.temperatures}; its values must differ")
        for field in dataclasses.fields(self)[1:]:
            value = getattr(self, field.name)
            if value is not None and not is_real(value):
                raise UserError(f"{field.name} is {value!r}; it must be a number, or None")
        if self.no_speech_threshold is not None and self.logprob_threshold is None:
            raise UserError(
                f"no_speech_threshold is {self.no_speech_threshold} and logprob_threshold None;"
                " only a text of low probability is silence: give both"
            )

    @property
    def needs_scores(self) -> bool:
        return self.logprob_threshold is not None

    def decide(
        self, tokens: Sequence[int], vocab_size: int, logprob: float, no_speech: float
    ) -> tuple[bool, bool]:
        """Whether a window's text, EOS included, is decoded again, and whether it is skipped."""
        again = False
        if self.compression_ratio_threshold is not None:
            again = compression_ratio(tokens, vocab_size) > self.compression_ratio_threshold
        guess = self.logprob_threshold is not None and logprob < self.logprob_threshold
        if guess and self.no_speech_threshold is not None and no_speech > self.no_speech_threshold:
            return False, True
        return again or guess, False


def compression_ratio(tokens: Sequence[int], vocab_size: int) -> float:
    """Bytes of the token ids over bytes of their zlib compression."""
    width = int(math.log2(vocab_size) / 8) + 1
    data = b"".join(int(token).to_bytes(width, "little") for token in tokens)
    return len(data) / len(zlib.compress(data))


@dataclasses.dataclass(frozen=True)
class Scores:
    """The target's scores of each row's text."""

    logprob: np.ndarray  # [B] mean log probability of its tokens, EOS included
    no_speech: np.ndarray  # [B] probability of the no-speech token

    @classmethod
    def unknown(cls, rows: int) -> Scores:
        """Placeholder for scores that no threshold needs."""
        return cls(np.zeros(rows), np.zeros(rows))


def scores(generator: Any, batch: Any, made: Generation) -> Scores:
    """The scores of a decoded batch, by one more call of the target on the text of each row."""
    model = generator.decoder.target_model
    options = generator.options.replace(sampling=Sampling(greedy=True))
    silence = generator.target.model.config.speech.no_timestamps - 1
    rows = batch.tokens, batch.length, made.tokens, made.begin, made.length
    count = generator.decoder.max_new_tokens
    found = _scores(model, count, generator.params["target"], rows, options, silence)
    return Scores(*map(np.asarray, jax.device_get(found)))


@functools.partial(jax.jit, static_argnames=("model", "most"))
def _scores(
    model: LanguageModel, most: int, params: Any, rows: tuple, options: Options, silence: int
) -> tuple[jax.Array, jax.Array]:
    """Computes scores row by row, because the logits of a batch would take much memory."""

    def one(row: tuple) -> tuple[jax.Array, jax.Array]:
        frames, frames_length, tokens, begin, length = (part[None] for part in row)
        cache, _ = model.start(params, frames, frames_length, tokens.shape[1])
        start = begin - len(model.info.prefix)
        place = begin[:, None] + jnp.arange(most)
        at = jnp.concatenate([start[:, None], place - 1], axis=1)
        logits = model.extend(params, tokens, cache, at=at)[0].logits
        text = jnp.take_along_axis(tokens, place, axis=1, mode="clip")
        context = _make_context(tokens, begin, options)
        path = jnp.broadcast_to(text[:, None], (1, most, most))
        settings = bind_processors(context, logits.shape[-1])
        adjusted = settings.process_paths(logits[:, 1:], path, jnp.arange(most))
        found = pick_tokens(jax.nn.log_softmax(adjusted, axis=-1), text)
        count = length - begin
        total = jnp.sum(jnp.where(jnp.arange(most) < count[:, None], found, 0.0))
        no_speech = jax.nn.softmax(logits[0, 0])[silence]
        return total / jnp.maximum(count[0], 1), no_speech

    return jax.lax.map(one, rows)


def _make_context(tokens: jax.Array, begin: jax.Array, options: Options) -> Context:
    """A row with only its decoder prefix committed; settings see the rest as drafted."""
    none = jnp.zeros_like(begin)
    return Context(tokens[:, :0], none, tokens, begin, begin, none, none, none > 0, options)
