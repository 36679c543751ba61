"""Perplexity and accuracy of n-gram tables on held-out text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from specjax.drafting.ngram import Table, bigram_logits
from specjax.runtime.errors import UserError

LAW_ENTRIES = 1 << 24
"""Most probabilities in memory at once: 64 MiB."""


def predict_tokens(
    table: Table, sequences: Iterable[Sequence[int]], start_token: int | None
) -> dict[str, float | int]:
    """Perplexities and accuracy over all tokens that have one before them, `start_token` included.

    `unigram_perplexity` and `bigram_perplexity` are exp of the mean negative log probability (nats)
    under the distributions that drafters draw from; `bigram_accuracy` is the share that a greedy
    bigram drafter names after the right token.

    Raises:
      UserError: when there is no such token.
    """
    head = [] if start_token is None else [start_token]
    wholes = [np.asarray([*head, *sequence], np.int32) for sequence in sequences]
    previous = np.concatenate([ids[:-1] for ids in wholes])
    following = np.concatenate([ids[1:] for ids in wholes])
    if not following.size:
        raise UserError("the held-out rows have no two tokens in a row; hold out more of them")
    bigram = _bigram_log_probs(table, previous, following)
    unigram = np.asarray(table["unigram"], np.float64)[following]
    named = np.asarray(table["best"])[previous]
    return {
        "tokens": following.size,
        "unigram_perplexity": math.exp(-unigram.mean()),
        "bigram_perplexity": math.exp(-bigram.mean()),
        "bigram_accuracy": float((named == following).mean()),
    }


def _bigram_log_probs(table: Table, previous: np.ndarray, following: np.ndarray) -> np.ndarray:
    """Log probability [N] of each token after the one before it, a few distributions at a time."""
    size = max(1, min(previous.size, LAW_ENTRIES // table["unigram"].shape[0]))
    padding = -previous.size % size  # one shape, one program
    pairs = np.pad([previous, following], ((0, 0), (0, padding))).reshape(2, -1, size)
    chunks = [_pick_log_probs(table, *chunk) for chunk in pairs.swapaxes(0, 1)]
    return np.concatenate(chunks)[: previous.size].astype(np.float64)


@jax.jit
def _pick_log_probs(table: Table, previous: jax.Array, following: jax.Array) -> jax.Array:
    distribution = bigram_logits(table, previous)
    return jnp.take_along_axis(distribution, following[:, None], axis=1)[:, 0]
