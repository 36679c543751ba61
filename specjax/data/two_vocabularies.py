"""Tokenizers of two vocabularies, one of prompts and one of texts: some of Marian's.

`vocab.json` and `source.spm` are the prompts', `target_vocab.json` and `target.spm` the texts'.
transformers decodes ids of texts, and reads texts that are given as `text_target`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def has_two(tokenizer: Any) -> bool:
    """Whether prompts and texts have separate vocabularies."""
    return bool(getattr(tokenizer, "separate_vocabs", False))


def text_vocabulary(tokenizer: Any) -> dict[str, int]:
    """Ids of the pieces that a model writes; those of prompts are `get_vocab()`."""
    return dict(tokenizer.target_encoder) if has_two(tokenizer) else tokenizer.get_vocab()


def text_ids(tokenizer: Any, texts: Sequence[str], *, special: bool = True) -> list[list[int]]:
    """Ids of texts as a model writes them, with what the tokenizer appends if `special`."""
    words = {"text_target" if has_two(tokenizer) else "text": list(texts)}
    return tokenizer(**words, add_special_tokens=special, return_attention_mask=False).input_ids


def prompt_text(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of a prompt's ids, without special tokens."""
    if not has_two(tokenizer):
        return tokenizer.decode(ids, skip_special_tokens=True)
    special = set(tokenizer.all_special_ids)
    pieces = {token: piece for piece, token in tokenizer.encoder.items()}
    return tokenizer.spm_source.decode_pieces([pieces[t] for t in ids if t not in special])
