"""The slots of a batch, from the host: which prompts they hold, and the rows that have ended."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.batching.requests import Entry, Feed, Refusal
from specjax.decoding.filling import Rows, advance_until, fill, make_slots, take
from specjax.decoding.parts import PART, Parts, can_read_in_parts, open_parts, read_part
from specjax.decoding.state import Decoder, Generation, State

SHARE = 16
"""Of so many slots one is refilled at a time, by default: few programs, and few idle slots."""

WAITING_ROUNDS = 8
"""Rounds between two looks for prompts, while slots are free and the feed has none."""

READING_ROUNDS = 4
"""Rounds between two parts of a long prompt."""

MakeRows = Callable[[Sequence[Entry], int], tuple[Rows, int | None]]
"""Rows of entries padded to a number, and the bound of their lengths (`LanguageModel.start`)."""


@dataclasses.dataclass(frozen=True)
class EndedRows:
    """Rows that ended, with their prompts; arrays are on the host when they are handed out.

    The trace's counts over all rows (`rounds`, `most`) are those since the rows before. Times are
    seconds of `time.perf_counter`.
    """

    entries: list[Entry]
    generation: Generation
    first_rounds: list[int]  # the round in which each row began
    start_times: list[float]  # when reading its prompt began
    first_token_times: list[float]  # when its first token was there, estimated
    end_time: float  # when the host saw that they had ended


@dataclasses.dataclass
class _Slot:
    """What a slot holds."""

    entry: Entry
    first_round: int
    start_time: float
    fill_time: float  # when its prompt was read
    first_token_time: float = 0.0


@dataclasses.dataclass
class _LongPrompt:
    """A prompt of which the first `read` tokens are in `parts`."""

    entry: Entry
    rows: Rows
    parts: Parts
    start_time: float
    read: int = 0


class Slots:
    """B slots that take prompts from a feed until it ends.

    `together` prompts are read in one call, when so many slots are free. With `eager`, rows are
    handed out as soon as they end, else when their slots are needed. A prompt of more than `part`
    tokens is read in parts, between which the other rows go on, if the models can.
    """

    def __init__(
        self,
        decoder: Decoder,
        params: dict[str, Any],
        make_rows: MakeRows,
        size: int,
        *,
        together: int = 0,
        eager: bool = False,
        part: int = PART,
    ) -> None:
        self.decoder, self.params, self.make_rows, self.size = decoder, params, make_rows, size
        self.together = count_together(decoder.row_ways, size, together)
        self.eager = eager
        self.part = part if can_read_in_parts(decoder) else 0
        self._long: deque[Entry] = deque()
        self._reading: _LongPrompt | None = None
        self._held: list[_Slot | None] = [None] * size
        self._rounds = 0
        self._counted = 0, np.zeros((), np.int32)
        rows, _ = make_rows([], self.together)
        self._state: State = make_slots(decoder, params, rows, size)

    @property
    def free(self) -> list[int]:
        """The slots that hold no prompt."""
        return [place for place, slot in enumerate(self._held) if slot is None]

    @property
    def busy(self) -> bool:
        """Whether any slot holds a prompt, or waits for a long one."""
        return any(self._held) or self._long_count > 0

    @property
    def _long_count(self) -> int:
        """The number of long prompts that have no slot yet; a free one is kept for each."""
        return len(self._long) + (self._reading is not None)

    def warm_up(self, bounds: Sequence[int | None] = (None,), *, in_parts: bool = False) -> None:
        """Compiles the programs by running each of them without prompts.

        `bounds` are those of the lengths of prompts that are read whole; with `in_parts` others are
        read in parts.
        """
        rows, _ = self.make_rows([], self.together)
        nowhere = jnp.full((self.together,), self.size, jnp.int32)
        for longest in bounds:
            given = self.decoder, self.params, self._state, rows, nowhere
            self._state = fill(*given, longest, None)  # as `_begin` calls it
        if in_parts:
            self._warm_up_parts()
        limits = jnp.int32(1), jnp.int32(0)
        self._state = advance_until(self.decoder, self.params, self._state, *limits)
        take(self.decoder, self._state, jnp.zeros_like(nowhere))

    def _warm_up_parts(self) -> None:
        rows, _ = self.make_rows([], count_together(self.decoder.row_ways, 1))
        parts = open_parts(self.decoder, self.params, rows.prompt, rows.length)
        given = self.decoder, self.params, parts, rows.prompt, rows.length
        parts = read_part(*given, jnp.int32(0), self.part)
        nowhere = jnp.full(rows.length.shape, self.size, jnp.int32)
        self._state = fill(self.decoder, self.params, self._state, rows, nowhere, None, parts)

    def run(self, feed: Feed) -> Iterator[EndedRows | Refusal]:
        """Decodes the prompts of a feed; rows and refusals in the order in which they are known.

        The rows of one turn are copied to the host while the device runs the next one.
        """
        ended: list[EndedRows] = []
        while True:
            refusals = self._refill(feed, wait=False)
            if self.busy:
                self._read_on()
                self._advance(feed)
            yield from map(self._fetch, ended)
            yield from refusals
            ended = []
            if self.busy:
                ended = self._take_ended()
            elif feed.ended:
                return
            else:
                yield from self._refill(feed, wait=True)

    def _refill(self, feed: Feed, *, wait: bool) -> list[Refusal]:
        """Begins prompts in free slots, a group at a time; waits for the first group only."""
        refusals: list[Refusal] = []
        while len(self.free) - self._long_count >= self.together and not feed.ended:
            given = feed.take(self.together, wait=wait)
            refusals += [one for one in given if isinstance(one, Refusal)]
            entries = [one for one in given if isinstance(one, Entry)]
            self._long += filter(self._is_long, entries)
            if short := list(itertools.filterfalse(self._is_long, entries)):
                self._begin(short, *self.make_rows(short, self.together))
            if wait or len(given) < self.together:
                break
        return refusals

    def _is_long(self, entry: Entry) -> bool:
        return 0 < self.part < len(entry.ids)

    def _read_on(self) -> None:
        """Reads the next part of a long prompt; after the last one its row begins."""
        if self._reading is None and self._long:
            entry = self._long.popleft()
            rows, _ = self.make_rows([entry], count_together(self.decoder.row_ways, 1))
            parts = open_parts(self.decoder, self.params, rows.prompt, rows.length)
            self._reading = _LongPrompt(entry, rows, parts, time.perf_counter())
        if self._reading is None:
            return
        one = self._reading
        given = self.decoder, self.params, one.parts, one.rows.prompt, one.rows.length
        one.parts = read_part(*given, jnp.int32(one.read), self.part)
        one.read += self.part
        if one.read >= len(one.entry.ids):
            self._reading = None
            self._begin([one.entry], one.rows, None, one)

    def _begin(
        self,
        entries: list[Entry],
        rows: Rows,
        longest: int | None,
        long: _LongPrompt | None = None,
    ) -> None:
        """Puts rows into free slots; reads their prompts unless that of a `long` one was read."""
        places = self.free[: len(entries)]
        where = places + [self.size] * (len(rows.length) - len(places))
        given = self.decoder, self.params, self._state, rows, jnp.array(where, jnp.int32)
        self._state = fill(*given, longest, long.parts if long else None)
        now = time.perf_counter()
        for place, entry in zip(places, entries, strict=True):
            start = long.start_time if long else now
            self._held[place] = _Slot(entry, self._rounds, start, now)

    def _advance(self, feed: Feed) -> None:
        """Runs rounds until slots are needed, or rows are to be handed out."""
        ready = len(self.free) - self._long_count
        ends, rounds = self.together - ready, self.decoder.max_new_tokens
        if self.eager:
            ends = 1
        elif feed.ended:
            ends = self.size
        if ready and not feed.ended:
            rounds = WAITING_ROUNDS
        if self._long_count:
            rounds = READING_ROUNDS
        limits = jnp.int32(max(ends, 1)), jnp.int32(rounds)
        self._state = advance_until(self.decoder, self.params, self._state, *limits)

    def _take_ended(self) -> list[EndedRows]:
        """Frees the slots of rows that have ended, and copies the rows; waits for the device."""
        active, rounds = jax.device_get((self._state.context.active, self._state.trace.rounds))
        now = time.perf_counter()
        self._estimate_first_tokens(int(rounds), now)
        self._rounds = int(rounds)
        ended = [place for place, slot in enumerate(self._held) if slot and not active[place]]
        starts = range(0, len(ended), self.together)
        return [self._take(ended[start : start + self.together], now) for start in starts]

    def _estimate_first_tokens(self, rounds: int, now: float) -> None:
        """Estimates when the rows that began since the last look had their first token.

        It was written by the first of their rounds so far, which counts as long as the others.
        """
        ran = max(rounds - self._rounds, 1)
        for slot in self._held:
            if slot and slot.first_round == self._rounds:
                slot.first_token_time = slot.fill_time + (now - slot.fill_time) / ran

    def _take(self, places: list[int], now: float) -> EndedRows:
        """Frees slots, and copies their rows on the device."""
        padded = places + places[:1] * (self.together - len(places))
        generation = take(self.decoder, self._state, jnp.array(padded, jnp.int32))
        slots = [slot for place in places if (slot := self._held[place])]
        for place in places:
            self._held[place] = None
        return EndedRows(
            [slot.entry for slot in slots],
            generation,
            [slot.first_round for slot in slots],
            [slot.start_time for slot in slots],
            [slot.first_token_time for slot in slots],
            now,
        )

    def _fetch(self, ended: EndedRows) -> EndedRows:
        """The rows on the host, their rounds counted from their first."""
        whole, count = jax.device_get(ended.generation), len(ended.entries)
        cut = jax.tree.map(lambda x: x[:count] if np.ndim(x) else x, whole.replace(trace=None))
        trace, (rounds, most) = whole.trace, self._counted
        self._counted = int(trace.rounds), trace.most

        def turn(record: np.ndarray) -> np.ndarray:
            size = record.shape[1]
            rows = zip(record[:count], ended.first_rounds, strict=True)
            return np.stack([np.roll(row, -(first % size), axis=0) for row, first in rows])

        trace = trace.replace(
            rounds=trace.rounds - rounds,
            most=trace.most - most,
            numbers=turn(trace.numbers),
            overlap=turn(trace.overlap),
            drafts=turn(trace.drafts),
            written_by=trace.written_by[:count],
            logprobs=None if trace.logprobs is None else trace.logprobs[:count],
        )
        return dataclasses.replace(ended, generation=cut.replace(trace=trace))


def count_together(ways: int, slots: int, wanted: int = 0) -> int:
    """How many prompts are read in one call: `wanted` (0: few), a multiple of the rows' `ways`."""
    return -(-(wanted or max(1, slots // SHARE)) // ways) * ways
