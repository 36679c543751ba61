"""What was said before a window of speech, as the text that its own is conditioned on.

Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2023), section 2.3:
previous text stands before the start token, after a token that says so.
"""

from __future__ import annotations

import numpy as np

from specjax.errors import UserError
from specjax.models.base import LanguageModel
from specjax.models.whisper import Whisper


class Previous:
    """The text of each audio so far, and whether its next window is conditioned on it."""

    def __init__(self, model: Whisper, audios: int) -> None:
        self._mark, self._width = model.config.speech.previous, width_of(model)
        self._pad = model.info.pad
        self._texts: list[list[int]] = [[] for _ in range(audios)]
        self._used = [True] * audios

    def add(self, audio: int, tokens: list[int]) -> None:
        """Appends what was said in a window."""
        self._texts[audio] += tokens

    def use(self, audio: int, used: bool) -> None:
        """Says whether the next window of an audio is conditioned."""
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


def width_of(model: Whisper) -> int:
    """Most tokens of previous text, its mark included: half of the decoder's positions."""
    return model.config.max_positions // 2


def check_previous(model: LanguageModel, max_new_tokens: int) -> None:
    """Refuses a model that has no token for it, or no positions.

    Raises:
      UserError: naming the setting.
    """
    setting = "condition_on_prev_tokens is True"
    if not isinstance(model, Whisper) or model.config.speech.previous is None:
        raise UserError(f"{setting}; the model has no token for previous text (prev_sot_token_id)")
    begun = len(model.info.prefix) + width_of(model)
    most = model.config.max_positions - begun
    if max_new_tokens > most:
        raise UserError(
            f"{setting} and max_new_tokens {max_new_tokens}; after {begun} tokens of previous text"
            f" and prefix the model has positions for {most}"
        )
