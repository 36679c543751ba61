"""Suffix array of earlier texts, for drafters that search them.

Manber and Myers, "Suffix Arrays" (1993): ranks of prefixes of doubling length
(docs/methods/suffix.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from specjax.checks import check_integer
from specjax.contracts.rows import NOT_A_TOKEN
from specjax.models.base import LanguageModel
from specjax.runtime.errors import UserError

CAPACITY = 2**18
"""Tokens that a corpus holds by default: 2 MB on the device."""

DEPTH = 64
"""Tokens that suffixes are sorted by; ties keep the order of the texts."""


class Corpus:
    """A table of the newest texts of token ids in a model's output format.

    `table` always has `capacity` tokens, so that a decode compiles once. Each text takes one more
    token than its length, and for an encoder-decoder model also its decoder prefix, which marks the
    beginning of a text.
    """

    def __init__(self, model: LanguageModel, capacity: int = CAPACITY) -> None:
        check_integer("capacity", capacity, 16)
        self._head = model.info.first_prefix
        self._vocab_size, self._capacity = model.info.vocab_size, capacity
        self._texts: list[np.ndarray] = []

    def add(self, texts: Iterable[Sequence[int]]) -> None:
        """Adds texts of ids, the oldest first; of a text that is too long only its end.

        For a decoder-only model a text is best a prompt followed by its output.

        Raises:
          UserError: when an id is outside of the vocabulary.
        """
        added = [np.asarray([*self._head, *text], np.int32) for text in texts]
        for text in added:
            if text.size and not 0 <= text.min() <= text.max() < self._vocab_size:
                raise UserError(
                    f"texts has ids from {text.min()} to {text.max()}; they must be from 0 to"
                    f" {self._vocab_size - 1:,}, the vocabulary"
                )
        self._texts = self._newest([*self._texts, *(text for text in added if text.size)])

    def __len__(self) -> int:
        """Number of texts in the table."""
        return len(self._texts)

    def table(self) -> dict[str, jax.Array]:
        """The tree that `drafting.suffix` reads: tokens and order, [capacity] int32 each."""
        tokens = np.full(self._capacity, NOT_A_TOKEN, np.int32)
        at = 1
        for text in self._texts:
            tokens[at : at + text.size] = text
            at += text.size + 1
        return {"tokens": jnp.asarray(tokens), "order": jnp.asarray(order(tokens), jnp.int32)}

    def _newest(self, texts: list[np.ndarray]) -> list[np.ndarray]:
        """The last texts that fit, with a gap before and after each."""
        kept, room = [], self._capacity - 1
        for text in reversed(texts):
            if text.size >= room:
                break
            kept.append(text)
            room -= text.size + 1
        if texts and not kept:
            kept.append(texts[-1][2 - self._capacity :])
        return kept[::-1]


def shapes(capacity: int) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and dtypes of the table of a corpus of that capacity."""
    leaf = jax.ShapeDtypeStruct((capacity,), jnp.int32)
    return {"tokens": leaf, "order": leaf}


def order(tokens: np.ndarray) -> np.ndarray:
    """Start positions [N] of the suffixes of tokens [N], sorted by their first DEPTH tokens.

    The end of the array counts as before every token.
    """
    rank, known = np.unique(tokens, return_inverse=True)[1], 1
    while known < DEPTH and rank.max(initial=0) < tokens.size - 1:
        behind = np.zeros_like(rank)
        behind[:-known] = rank[known:] + 1
        pairs = rank * np.int64(tokens.size + 1) + behind
        rank, known = np.unique(pairs, return_inverse=True)[1], 2 * known
    return np.argsort(rank, kind="stable")
