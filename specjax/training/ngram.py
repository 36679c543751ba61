"""Fits unigram and bigram tables to token sequences; saves them as safetensors."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from specjax.runtime.errors import UserError
from specjax.runtime.files import check_regular

SUCCESSORS = 64
SMOOTHING = 1e-3
FIELDS = ("unigram", "best", "ids", "counts", "smoothing")


CHUNK = 1 << 20
"""Tokens that are counted at once."""


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts of tokens and of pairs of adjacent tokens."""

    unigram: np.ndarray  # [V] int64
    pairs: np.ndarray  # [D] int64, ascending: V * token + the token after it
    times: np.ndarray  # [D] int64: of each pair
    sequences: int

    @property
    def tokens(self) -> int:
        """All tokens counted."""
        return int(self.unigram.sum())


def fit(
    sequences: Iterable[Sequence[int]],
    vocab_size: int,
    *,
    start_token: int | None = None,
    successors: int = SUCCESSORS,
    smoothing: float = SMOOTHING,
) -> dict[str, jnp.ndarray]:
    """Counts tokens and pairs of sequences; the tree that `drafting.ngram` reads.

    Args as those of `count` and `tabulate`.

    Raises:
      UserError: when there are no tokens or an id is outside the vocabulary.
    """
    counts = count(sequences, vocab_size, start_token=start_token)
    return tabulate(counts, successors=successors, smoothing=smoothing)


def count(
    sequences: Iterable[Sequence[int]],
    vocab_size: int,
    *,
    start_token: int | None = None,
    chunk: int = CHUNK,
) -> Counts:
    """Counts tokens and pairs; holds `chunk` tokens and, at its peak, 90 bytes per distinct pair.

    Args:
      sequences: token ids in [0, vocab_size), end-of-sequence token included.
      start_token: put before each sequence (decoder start of encoder-decoder models), so that
        first tokens have a context.
      chunk: how many tokens are counted at once; does not change the result.

    Raises:
      UserError: when there are no tokens or an id is outside the vocabulary.
    """
    head = [] if start_token is None else [start_token]
    unigram = np.zeros(vocab_size, np.int64)
    runs: list[tuple[np.ndarray, np.ndarray]] = []
    number = 0
    for rows in _chunks(sequences, chunk):
        number += len(rows)
        tokens = np.concatenate(rows)
        _check_ids(tokens, vocab_size)
        unigram += np.bincount(tokens, minlength=vocab_size)
        wholes = [np.concatenate([head, row]).astype(np.int64) for row in rows]
        pairs = np.concatenate([ids[:-1] * vocab_size + ids[1:] for ids in wholes])
        runs.append(np.unique(pairs, return_counts=True))
        # Merging only runs of similar size sorts each pair a logarithmic number of times.
        while len(runs) > 1 and 2 * runs[-1][0].size >= runs[-2][0].size:
            runs[-2:] = [_merge(runs[-2:])]
    if not unigram.any():
        raise UserError("n-gram table: the text to fit it from holds no tokens")
    return Counts(unigram, *_merge(runs), number)


def _chunks(sequences: Iterable[Sequence[int]], size: int) -> Iterator[list[np.ndarray]]:
    """Lists of sequences of at least `size` tokens in total, except the last list."""
    rows, held = [], 0
    for sequence in sequences:
        rows.append(np.asarray(sequence, np.int64))
        held += rows[-1].size
        if held >= size:
            yield rows
            rows, held = [], 0
    if rows:
        yield rows


def _check_ids(tokens: np.ndarray, vocab_size: int) -> None:
    if tokens.size and (tokens.min() < 0 or tokens.max() >= vocab_size):
        raise UserError(
            f"n-gram table: token ids run from {tokens.min()} to {tokens.max()}, "
            f"the vocabulary has {vocab_size}"
        )


