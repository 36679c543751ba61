"""Grain input pipeline of training: length-grouped, shuffled, endless, a function of the step."""

from __future__ import annotations

import abc
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar, overload

import grain.python as grain
import numpy as np

from specjax.data.batching import round_up

Ids = Sequence[int] | np.ndarray
"""Token ids; a prompt may also be encoder states [S, D]."""

TokenPair = tuple[Ids, Ids]
"""Ids of a prompt and of the output to learn, the output with its EOS."""

Row = TypeVar("Row", covariant=True)


class Rows(Sequence[Row]):
    """A sequence that creates a row when it is indexed."""

    @abc.abstractmethod
    def row(self, index: int) -> Row:
        """The row of an index."""

    @overload
    def __getitem__(self, index: int) -> Row: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Row]: ...

    def __getitem__(self, index: int | slice) -> Row | Sequence[Row]:
        if isinstance(index, slice):
            return [self.row(place) for place in range(*index.indices(len(self)))]
        return self.row(index)


class RaggedRows(Rows[np.ndarray]):
    """Rows of int32 ids, each of its own length."""

    def __init__(self, rows: Iterable[Ids]) -> None:
        parts, lengths = [np.zeros(0, np.int32)], []
        for row in rows:
            parts.append(np.asarray(row, np.int32))
            lengths.append(len(row))
        self._flat = np.concatenate(parts)
        self._start = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self._start) - 1

    def row(self, index: int) -> np.ndarray:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self._flat[self._start[index] : self._start[index + 1]]


class Pairs(Rows[TokenPair]):
    """Prompts and outputs side by side."""

    def __init__(self, prompts: Sequence[Ids], outputs: Sequence[Ids]) -> None:
        if len(prompts) != len(outputs):
            raise ValueError(f"there are {len(prompts)} prompts and {len(outputs)} outputs")
        self.prompts, self.outputs = prompts, outputs

    def __len__(self) -> int:
        return len(self.prompts)

    def row(self, index: int) -> TokenPair:
        return self.prompts[index], self.outputs[index]


Arrays = dict[str, np.ndarray]

STATES = 2
"""Axes of a prompt that is encoder states."""

STATE_WIDTHS = 8
"""Numbers of encoder states that batches are padded to, where prompts have several."""

ENDLESS = 2**40
"""An upper bound on the steps of any run."""


class Batches:
    """Batches of rows of similar length, reshuffled every epoch, as a function of the step.

    Both sides are padded to few widths (`fit_widths`), so that few shapes are compiled. Rows that
    do not fill a batch are left out of an epoch at random. Decoder-only models (`start_token` None)
    see prompt and output as one row and learn the output, or with `learn_prompt` all of it. Outputs
    begin with `forced` tokens that are not learned.
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
        learn_prompt: bool = False,
        forced: int = 0,
    ) -> None:
        self._forced = forced
        self._pairs, self._batch_size, self._bucket, self._seed = pairs, batch_size, bucket, seed
        self._start_token, self._pad, self._learn_prompt = start_token, pad, learn_prompt
        self.per_epoch = len(pairs) // batch_size
        self._fit = functools.partial(
            fit_widths, bucket=bucket, start_token=start_token, states=count_states(pairs)
        )
        self._lengths = count_lengths(pairs)
        lengths, place = np.unique(self._lengths, axis=0, return_inverse=True)
        self._widths = np.array([self._fit(row[None]) for row in lengths])[place.ravel()]
        self._order = functools.lru_cache(maxsize=2)(self._shuffle_rows)

    def _shuffle_rows(self, epoch: int) -> np.ndarray:
        """Rows [batches, batch_size] of an epoch."""
        rng = np.random.default_rng((self._seed, epoch))
        rows = rng.permutation(len(self._pairs))[: self.per_epoch * self._batch_size]
        prompt, output = self._widths[rows].T
        longer = np.maximum(prompt, output)
        rows = rows[np.lexsort((prompt, output, longer))]
        return rng.permutation(rows.reshape(self.per_epoch, self._batch_size))

    def __getitem__(self, step: int) -> Arrays:
        """The batch of a step."""
        return self.part(step, None)

    def part(self, step: int, share: np.ndarray | None) -> Arrays:
        """This process's share of a step's batch (all rows without a share), at its full width."""
        epoch, index = divmod(step, self.per_epoch)
        chosen = self._order(epoch)[index]
        widths = self._fit(self._lengths[chosen])
        rows = [self._pairs[row] for row in (chosen if share is None else chosen[share])]
        given = self._start_token, self._pad, self._learn_prompt
        return pad_batch(rows, self._bucket, *given, forced=self._forced, widths=widths)

    def since(self, step: int, share: np.ndarray | None = None) -> Iterator[Arrays]:
        """Batches from a step on, or a share of the rows of each, read ahead in the background."""
        return read_ahead(self, step, share=share)


class Mixture:
    """Batches of several streams; each step's stream is drawn by weight."""

    def __init__(
        self, streams: Mapping[str, Batches], weights: Mapping[str, float], steps: int, seed: int
    ) -> None:
        names = list(streams)
        probabilities = np.array([weights[name] for name in names], np.float64)
        drawn = np.random.default_rng((seed, 1)).choice(
            len(names), steps, p=probabilities / probabilities.sum()
        )
        self._streams = streams
        self.kinds = [names[i] for i in drawn]  # of every step
        self._place = np.zeros(steps, np.int64)  # of a step within its stream
        for index in range(len(names)):
            row_mask = drawn == index
            self._place[row_mask] = np.arange(row_mask.sum())

    def __getitem__(self, step: int) -> Arrays:
        """The batch of a step."""
        return self.part(step, None)

    def part(self, step: int, share: np.ndarray | None) -> Arrays:
        """This process's share of a step's batch; all rows without a share."""
        return self._streams[self.kinds[step]].part(int(self._place[step]), share)

    def since(self, step: int, share: np.ndarray | None = None) -> Iterator[Arrays]:
        """Batches from a step to the last one, or a share of each, read ahead in the background."""
        return read_ahead(self, step, len(self.kinds), share)


