"""Timestamps of speech: tokens for the start and end times of the text between them.

Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2023), section 2.3,
by the rules of transformers' `WhisperTimeStampLogitsProcessor`.
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.context import Context
from specjax.contracts.logits_processor import LogitsProcessor, Positions
from specjax.contracts.registry import PROCESSORS
from specjax.models.base import LanguageModel
from specjax.models.whisper import Whisper

NONE = -1
"""Placeholder before the first timestamp."""


@PROCESSORS.register("return_timestamps", example={"return_timestamps": True})
@dataclasses.dataclass(frozen=True)
class Timestamps(LogitsProcessor):
    """Constrains timestamps: one begins the text, then they come in ascending pairs."""

    return_timestamps: bool = fields.flag(help="a speech model writes timestamps")
    first: int = 0  # the token of 0 s; later times follow it, the token before it means no times
    latest: int | None = None  # the last token that may begin a text; None: any time
    eos: int = 0  # text tokens are below it

    order: ClassVar[int] = 110
    off: ClassVar[bool] = False

    def bind_model(
        self, model: LanguageModel, others: tuple[LogitsProcessor, ...]
    ) -> LogitsProcessor:
        speech = model.config.speech if isinstance(model, Whisper) else None
        if speech is None or speech.no_timestamps is None:
            raise ValueError("return_timestamps is True; only a speech model writes timestamps")
        if speech.no_timestamps in model.info.forced:
            raise ValueError(
                "return_timestamps is True; the target's texts begin with a token for no times,"
                " which in_language(target, timestamps=True) leaves out"
            )
        first, last = speech.no_timestamps + 1, speech.latest_first
        latest = None if last is None else first + last
        return dataclasses.replace(self, first=first, latest=latest, eos=model.info.eos[0])

    def prepare_rows(self, context: Context, vocabulary: int) -> jax.Array:
        """The last timestamp [B] of each row."""
        slot = jnp.arange(context.tokens.shape[1])
        written = (slot >= context.begin[:, None]) & (slot < context.length[:, None])
        times = jnp.where(written, context.tokens, NONE)[:, None]
        return self._last(times, jnp.full((len(times), 1), NONE))[:, 0]

    def adjust(self, logits: jax.Array, positions: Positions, rows: jax.Array) -> jax.Array:
        token, written = (
            jnp.arange(logits.shape[-1]),
            positions.length - positions.context.begin[:, None],
        )
        is_time = token >= self.first
        before, last = jnp.moveaxis(positions.last(2), 2, 0)
        closed = (written < 2) | (before >= self.first)
        timed = (written >= 1) & (last >= self.first)
        time = self._last(positions.drafted, jnp.broadcast_to(rows[:, None], last.shape))
        # The second of a pair may repeat the first; a new pair is later.
        least = jnp.where(time == NONE, self.first, time + 1 - (timed & ~closed))
        banned = (timed & closed)[..., None] & is_time
        banned |= (timed & ~closed)[..., None] & (token < self.eos)
        banned |= is_time & (token < least[..., None])
        allowed = is_time if self.latest is None else is_time & (token <= self.latest)
        banned |= (written == 0)[..., None] & ~allowed
        logits = jnp.where(banned | (token == self.first - 1), -jnp.inf, logits)
        # A timestamp is forced if all timestamps together are more probable than any other token.
        times = jax.nn.logsumexp(jnp.where(is_time, logits, -jnp.inf), axis=-1)
        others = jnp.max(jnp.where(is_time, -jnp.inf, logits), axis=-1)
        return jnp.where((times > others)[..., None] & ~is_time, -jnp.inf, logits)

    def _last(self, text: jax.Array, otherwise: jax.Array) -> jax.Array:
        """The last timestamp [B, T] in texts [B, T, N]; `otherwise` [B, T] without one."""
        place = jnp.where(text >= self.first, jnp.arange(text.shape[2]), NONE)
        if not text.shape[2]:
            return otherwise
        last = jnp.max(place, axis=2)
        found = jnp.take_along_axis(text, jnp.maximum(last, 0)[..., None], axis=2)[..., 0]
        return jnp.where(last == NONE, otherwise, found)
