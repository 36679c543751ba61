"""Strings that end a text, independent of token boundaries.

Aho and Corasick, "Efficient string matching" (1975), over the bytes of UTF-8.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from specjax.contracts import fields
from specjax.contracts.registry import PROCESSORS
from specjax.contracts.stopping import ByteMoves, Stops, TokenTexts

MOST_BYTES = 512
"""Most bytes of all strings together, the most states of the automaton."""


@PROCESSORS.register("stop_strings", example={"stop_strings": ("\n\n", "Question:")})
@dataclasses.dataclass(frozen=True)
class StopStrings:
    """Ends the text with the token that completes one of these strings; the text keeps it."""

    stop_strings: tuple[str, ...] = fields.listing(
        f"a list of texts of at most {MOST_BYTES} bytes together, none of them empty",
        lambda x: isinstance(x, str) and 0 < len(x.encode()) <= MOST_BYTES,
        help="the text ends with the token that completes one of these",
    )

    off: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        fields.check(self)
        size = sum(len(text.encode()) for text in self.stop_strings)
        if size > MOST_BYTES:
            raise ValueError(
                f"stop_strings have {size} bytes together; they must have at most {MOST_BYTES}"
            )

    def stops(self, pieces: Mapping[int, bytes | str], vocabulary: int) -> Stops:
        """The automaton over a vocabulary with these pieces of text; other tokens have none."""
        moves, accepts = build_automaton([text.encode() for text in self.stop_strings])
        texts = list_texts(pieces, vocabulary)
        following, completes = run_over_tokens(moves, accepts, texts)
        both = 2 * following + completes
        kinds, kind = np.unique(both, axis=1, return_inverse=True)
        return Stops(
            jnp.asarray(kind.reshape(-1), jnp.int32),
            jnp.asarray(kinds // 2, jnp.int32),
            jnp.asarray(kinds % 2 == 1),
        )


def list_texts(pieces: Mapping[int, bytes | str], vocabulary: int) -> list[bytes]:
    """The text of every token of a vocabulary with these pieces; other tokens have none."""
    texts = [b""] * vocabulary
    for token, piece in pieces.items():
        if token < vocabulary:
            texts[token] = piece.encode() if isinstance(piece, str) else piece
    return texts


def make_token_texts(pieces: Mapping[int, bytes | str], vocabulary: int) -> TokenTexts:
    """The texts of a vocabulary with these pieces, for stop strings of single rows."""
    texts = list_texts(pieces, vocabulary)
    content = np.frombuffer(b"".join(texts) or b"\0", np.uint8)
    starts = np.cumsum([0, *map(len, texts)])
    return TokenTexts(jnp.asarray(content), jnp.asarray(starts, jnp.int32))


def make_byte_moves(rows: Sequence[Sequence[str]]) -> ByteMoves:
    """The automaton of each row's stop strings, in one shape for any of them."""
    following = np.zeros((len(rows), MOST_BYTES + 1, 256), np.int16)
    completes = np.zeros(following.shape[:2], bool)
    for place, strings in enumerate(rows):
        moves, accepts = build_automaton([text.encode() for text in strings])
        following[place, : len(moves)] = moves
        completes[place, : len(moves)] = accepts
    longest = [max((len(text.encode()) for text in strings), default=0) for strings in rows]
    return ByteMoves(*map(jnp.asarray, (following, completes, np.array(longest, np.int32))))


def build_automaton(words: Sequence[bytes]) -> tuple[np.ndarray, np.ndarray]:
    """Transitions [S, 256] by bytes and final states [S] of the automaton, starting in 0."""
    children: list[dict[int, int]] = [{}]
    ends = [False]
    for word in words:
        state = 0
        for byte in word:
            if byte not in children[state]:
                children[state][byte] = len(children)
                children.append({})
                ends.append(False)
            state = children[state][byte]
        ends[state] = True
    moves = np.zeros((len(children), 256), np.int32)
    accepts = np.array(ends)
    # Breadth first: a state falls back to a shorter one, whose transitions are known.
    level = [(child, 0) for child in children[0].values()]
    moves[0, list(children[0])] = list(children[0].values())
    while level:
        deeper = []
        for state, fallback in level:
            accepts[state] |= accepts[fallback]
            moves[state] = moves[fallback]
            for byte, child in children[state].items():
                deeper.append((child, int(moves[fallback, byte])))
                moves[state, byte] = child
        level = deeper
    return moves, accepts


def run_over_tokens(
    moves: np.ndarray, accepts: np.ndarray, texts: Sequence[bytes]
) -> tuple[np.ndarray, np.ndarray]:
    """The state [S, V] after each token's text, and whether a string ended within it."""
    length = np.array([len(text) for text in texts])
    state = np.repeat(np.arange(len(moves))[:, None], len(texts), axis=1)
    ended = np.zeros(state.shape, bool)
    for place in range(length.max(initial=0)):
        here = np.flatnonzero(length > place)
        byte = np.array([texts[token][place] for token in here.tolist()])
        state[:, here] = moves[state[:, here], byte]
        ended[:, here] |= accepts[state[:, here]]
    return state, ended