def _merge(runs: Sequence[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Distinct pairs of several runs, and their counts added up."""
    pairs, times = (np.concatenate(side) for side in zip(*runs, strict=True))
    order = np.argsort(pairs, kind="stable")
    pairs, times = pairs[order], times[order]
    first = np.flatnonzero(np.diff(pairs, prepend=-1))
    # reduceat has no sum over no pairs: texts of one token without a start token.
    return pairs[first], np.add.reduceat(times, first) if first.size else times


def tabulate(
    counts: Counts, *, successors: int = SUCCESSORS, smoothing: float = SMOOTHING
) -> dict[str, jnp.ndarray]:
    """The tree that `drafting.ngram` reads.

    Args:
      successors: how many of the most frequent successors of a token are kept; rarer ones count
        as unseen. Ties go to the lower id.
      smoothing: delta of q = (n + delta) / (N + delta V).
    """
    vocab_size = counts.unigram.size
    unigram = counts.unigram.astype(np.float64)
    distribution = (unigram + smoothing) / (unigram.sum() + smoothing * vocab_size)
    ids, times = _top_successors(counts, successors)
    best = np.where(times[:, 0] > 0, ids[:, 0], unigram.argmax())
    return {
        "unigram": jnp.asarray(np.log(distribution), jnp.float32),
        "best": jnp.asarray(best, jnp.int32),
        "ids": jnp.asarray(ids, jnp.int32),
        "counts": jnp.asarray(times, jnp.float32),
        "smoothing": jnp.float32(smoothing),
    }


def shapes(vocab_size: int, successors: int = SUCCESSORS) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and dtypes of a table with that many successors per token."""
    per_token = (vocab_size, successors)
    return {
        "unigram": jax.ShapeDtypeStruct((vocab_size,), jnp.float32),
        "best": jax.ShapeDtypeStruct((vocab_size,), jnp.int32),
        "ids": jax.ShapeDtypeStruct(per_token, jnp.int32),
        "counts": jax.ShapeDtypeStruct(per_token, jnp.float32),
        "smoothing": jax.ShapeDtypeStruct((), jnp.float32),
    }


def _top_successors(counts: Counts, successors: int) -> tuple[np.ndarray, np.ndarray]:
    vocab_size = counts.unigram.size
    previous, following = np.divmod(counts.pairs, vocab_size)
    order = np.lexsort((following, -counts.times, previous))
    previous, following, times = previous[order], following[order], counts.times[order]
    # Position of each pair within its context: distance to the context's first pair.
    rank = np.arange(previous.size) - np.searchsorted(previous, previous)
    width = max(1, min(successors, int(rank.max(initial=0)) + 1))
    kept = rank < width
    ids = np.full((vocab_size, width), vocab_size, np.int64)
    table = np.zeros((vocab_size, width))
    ids[previous[kept], rank[kept]] = following[kept]
    table[previous[kept], rank[kept]] = times[kept]
    return ids, table


def save(table: dict[str, jnp.ndarray], file: str | Path) -> None:
    """Writes a table atomically as one safetensors file."""
    file = Path(file)
    partial = file.with_name(file.name + ".partial")
    save_file({name: np.asarray(table[name]) for name in FIELDS}, partial)
    partial.replace(file)


def load(file: str | Path, vocab_size: int) -> dict[str, jnp.ndarray]:
    """Reads a table written by `save`, or a JSON file for `load_greedy`.

    Raises:
      UserError: when the file is missing, damaged, or made for another vocabulary.
    """
    check_regular(file)
    if str(file).endswith(".json"):
        return load_greedy(file, vocab_size)
    try:
        table = load_file(file)
    except (OSError, SafetensorError) as error:
        raise UserError(f"n-gram table {str(file)!r} cannot be read: {error}") from None
    missing = [name for name in FIELDS if name not in table]
    if missing:
        raise UserError(f"n-gram table {str(file)!r} lacks {', '.join(missing)}")
    if table["unigram"].shape != (vocab_size,):
        raise UserError(
            f"n-gram table {str(file)!r} has a vocabulary of {table['unigram'].shape[0]}, "
            f"the target has {vocab_size}"
        )
    return {name: jnp.asarray(table[name]) for name in FIELDS}


def load_greedy(file: str | Path, vocab_size: int) -> dict[str, jnp.ndarray]:
    """Reads a list of the most probable successor of every id (Chen et al. 2024).

    The table counts every pair once and all ids equally often. Ids beyond the list are followed by
    0, like unseen ids in the published lists.

    Raises:
      UserError: when the file cannot be read or is no such list.
    """
    try:
        listed = json.loads(Path(file).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"n-gram table {str(file)!r} cannot be read: {error}") from None
    known = isinstance(listed, list) and all(
        isinstance(token, int) and 0 <= token < vocab_size for token in listed
    )
    if not known or len(listed) > vocab_size:
        raise UserError(
            f"n-gram table {str(file)!r} is no list of at most {vocab_size} ids from 0 to"
            f" {vocab_size - 1}, the target's vocabulary"
        )
    is_listed = np.arange(vocab_size) < len(listed)
    best = np.zeros(vocab_size, np.int64)
    best[is_listed] = listed
    return {
        "unigram": jnp.full(vocab_size, -np.log(vocab_size), jnp.float32),
        "best": jnp.asarray(best, jnp.int32),
        "ids": jnp.asarray(np.where(is_listed, best, vocab_size)[:, None], jnp.int32),
        "counts": jnp.asarray(is_listed[:, None], jnp.float32),
        "smoothing": jnp.float32(SMOOTHING),
    }


def narrow(table: dict[str, jnp.ndarray], vocab_size: int) -> dict[str, jnp.ndarray]:
    """The table of the first `vocab_size` ids, as if fitted for these alone.

    Vocabularies are padded to round numbers; a decode works on the ids that all its models have
    (`models.vocabularies`).

    Raises:
      UserError: when one of the other ids was seen.
    """
    whole = table["unigram"].shape[0]
    ids = np.asarray(table["ids"])
    beyond = ids[(ids >= vocab_size) & (ids < whole)]
    if beyond.size:
        raise UserError(
            f"n-gram table: id {beyond.min()} was seen, and the smallest vocabulary of the models"
            f" has {vocab_size}"
        )
    distribution = np.asarray(table["unigram"], np.float64)[:vocab_size]
    return {
        "unigram": jnp.asarray(distribution - np.log(np.exp(distribution).sum()), jnp.float32),
        "best": table["best"][:vocab_size],
        "ids": jnp.minimum(table["ids"][:vocab_size], vocab_size),
        "counts": table["counts"][:vocab_size],
        "smoothing": table["smoothing"],
    }