def read_ahead(
    batches: Batches | Mixture, first: int, last: int = ENDLESS, share: np.ndarray | None = None
) -> Iterator[Arrays]:
    """Batches of the steps `first` to `last` - 1, or a share of each, made by threads."""
    made = functools.partial(batches.part, share=share)
    return iter(grain.MapDataset.range(first, last).map(made).to_iter_dataset())


def pad_batch(
    rows: Sequence[TokenPair],
    bucket: int,
    start_token: int | None,
    pad: int,
    learn_prompt: bool = False,
    forced: int = 0,
    widths: Widths | None = None,
) -> Arrays:
    """Arrays of one batch for `LanguageModel.teach` and the objectives.

    `prompt` [B, P] and `prompt_length`; `inputs` [B, T], what the decoder reads, with `length`;
    `labels` [B, T], the next tokens, where `mask`. `widths` are P and T; None: what the rows need.
    A prompt may be an array [S, D]. The first `forced` tokens of an output are read and not
    learned.
    """
    if start_token is None:
        whole = [([*prompt, *output], len(prompt)) for prompt, output in rows]
    else:
        whole = [([start_token, *output], 1 + forced) for _, output in rows]
    if widths is None:
        widths = fit_widths(count_lengths(rows), bucket, start_token, count_states(rows))
    tokens = pad_rows([ids for ids, _ in whole], widths.output + 1, pad)
    length = np.array([len(ids) - 1 for ids, _ in whole], np.int32)
    first = np.array([0 if learn_prompt else begin - 1 for _, begin in whole], np.int32)
    place = np.arange(widths.output)
    return {
        "prompt": _pad_prompts([prompt for prompt, _ in rows], widths.prompt, pad),
        "prompt_length": np.array([len(prompt) for prompt, _ in rows], np.int32),
        "inputs": tokens[:, :-1],
        "length": length,
        "labels": tokens[:, 1:],
        "mask": (place >= first[:, None]) & (place < length[:, None]),
    }


class Widths(NamedTuple):
    """To what the sides of a batch are padded."""

    prompt: int  # P, or S of encoder states
    output: int  # T; of a decoder-only model that of both as one row, as P


def fit_widths(
    lengths: np.ndarray, bucket: int, start_token: int | None, states: int = 0
) -> Widths:
    """The widths of a batch of rows of `lengths` [B, 2], of prompts and outputs.

    Both are the multiple of `bucket` that the longest needs, T halved as long as outputs fit and it
    is no less than `bucket`. Where prompts are encoder states, of which the longest of all rows has
    `states`, S is a multiple of an eighth of that.
    """
    prompt, output = (int(length) for length in lengths.max(axis=0))
    if start_token is None:
        width = round_up(int(lengths.sum(axis=1).max()) - 1, bucket)
        return Widths(width, width)
    if states:
        step = -(-states // STATE_WIDTHS)
        return Widths(min(round_up(prompt, step), states), round_up(output, bucket))
    width = half = round_up(max(prompt, output), bucket)
    while -(-half // 2) >= max(output, bucket):
        half = -(-half // 2)
    return Widths(width, half)


def count_lengths(pairs: Iterable[TokenPair]) -> np.ndarray:
    """Lengths [N, 2] of prompts and outputs."""
    return np.array([(len(prompt), len(output)) for prompt, output in pairs])


def count_states(pairs: Sequence[TokenPair]) -> int:
    """The states of the longest prompt; 0: prompts are token ids."""
    if not len(pairs) or not is_states(pairs[0][0]):
        return 0
    return max(len(prompt) for prompt, _ in pairs)


def is_states(prompt: Ids) -> bool:
    """Whether a prompt is not token ids but encoder states [S, D]."""
    return isinstance(prompt, np.ndarray) and prompt.ndim == STATES


def _pad_prompts(prompts: Sequence[Ids], width: int, pad: int) -> np.ndarray:
    """Prompts as one array: ids [B, width], or states [B, width, D] float32."""
    if not is_states(prompts[0]):
        return pad_rows(prompts, width, pad)
    made = np.zeros((len(prompts), width, np.shape(prompts[0])[1]), np.float32)
    for index, prompt in enumerate(prompts):
        made[index, : len(prompt)] = prompt
    return made


def pad_rows(rows: Sequence[Ids], width: int, pad: int) -> np.ndarray:
    """Rows [B, width] of ids, padded at the end."""
    made = np.full((len(rows), width), pad, np.int32)
    for index, row in enumerate(rows):
        made[index, : len(row)] = row
    return made
