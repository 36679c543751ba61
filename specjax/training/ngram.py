"""Fitting unigram and bigram tables from token sequences, and keeping them as safetensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from specjax.errors import UserError

SUCCESSORS = 64
FIELDS = ("unigram", "best", "ids", "counts", "smoothing")


def fit(
    sequences: Iterable[Sequence[int]],
    vocab_size: int,
    *,
    start_token: int | None = None,
    successors: int = SUCCESSORS,
    smoothing: float = 1e-3,
) -> dict[str, jnp.ndarray]:
    """Counts tokens and pairs of sequences; the tree that `drafting.ngram` reads.

    Args:
      sequences: token ids in [0, vocab_size), end-of-sequence token included.
      start_token: put before each sequence (decoder start of encoder-decoder models), so that
        first tokens have a context.
      successors: how many of the most frequent successors of a token are kept; rarer ones count
        as unseen. Ties go to the lower id.
      smoothing: delta of q = (n + delta) / (N + delta V).

    Raises:
      UserError: when there are no tokens or an id is outside the vocabulary.
    """
    head = [] if start_token is None else [start_token]
    pairs, singles = [], []
    for sequence in sequences:
        ids = np.asarray([*head, *sequence], np.int64)
        pairs.append(ids[:-1] * vocab_size + ids[1:])
        singles.append(ids[len(head) :])
    tokens = np.concatenate(singles) if singles else np.zeros(0, np.int64)
    if not tokens.size:
        raise UserError("n-gram table: the text to fit it from holds no tokens")
    if tokens.min() < 0 or tokens.max() >= vocab_size:
        raise UserError(
            f"n-gram table: token ids run from {tokens.min()} to {tokens.max()}, "
            f"the vocabulary has {vocab_size}"
        )
    unigram = np.bincount(tokens, minlength=vocab_size).astype(np.float64)
    law = (unigram + smoothing) / (unigram.sum() + smoothing * vocab_size)
    ids, counts = _top_successors(np.concatenate(pairs), vocab_size, successors)
    best = np.where(counts[:, 0] > 0, ids[:, 0], unigram.argmax())
    return {
        "unigram": jnp.asarray(np.log(law), jnp.float32),
        "best": jnp.asarray(best, jnp.int32),
        "ids": jnp.asarray(ids, jnp.int32),
        "counts": jnp.asarray(counts, jnp.float32),
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


def _top_successors(
    pairs: np.ndarray, vocab_size: int, successors: int
) -> tuple[np.ndarray, np.ndarray]:
    code, count = np.unique(pairs, return_counts=True)
    previous, following = np.divmod(code, vocab_size)
    order = np.lexsort((following, -count, previous))
    previous, following, count = previous[order], following[order], count[order]
    # Position of each pair within its context: distance to the context's first pair.
    rank = np.arange(previous.size) - np.searchsorted(previous, previous)
    width = max(1, min(successors, int(rank.max(initial=0)) + 1))
    kept = rank < width
    ids = np.full((vocab_size, width), vocab_size, np.int64)
    counts = np.zeros((vocab_size, width))
    ids[previous[kept], rank[kept]] = following[kept]
    counts[previous[kept], rank[kept]] = count[kept]
    return ids, counts


def save(table: dict[str, jnp.ndarray], file: str | Path) -> None:
    """Writes a table as one safetensors file, complete or not at all."""
    file = Path(file)
    partial = file.with_name(file.name + ".partial")
    save_file({name: np.asarray(table[name]) for name in FIELDS}, partial)
    partial.replace(file)


def load(file: str | Path, vocab_size: int) -> dict[str, jnp.ndarray]:
    """Reads a table written by `save`.

    Raises:
      UserError: when the file is missing, damaged, or made for another vocabulary.
    """
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
