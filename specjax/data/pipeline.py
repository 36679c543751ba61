"""Grain input pipeline of sequence-to-sequence training: length-grouped, shuffled, repeated."""

from __future__ import annotations

from collections.abc import Sequence

import grain.python as grain
import numpy as np

TokenPair = tuple[Sequence[int], Sequence[int]]
"""Source ids and target ids, each with its EOS."""


def training_batches(
    pairs: Sequence[TokenPair],
    *,
    batch_size: int,
    bucket: int,
    seed: int,
    start_token: int,
    pad: int,
) -> grain.IterDataset:
    """Endless batches of similar length, in an order that the seed decides.

    Both sides of a batch are padded to the multiple of `bucket` that its longest row needs, so
    that few shapes are compiled. Rows that do not fill a batch are left out.
    """
    order = np.random.default_rng(seed).permutation(len(pairs))
    order = sorted(order, key=lambda i: max(map(len, pairs[i])))
    count = len(pairs) // batch_size
    groups = [order[g * batch_size : (g + 1) * batch_size] for g in range(count)]

    def padded(group: Sequence[int]) -> dict[str, np.ndarray]:
        return pad_batch([pairs[i] for i in group], bucket, start_token, pad)

    dataset = grain.MapDataset.source(groups).seed(seed).shuffle().repeat().map(padded)
    return dataset.to_iter_dataset()


def pad_batch(
    rows: Sequence[TokenPair], bucket: int, start_token: int, pad: int
) -> dict[str, np.ndarray]:
    """Arrays of one batch: source, its lengths, decoder inputs, labels and their mask."""
    longest = max(max(map(len, row)) for row in rows)
    width = -(-longest // bucket) * bucket
    source = np.full((len(rows), width), pad, np.int32)
    labels = np.full((len(rows), width), pad, np.int32)
    mask = np.zeros((len(rows), width), bool)
    for index, (ids, target) in enumerate(rows):
        source[index, : len(ids)] = ids
        labels[index, : len(target)] = target
        mask[index, : len(target)] = True
    inputs = np.concatenate(
        [np.full((len(rows), 1), start_token, np.int32), labels[:, :-1]], axis=1
    )
    return {
        "source": source,
        "source_length": np.array([len(ids) for ids, _ in rows], np.int32),
        "inputs": inputs,
        "labels": labels,
        "mask": mask,
    }
