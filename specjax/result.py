"""Results of a generator's calls: streamed texts, and results that notebooks can show."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from specjax.data.batching import Prompt
from specjax.data.two_vocabularies import prompt_text
from specjax.decoding.state import Decoder, Generation
from specjax.decoding.summary import Statistics
from specjax.metrics.text import rounds_of_text

BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
"""A byte-fallback piece of SentencePiece."""

INCOMPLETE = "\ufffd"
"""The replacement character for invalid or incomplete characters."""

CLEANED = " .?!,'ntmsver"
"""Characters that a tokenizer's clean-up of spaces may replace: " n't" by "n't" and so on."""


def final_text(tokenizer: Any, ids: Sequence[int]) -> str:
    """The prefix of the text of ids [G] that further tokens cannot change.

    Held back are bytes at the end, which are decoded together with later ones, an unfinished
    character, and possible parts of a replacement if spaces are cleaned up.
    """
    text = _decode(tokenizer, _without_open_bytes(tokenizer, list(ids))).rstrip(INCOMPLETE)
    if getattr(tokenizer, "clean_up_tokenization_spaces", False):
        text = text.rstrip(CLEANED)
    return text


class Growing:
    """The pieces of one text."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer, self._given = tokenizer, 0

    def piece(self, ids: Sequence[int], *, last: bool) -> str:
        """The new part of the text of ids [G]; all of the rest for the `last` ids."""
        text = _decode(self._tokenizer, ids) if last else final_text(self._tokenizer, ids)
        new = text[self._given :]
        self._given += len(new)
        return new


def pieces(tokenizer: Any, outputs: Iterable[tuple[list[int], bool]]) -> Iterator[str | list[int]]:
    """The new piece of each of the `outputs` (ids so far, whether complete) of one text.

    Texts, or token ids without a tokenizer. Empty pieces are left out.
    """
    emitted, growing = 0, Growing(tokenizer)
    for ids, last in outputs:
        piece = ids[emitted:] if tokenizer is None else growing.piece(ids, last=last)
        if piece:
            yield piece
        emitted = len(ids)


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True)


def _without_open_bytes(tokenizer: Any, ids: list[int]) -> list[int]:
    """ids without trailing bytes; invisible special tokens do not separate bytes."""
    end, special = len(ids), set(tokenizer.all_special_ids)
    while end and (ids[end - 1] in special or _is_byte(tokenizer, ids[end - 1])):
        end -= 1
    return ids[:end]


def _is_byte(tokenizer: Any, token: int) -> bool:
    piece = tokenizer.convert_ids_to_tokens(token)
    return piece is not None and BYTE_PIECE.fullmatch(piece) is not None


SHOWN = 5
"""Number of texts that a notebook shows."""


@dataclasses.dataclass(frozen=True)
class FirstTexts:
    """The first texts of a call, read lazily from the device."""

    generation: Generation
    prompts: Sequence[Prompt]  # of its first rows, SHOWN at most
    decoder: Decoder
    tokenizer: Any

    def entries(self) -> list[dict[str, Any]]:
        """Each text's prompt (`source`) and its rounds, as in `texts` of results.json."""
        generation = jax.device_get(self.generation)
        return [
            {
                "source": self._source(prompt),
                "rounds": rounds_of_text(generation, row, self.decoder, self.tokenizer),
            }
            for row, prompt in enumerate(self.prompts)
        ]

    def _source(self, prompt: Prompt) -> str:
        is_audio = isinstance(prompt, np.ndarray)
        return "(audio)" if is_audio else prompt_text(self.tokenizer, prompt)


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """Outputs of one call by row; a notebook shows the writer of each token of the first texts."""

    tokens: list[list[int]]  # generated ids, EOS included
    texts: list[str] | None  # None without a tokenizer
    statistics: Statistics
    first: FirstTexts | None = dataclasses.field(default=None, compare=False)  # with a tokenizer
    logprobs: list[list[float]] | None = None  # of each generated id, in nats; None: not requested

    def row(self) -> dict[str, int | float]:
        """Figures of the call, flat: `pandas.DataFrame([result.row() for result in results])`."""
        statistics = self.statistics
        return {
            "texts": len(self.tokens),
            "tokens": statistics.tokens,
            "rounds": statistics.rounds,
            "drafted": statistics.drafted,
            "tested": statistics.tested,
            "accepted": statistics.accepted,
            "acceptance_rate": statistics.acceptance_rate,
            "tokens_per_target_call": statistics.tokens_per_target_call,
            **{f"calls_{part}": count for part, count in statistics.calls.items()},
        }

    def __repr__(self) -> str:
        statistics = self.statistics
        accepted = (
            f", {statistics.acceptance_rate:.1%} of drafts accepted" if statistics.tested else ""
        )
        return (
            f"Result({len(self.tokens)} texts, {statistics.tokens} tokens,"
            f" {statistics.tokens_per_target_call:.2f} per target call{accepted})"
        )

    def _repr_html_(self) -> str:
        from specjax.reporting.notebook import result_html

        entries = self.first.entries() if self.first else []
        return result_html(entries, len(self.tokens), self.row())
