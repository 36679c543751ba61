"""Pads the prompts of free slots to the shapes of a batch that never drains."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from specjax.batching.requests import Entry
from specjax.contracts.stopping import ByteMoves, RowStops, TokenTexts
from specjax.data.batching import Batch, Prompt, round_up, widen
from specjax.decoding.filling import Rows
from specjax.hf.pieces import pieces
from specjax.loading import LoadedModel
from specjax.logits.stop_strings import make_byte_moves, make_token_texts
from specjax.models.shapes import make_placeholder_prompts
from specjax.prompts import Prompts, prompt_positions

HALVINGS = 3
"""How often the widths of reading halve: prompts are read in W, W / 2, ... positions."""

OWN_SHARE = 2
"""Tokens in another vocabulary for each position of W; of longer prompts only the end is read."""

Arguments = Callable[[Batch, jax.Array], tuple[Any, ...]]
"""The arguments of `decoding.loop.begin` for a batch and its keys, after decoder and parameters."""


@dataclasses.dataclass(frozen=True)
class StopMaker:
    """Makes the stop strings of rows that may have their own."""

    target: LoadedModel
    shared: tuple[str, ...]  # of entries without their own

    def __call__(self, entries: Sequence[Entry], size: int) -> RowStops | None:
        """The stop strings of entries, padded to `size` rows; None without a tokenizer."""
        if self.target.tokenizer is None:
            return None
        given = [entry.stop_strings for entry in entries]
        rows = [self.shared if strings is None else strings for strings in given]
        return RowStops(self._texts, _make_moves((*rows, *[()] * (size - len(rows)))))

    @functools.cached_property
    def _texts(self) -> TokenTexts:
        return make_token_texts(pieces(self.target.tokenizer), self.target.model.info.vocab_size)


@functools.lru_cache(maxsize=8)
def _make_moves(rows: tuple[tuple[str, ...], ...]) -> ByteMoves:
    """Those of rows that often have the same strings, or none, one group after another."""
    return make_byte_moves(rows)


@dataclasses.dataclass(frozen=True)
class RowMaker:
    """Makes the rows of entries, all of prompts of at most `width` tokens.

    Without `stops` no entry may have stop strings of its own.
    """

    prompts: Prompts
    arguments: Arguments
    width: int
    stops: StopMaker | None = None

    def __call__(self, entries: Sequence[Entry], size: int) -> tuple[Rows, int | None]:
        """The entries' rows, padded to `size`, and the bound of their lengths if it is smaller."""
        ids = [entry.ids for entry in entries] or [self._placeholder()]
        own_most = OWN_SHARE * self.width
        batch = self.prompts.batch(ids, size, own_most=own_most)
        empty = [0] * (size - len(entries))
        batch = dataclasses.replace(
            batch,
            limit=np.array([entry.limit for entry in entries] + empty, np.int32),
            index=np.array([entry.index for entry in entries] + empty, np.int32),
            rows=len(entries),
        )
        longest = int(batch.length.max())
        if not self.prompts.has_one_size:
            batch = widen(batch, self.width, dict.fromkeys(batch.own, own_most), self.prompts.pad)
        keys = make_keys([entry.seed for entry in entries] + empty, batch.index)
        rows = Rows(*self.arguments(batch, keys))
        if self.stops:
            options = rows.options.replace(stops=self.stops(entries, size))
            rows = rows.replace(options=options)
        return rows, self._bound(longest)

    def _bound(self, longest: int) -> int | None:
        """The fewest positions that are read for prompts of up to `longest` tokens; None: all."""
        return list_bounds(self.prompts, self.width, longest, longest)[0]

    def _placeholder(self) -> Prompt:
        made = np.asarray(make_placeholder_prompts(self.prompts.input, 1, 1))[0]
        return made if self.prompts.input else made.tolist()


def list_bounds(prompts: Prompts, width: int, shortest: int, longest: int) -> list[int | None]:
    """The bounds below W that groups of prompts of these lengths are read with; None is W."""
    halves = (width / 2**halving for halving in range(HALVINGS, 0, -1))
    bounds = dict.fromkeys(round_up(half, prompts.bucket or 1) for half in halves)
    known = [] if prompts.has_one_size else [bound for bound in bounds if bound < width]
    fitting = [bound for bound in known if bound >= shortest]
    enough = next((n for n, bound in enumerate(fitting) if bound >= longest), None)
    return [*fitting, None] if enough is None else list(fitting[: enough + 1])


def find_width(prompts: Prompts, ids: Sequence[Prompt] | None = None) -> int:
    """The width of slots for prompts: of `ids` the longest, else any that are allowed."""
    bucket = prompts.bucket or 1
    if ids is not None:
        return round_up(max(map(len, ids)), bucket)
    if prompts.input and not prompts.has_one_size:
        return round_up(prompts.input.count, bucket)
    longest = prompts.max_prompt_tokens
    for name, model in prompts.models.items():
        most = prompt_positions(model, prompts.decoder.max_new_tokens)
        if most is not None and name not in prompts.own:
            longest = min(longest, most)
    return round_up(max(longest, 1), bucket)


def make_keys(seeds: Sequence[int], index: np.ndarray) -> jax.Array:
    """One key for each row [N], from its seed and its index in the data."""
    if len(set(seeds)) == 1:
        return fold_each(jax.random.key(seeds[0]), index)
    keys = [fold_each(jax.random.key(seed), index[n : n + 1]) for n, seed in enumerate(seeds)]
    return jax.numpy.concatenate(keys)


@jax.jit
def fold_each(key: jax.Array, index: jax.Array) -> jax.Array:
    """The key folded with each index [N], [N]."""
    return jax.vmap(lambda i: jax.random.fold_in(key, i))(index)
