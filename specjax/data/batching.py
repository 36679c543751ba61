"""Padding prompts into the few shapes that programs are compiled for."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from specjax.data.widths import fewest_widths


@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows of one decode; rows beyond `rows` are padding and decode nothing."""

    tokens: np.ndarray  # [B, P] int32; of models that listen what they hear, [B, P, M] float32
    length: np.ndarray  # [B] int32
    limit: np.ndarray  # [B] int32: new tokens
    index: np.ndarray  # [B] int32: position of the row in the data; seeds its key
    rows: int
    own: dict[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=dict)
    """By the models with another vocabulary: the prompts in their ids [B, P'], and their length."""

    @property
    def shape(self) -> tuple[int, ...]:
        """What a program is compiled for: rows, and how wide every spelling of the prompts is."""
        return *self.tokens.shape, *(tokens.shape[1] for tokens, _ in self.own.values())


Prompt = list[int] | np.ndarray
"""Token ids, or what a model hears, [P, M] float32."""


def make_batch(
    prompts: Sequence[Prompt], size: int, *, first: int, pad: int, bucket: int, limit: int
) -> Batch:
    """Pads ids to [size, P] with P a multiple of `bucket`; what is heard has one length."""
    rows = len(prompts)
    if _heard(prompts):
        tokens, length = stacked(prompts, size)
    else:
        tokens, length = padded(prompts, size, pad, bucket)
    real = np.arange(size) < rows
    return Batch(
        tokens=tokens,
        length=length,
        limit=np.where(real, limit, 0).astype(np.int32),
        index=first + np.arange(size, dtype=np.int32),
        rows=rows,
    )


def _heard(prompts: Sequence[Prompt]) -> TypeGuard[Sequence[np.ndarray]]:
    """Whether prompts, all of one kind, are what a model hears."""
    return isinstance(prompts[0], np.ndarray)


def stacked(heard: Sequence[np.ndarray], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows [P, M] as [size, P, M] float32, and their length [size]; a missing row is silence."""
    shape = heard[0].shape
    frames = np.zeros((size, *shape), np.float32)
    frames[: len(heard)] = heard
    return frames, np.full(size, shape[0], np.int32)


def padded(
    ids: Sequence[Prompt], size: int, pad: int, bucket: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows as [size, P] int32 with P a multiple of `bucket`, and their length [size].

    A missing row is one token of padding.
    """
    longest = max(len(row) for row in ids)
    tokens = np.full((size, -(-longest // bucket) * bucket), pad, np.int32)
    for slot, row in enumerate(ids):
        tokens[slot, : len(row)] = row
    return tokens, np.array([len(row) for row in ids] + [1] * (size - len(ids)), np.int32)


def with_few_shapes(batches: Sequence[Batch], new_tokens: int, pad: int) -> list[Batch]:
    """The batches, padded on to as few shapes as little padding allows (`fewest_widths`).

    Prompts in another vocabulary are as wide as the longest of those that share a width.
    """
    widths = fewest_widths([batch.tokens.shape[1] for batch in batches], new_tokens)
    chosen = [widths[bisect.bisect_left(widths, batch.tokens.shape[1])] for batch in batches]
    own: dict[tuple[str, int], int] = {}
    for batch, width in zip(batches, chosen, strict=True):
        for name, (tokens, _) in batch.own.items():
            own[name, width] = max(tokens.shape[1], own.get((name, width), 0))
    return [
        dataclasses.replace(
            batch,
            tokens=_widened(batch.tokens, width, pad),
            own={
                name: (_widened(tokens, own[name, width], 0), length)
                for name, (tokens, length) in batch.own.items()
            },
        )
        for batch, width in zip(batches, chosen, strict=True)
    ]


def _widened(tokens: np.ndarray, width: int, pad: int) -> np.ndarray:
    """Rows [B, P, ...] padded on to [B, width, ...]."""
    more = [(0, 0)] * tokens.ndim
    more[1] = 0, width - tokens.shape[1]
    return np.pad(tokens, more, constant_values=pad)
