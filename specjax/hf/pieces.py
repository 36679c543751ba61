"""The text of every token of a tokenizer, in one form for all kinds of tokenizers.

Vocabularies write one text in different ways: sentencepiece marks a space (`▁the`), byte-level
tokenizers write bytes as letters (`Ġthe`), byte fallback names single bytes (`<0x0A>`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

Piece = bytes | str
"""UTF-8 text, of which a token may be a part of a letter; of a special token its name."""

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")

_PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
"""Bytes that byte-level vocabularies write as the letter of that number, others as 256 and on."""


def pieces(tokenizer: Any) -> dict[int, Piece]:
    """The text of each id of a fast tokenizer, ids of byte fallback last.

    So of two tokens with the same text the tokenizer's own choice comes first.
    """
    added = tokenizer.added_tokens_decoder
    read, fallback = _find_reader(tokenizer.backend_tokenizer.decoder)
    plain: dict[int, Piece] = {}
    single: dict[int, Piece] = {}
    for piece, token in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1]):
        byte = _BYTE.fullmatch(piece) if fallback else None
        if token in added:
            plain[token] = piece if added[token].special else piece.encode()
        elif byte:
            single[token] = bytes.fromhex(byte[1])
        else:
            plain[token] = read(piece)
    return plain | single


def _find_reader(decoder: Any) -> tuple[Callable[[str], bytes], bool]:
    """What makes text of a piece, as the tokenizer's decoder does, and whether bytes fall back."""
    steps = list(_steps(json.loads(decoder.__getstate__()))) if decoder else []
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds:
        return _of_letters, False
    marks = [step["replacement"] for step in steps if step["type"] == "Metaspace"]
    marks += [step["pattern"]["String"] for step in steps if _makes_spaces(step)]

    def read(piece: str) -> bytes:
        for mark in marks:
            piece = piece.replace(mark, " ")
        return piece.encode()

    return read, "ByteFallback" in kinds


def _steps(decoder: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for step in decoder.get("decoders", (decoder,)):
        yield from (step,) if step is decoder else _steps(step)


def _makes_spaces(step: dict[str, Any]) -> bool:
    replaces = step["type"] == "Replace" and step["content"] == " "
    return replaces and "String" in step["pattern"]


def _letters() -> dict[str, int]:
    others = (byte for byte in range(256) if byte not in _PRINTED)
    return {chr(byte): byte for byte in _PRINTED} | {
        chr(256 + place): byte for place, byte in enumerate(others)
    }


_LETTERS = _letters()


def _of_letters(piece: str) -> bytes:
    return b"".join(
        bytes([_LETTERS[letter]]) if letter in _LETTERS else letter.encode() for letter in piece
    )
