"""Pads prompts to the few shapes that programs are compiled for."""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np


@dataclasses.dataclass(frozen=True)
class Batch:
    """Rows of one decode; rows beyond `rows` are padding and decode nothing."""

    tokens: np.ndarray  # [B, P] int32; audio input of speech models [B, P, M] float32
    length: np.ndarray  # [B] int32
    limit: np.ndarray  # [B] int32: new tokens
    index: np.ndarray  # [B] int32: position of the row in the data; seeds its key
    rows: int
    own: dict[str, tuple[np.ndarray, np.ndarray]] = dataclasses.field(default_factory=dict)
    """Prompts [B, P'] and lengths in the ids of models with another vocabulary, by model."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape that programs are compiled for: rows, and widths in each vocabulary."""
        return *self.tokens.shape, *(tokens.shape[1] for tokens, _ in self.own.values())


Prompt = list[int] | np.ndarray
"""Token ids, or audio input [P, M] float32."""


def make_batch(
    prompts: Sequence[Prompt], size: int, *, first: int, pad: int, bucket: int, limit: int
) -> Batch:
    """Pads ids, or audio or images, to [size, P, ...] with P a multiple of `bucket`."""
    rows = len(prompts)
    if _is_numbers(prompts):
        tokens, length = stack_numbers(prompts, size, bucket)
    else:
        tokens, length = pad_ids(prompts, size, pad, bucket)
    real = np.arange(size) < rows
    return Batch(
        tokens=tokens,
        length=length,
        limit=np.where(real, limit, 0).astype(np.int32),
        index=first + np.arange(size, dtype=np.int32),
        rows=rows,
    )


def round_up(count: float, bucket: int) -> int:
    """The first multiple of `bucket` from `count` on."""
    return int(-(-count // bucket)) * bucket


def _is_numbers(prompts: Sequence[Prompt]) -> TypeGuard[Sequence[np.ndarray]]:
    """Whether prompts, all of one kind, are audio or images."""
    return isinstance(prompts[0], np.ndarray)


def stack_numbers(
    prompts: Sequence[np.ndarray], size: int, bucket: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows [P, M] as [size, P', M] float32 with P' a multiple of `bucket`, and their length [size].

    A missing row is zeros, as long as the longest.
    """
    longest = max(len(row) for row in prompts)
    frames = np.zeros((size, round_up(longest, bucket), prompts[0].shape[1]), np.float32)
    length = np.full(size, longest, np.int32)
    for slot, row in enumerate(prompts):
        frames[slot, : len(row)], length[slot] = row, len(row)
    return frames, length


def pad_ids(
    ids: Sequence[Prompt], size: int, pad: int, bucket: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows as [size, P] int32 with P a multiple of `bucket`, and their length [size].

    A missing row is one token of padding.
    """
    longest = max(len(row) for row in ids)
    tokens = np.full((size, round_up(longest, bucket)), pad, np.int32)
    for slot, row in enumerate(ids):
        tokens[slot, : len(row)] = row
    return tokens, np.array([len(row) for row in ids] + [1] * (size - len(ids)), np.int32)


def pad_to_few_shapes(batches: Sequence[Batch], new_tokens: int, pad: int) -> list[Batch]:
    """Pads batches further, to as few shapes as possible (`choose_widths`).

    Prompts in another vocabulary are as wide as the longest of those that share a width.
    """
    widths = choose_widths([batch.tokens.shape[1] for batch in batches], new_tokens)
    chosen = [widths[bisect.bisect_left(widths, batch.tokens.shape[1])] for batch in batches]
    own: dict[tuple[str, int], int] = {}
    for batch, width in zip(batches, chosen, strict=True):
        for name, (tokens, _) in batch.own.items():
            own[name, width] = max(tokens.shape[1], own.get((name, width), 0))
    return [
        widen(batch, width, {name: own[name, width] for name in batch.own}, pad)
        for batch, width in zip(batches, chosen, strict=True)
    ]


def widen(batch: Batch, width: int, own: Mapping[str, int], pad: int) -> Batch:
    """The batch padded to prompts of `width` tokens, those in other vocabularies to `own`."""
    return dataclasses.replace(
        batch,
        tokens=_widen(batch.tokens, width, 0 if batch.tokens.ndim == 3 else pad),
        own={
            name: (_widen(tokens, own[name], 0), length)
            for name, (tokens, length) in batch.own.items()
        },
    )


def _widen(tokens: np.ndarray, width: int, pad: int) -> np.ndarray:
    """Rows [B, P, ...] padded to [B, width, ...]."""
    more = [(0, 0)] * tokens.ndim
    more[1] = 0, width - tokens.shape[1]
    return np.pad(tokens, more, constant_values=pad)


PADDING = 0.1
"""Most padding of all batches, as a share of their positions, prompts and new tokens."""

MOST_CANDIDATES = 512
"""Most candidate widths; with more distinct lengths every second, third, ... one is used."""


def choose_widths(
    lengths: Sequence[int], new_tokens: int, most: float = PADDING
) -> tuple[int, ...]:
    """The fewest widths, ascending, to which batches of these prompt lengths can be padded.

    Every batch is padded to the next width. The padding is at most `most` of the positions that the
    batches have without it: their prompts, and `new_tokens` each. A prompt position costs less than
    a new token, because one call reads all of them; so the share of time is smaller. Dynamic
    programming finds the choice of a given number of widths that pads least.
    """
    values, counts = np.unique(np.asarray(lengths), return_counts=True)
    step = -(-len(values) // MOST_CANDIDATES)
    places = np.arange(len(values) - 1, -1, -step)[::-1]  # always includes the longest
    padding = _padding(values, counts, places)
    allowed = most * float(counts @ (values + new_tokens))
    least, choices = padding[0], []
    while least[-1] > allowed and len(choices) < len(places) - 1:
        # [i, j]: the widths before end with candidate i, the next one is candidate j
        total = least[:, None] + padding[1:]
        choices.append(total.argmin(axis=0))
        least = total.min(axis=0)
    last, chosen = len(places) - 1, [len(places) - 1]
    for before in reversed(choices):
        last = int(before[last])
        chosen.append(last)
    return tuple(int(values[places[index]]) for index in reversed(chosen))


def _padding(values: np.ndarray, counts: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Padding [1 + C, C] of the lengths after one candidate, padded to another.

    Row 0 is of all lengths up to the candidate; infinite where the order is wrong.
    """
    number = np.concatenate([[0], np.cumsum(counts)])
    total = np.concatenate([[0], np.cumsum(counts * values)])
    ends = places + 1
    starts = np.concatenate([[0], ends])
    rows = number[ends] - number[starts][:, None]
    added = rows * values[places] - (total[ends] - total[starts][:, None])
    return np.where(rows > 0, added, np.inf)
