"""Text as it grows: what of it no later token changes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

BYTE_PIECE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
"""A byte of a character that has no piece of its own (SentencePiece)."""

INCOMPLETE = "\ufffd"
"""What decoders put for bytes that are no character, or not yet one."""

CLEANED = " .?!,'ntmsver"
"""All characters of what a tokenizer that cleans up spaces replaces: " n't" by "n't" and so on."""


def final_text(tokenizer: Any, ids: Sequence[int]) -> str:
    """The beginning of the text of ids [G] that the texts of all longer outputs share.

    Held back are bytes at the end, which are decoded together with those that follow, an unfinished
    character, and where spaces are cleaned up what may be part of a replacement.
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
        """What is new in the text of ids [G]; all that is left if they are the `last`."""
        text = _decode(self._tokenizer, ids) if last else final_text(self._tokenizer, ids)
        new = text[self._given :]
        self._given += len(new)
        return new


def pieces(tokenizer: Any, outputs: Iterable[tuple[list[int], bool]]) -> Iterator[str | list[int]]:
    """What is new in each of the `outputs` of one text: (ids so far, whether they are all).

    Texts; token ids without a tokenizer. What is empty is left out.
    """
    seen, growing = 0, Growing(tokenizer)
    for ids, last in outputs:
        piece = ids[seen:] if tokenizer is None else growing.piece(ids, last=last)
        if piece:
            yield piece
        seen = len(ids)


def _decode(tokenizer: Any, ids: Sequence[int]) -> str:
    return tokenizer.decode(ids, skip_special_tokens=True)


def _without_open_bytes(tokenizer: Any, ids: list[int]) -> list[int]:
    """ids up to the bytes at their end; special tokens, which are not shown, do not part bytes."""
    end, special = len(ids), set(tokenizer.all_special_ids)
    while end and (ids[end - 1] in special or _is_byte(tokenizer, ids[end - 1])):
        end -= 1
    return ids[:end]


def _is_byte(tokenizer: Any, token: int) -> bool:
    piece = tokenizer.convert_ids_to_tokens(token)
    return piece is not None and BYTE_PIECE.fullmatch(piece) is not None
