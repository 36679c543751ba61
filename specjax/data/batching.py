"""Padding token rows into the few shapes that programs are compiled for."""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows of one decode; rows beyond `rows` are padding and decode nothing."""

    tokens: np.ndarray  # [B, P] int32
    length: np.ndarray  # [B] int32
    limit: np.ndarray  # [B] int32: new tokens
    index: np.ndarray  # [B] int32: position of the row in the data; seeds its key
    rows: int


def make_batch(
    ids: list[list[int]], size: int, *, first: int, pad: int, bucket: int, limit: int
) -> Batch:
    """Pads ids to [size, P] with P a multiple of `bucket`."""
    rows = len(ids)
    longest = max(len(row) for row in ids)
    width = -(-longest // bucket) * bucket
    tokens = np.full((size, width), pad, np.int32)
    for slot, row in enumerate(ids):
        tokens[slot, : len(row)] = row
    real = np.arange(size) < rows
    length = np.array([len(row) for row in ids] + [1] * (size - rows), np.int32)
    return Batch(
        tokens=tokens,
        length=length,
        limit=np.where(real, limit, 0).astype(np.int32),
        index=first + np.arange(size, dtype=np.int32),
        rows=rows,
    )
