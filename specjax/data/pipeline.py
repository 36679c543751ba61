"""Grain input pipeline of training: length-grouped, shuffled, endless, decided by the step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import grain.python as grain
import numpy as np

TokenPair = tuple[Sequence[int], Sequence[int]]
"""Ids of a prompt and of the output to learn, the output with its EOS."""

Arrays = dict[str, np.ndarray]


class Batches:
    """Batches of similar length, the one of each step decided by the seed.

    Both sides are padded to the multiple of `bucket` that the longest row needs, so that few shapes
    are compiled. Rows that do not fill a batch are left out. Decoder-only models (`start_token`
    None) see prompt and output as one row and learn the output.
    """

    def __init__(
        self,
        pairs: Sequence[TokenPair],
        *,
        batch_size: int,
        bucket: int,
        seed: int,
        start_token: int | None,
        pad: int,
    ) -> None:
        order = np.random.default_rng(seed).permutation(len(pairs))
        order = sorted(order, key=lambda i: max(map(len, pairs[i])))
        count = len(pairs) // batch_size
        groups = [order[g * batch_size : (g + 1) * batch_size] for g in range(count)]

        def padded(group: Sequence[int]) -> Arrays:
            return pad_batch([pairs[i] for i in group], bucket, start_token, pad)

        self.per_epoch = count
        self._dataset = grain.MapDataset.source(groups).seed(seed).shuffle().repeat().map(padded)

    def __getitem__(self, step: int) -> Arrays:
        """The batch of a step."""
        return self._dataset[step]

    def since(self, step: int) -> Iterator[Arrays]:
        """Batches from a step on, read ahead in the background."""
        return iter(self._dataset[step:].to_iter_dataset())


def pad_batch(rows: Sequence[TokenPair], bucket: int, start_token: int | None, pad: int) -> Arrays:
    """Arrays of one batch, as `LanguageModel.teach` and the objectives read them.

    `prompt` [B, P] and `prompt_length`; `inputs` [B, T], what the decoder reads, with `length`;
    `labels` [B, T], what it should say next, where `mask`.
    """
    if start_token is None:
        whole = [([*prompt, *output], len(prompt)) for prompt, output in rows]
    else:
        whole = [([start_token, *output], 1) for _, output in rows]
    longest = max(len(ids) - 1 for ids, _ in whole)
    if start_token is not None:
        longest = max(longest, *(len(prompt) for prompt, _ in rows))
    width = -(-longest // bucket) * bucket
    tokens = padded_rows([ids for ids, _ in whole], width + 1, pad)
    length = np.array([len(ids) - 1 for ids, _ in whole], np.int32)
    first = np.array([begin - 1 for _, begin in whole], np.int32)
    place = np.arange(width)
    return {
        "prompt": padded_rows([prompt for prompt, _ in rows], width, pad),
        "prompt_length": np.array([len(prompt) for prompt, _ in rows], np.int32),
        "inputs": tokens[:, :-1],
        "length": length,
        "labels": tokens[:, 1:],
        "mask": (place >= first[:, None]) & (place < length[:, None]),
    }


def padded_rows(rows: Sequence[Sequence[int]], width: int, pad: int) -> np.ndarray:
    """Rows [B, width] of ids, padded behind."""
    made = np.full((len(rows), width), pad, np.int32)
    for index, row in enumerate(rows):
        made[index, : len(row)] = row
    return made
