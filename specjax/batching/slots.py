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

from specjax.batching.requests import Entry, Feed, Refused
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
class Ended:
    """Rows that ended, with their prompts; arrays are on the host.

    The trace's counts over all rows (`rounds`, `most`) are those since the rows before.
    """

    entries: list[Entry]
    generation: Generation
    first: list[int]  # the round in which each row began
    begun: list[float]  # seconds of `time.perf_counter` when reading each row's prompt began
    first_token: list[float]  # and when its first token was there, estimated
    at: float  # and when they had ended


@dataclasses.dataclass
class _Reading:
    """A long prompt of which the first `at` tokens were read."""

    entry: Entry
    rows: Rows
    parts: Parts
    begun: float  # seconds of `time.perf_counter`
    at: int = 0


@dataclasses.dataclass
class _Taken:
    """Rows on the device that a slot held."""

    slots: list[int]
    entries: list[Entry]
    first: list[int]  # the round in which each began
    begun: list[float]
    first_token: list[float]
    generation: Generation
    at: float


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
        self.together = count_together(decoder, size, together)
        self.eager = eager
        self.part = part if can_read_in_parts(decoder) else 0
        self._long: deque[Entry] = deque()
        self._reading: _Reading | None = None
        self._held: list[Entry | None] = [None] * size
        self._first = [0] * size
        self._begun = [0.0] * size
        self._filled, self._first_token = [0.0] * size, [0.0] * size
        self._rounds = 0
        self._counted = 0, np.zeros((), np.int32)
        rows, _ = make_rows([], self.together)
        self._state: State = make_slots(decoder, params, rows, size)

    @property
    def free(self) -> list[int]:
        """The slots that hold no prompt."""
        return [slot for slot, entry in enumerate(self._held) if entry is None]

    @property
    def busy(self) -> bool:
        """Whether any slot holds a prompt, or is promised to one."""
        return any(self._held) or self._promised > 0

    @property
    def _promised(self) -> int:
        """How many free slots long prompts wait for."""
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
        rows, _ = self.make_rows([], count_together(self.decoder, 1))
        parts = open_parts(self.decoder, self.params, rows.prompt, rows.length)
        given = self.decoder, self.params, parts, rows.prompt, rows.length
        parts = read_part(*given, jnp.int32(0), self.part)
        nowhere = jnp.full(rows.length.shape, self.size, jnp.int32)
        self._state = fill(self.decoder, self.params, self._state, rows, nowhere, None, parts)

    def run(self, feed: Feed) -> Iterator[Ended | Refused]:
        """Decodes the prompts of a feed; rows and refusals in the order in which they are known.

        The rows of one turn are copied to the host while the device runs the next one.
        """
        taken: list[_Taken] = []
        while True:
            refused = self._refill(feed, wait=False)
            if self.busy:
                self._read_on()
                self._advance(feed)
            yield from map(self._hand_out, taken)
            yield from refused
            taken = []
            if self.busy:
                taken = self._take_ended()
            elif feed.ended:
                return
            else:
                yield from self._refill(feed, wait=True)

    def _refill(self, feed: Feed, *, wait: bool) -> list[Refused]:
        """Begins prompts in free slots, a group at a time."""
        refused: list[Refused] = []
        while len(self.free) - self._promised >= self.together and not feed.ended:
            given = feed.take(self.together, wait=wait)
            refused += [one for one in given if isinstance(one, Refused)]
            entries = [one for one in given if isinstance(one, Entry)]
            self._long += filter(self._is_long, entries)
            if short := list(itertools.filterfalse(self._is_long, entries)):
                self._begin(short, *self.make_rows(short, self.together))
            if len(given) < self.together:
                break
        return refused

    def _is_long(self, entry: Entry) -> bool:
        return 0 < self.part < len(entry.ids)

    def _read_on(self) -> None:
        """Reads the next part of a long prompt; after the last one its row begins."""
        if self._reading is None and self._long:
            entry = self._long.popleft()
            rows, _ = self.make_rows([entry], count_together(self.decoder, 1))
            parts = open_parts(self.decoder, self.params, rows.prompt, rows.length)
            self._reading = _Reading(entry, rows, parts, time.perf_counter())
        if self._reading is None:
            return
        one = self._reading
        given = self.decoder, self.params, one.parts, one.rows.prompt, one.rows.length
        one.parts = read_part(*given, jnp.int32(one.at), self.part)
        one.at += self.part
        if one.at >= len(one.entry.ids):
            self._reading = None
            self._begin([one.entry], one.rows, None, one)

    def _begin(
        self, entries: list[Entry], rows: Rows, longest: int | None, read: _Reading | None = None
    ) -> None:
        """Puts rows into free slots; reads their prompts unless `read` has one in parts."""
        slots = self.free[: len(entries)]
        where = slots + [self.size] * (len(rows.length) - len(slots))
        given = self.decoder, self.params, self._state, rows, jnp.array(where, jnp.int32)
        self._state = fill(*given, longest, read.parts if read else None)
        now = time.perf_counter()
        for slot, entry in zip(slots, entries, strict=True):
            self._held[slot], self._first[slot] = entry, self._rounds
            self._begun[slot] = read.begun if read else now
            self._filled[slot] = now

    def _advance(self, feed: Feed) -> None:
        """Runs rounds until slots are needed, or rows are to be handed out."""
        ready = len(self.free) - self._promised
        ends, rounds = self.together - ready, self.decoder.max_new_tokens
        if self.eager:
            ends = 1
        elif feed.ended:
            ends = self.size
        if ready and not feed.ended:
            rounds = WAITING_ROUNDS
        if self._promised:
            rounds = READING_ROUNDS
        limits = jnp.int32(max(ends, 1)), jnp.int32(rounds)
        self._state = advance_until(self.decoder, self.params, self._state, *limits)

    def _take_ended(self) -> list[_Taken]:
        """Frees the slots of rows that have ended, and copies the rows; waits for the device."""
        active, rounds = jax.device_get((self._state.context.active, self._state.trace.rounds))
        now = time.perf_counter()
        self._estimate_first_tokens(int(rounds), now)
        self._rounds = int(rounds)
        ended = [slot for slot, entry in enumerate(self._held) if entry and not active[slot]]
        taken = []
        for start in range(0, len(ended), self.together):
            slots = ended[start : start + self.together]
            taken.append(self._copy(slots, now))
        for slot in ended:
            self._held[slot] = None
        return taken

    def _estimate_first_tokens(self, rounds: int, now: float) -> None:
        """Estimates when the rows that began since the last look had their first token.

        It was written by the first of their rounds so far, which counts as long as the others.
        """
        ran = max(rounds - self._rounds, 1)
        for slot, entry in enumerate(self._held):
            if entry and self._first[slot] == self._rounds:
                filled = self._filled[slot]
                self._first_token[slot] = filled + (now - filled) / ran

    def _copy(self, slots: list[int], now: float) -> _Taken:
        padded = slots + slots[:1] * (self.together - len(slots))
        generation = take(self.decoder, self._state, jnp.array(padded, jnp.int32))
        entries = [entry for slot in slots if (entry := self._held[slot]) is not None]
        first = [self._first[slot] for slot in slots]
        begun = [self._begun[slot] for slot in slots]
        first_token = [self._first_token[slot] for slot in slots]
        return _Taken(slots, entries, first, begun, first_token, generation, now)

    def _hand_out(self, taken: _Taken) -> Ended:
        """The rows on the host, their rounds counted from their first."""
        whole = jax.device_get(taken.generation)
        count = len(taken.slots)
        cut = jax.tree.map(lambda x: x[:count] if np.ndim(x) else x, whole.replace(trace=None))
        trace, (rounds, most) = whole.trace, self._counted
        self._counted = int(trace.rounds), trace.most

        def turn(record: np.ndarray) -> np.ndarray:
            size = record.shape[1]
            rows = zip(record[:count], taken.first, strict=True)
            return np.stack([np.roll(row, -(first % size), axis=0) for row, first in rows])

        trace = trace.replace(
            rounds=trace.rounds - rounds,
            most=trace.most - most,
            numbers=turn(trace.numbers),
            overlap=turn(trace.overlap),
            drafts=turn(trace.drafts),
            written_by=trace.written_by[:count],
        )
        made = cut.replace(trace=trace)
        begun, first_token, at = taken.begun, taken.first_token, taken.at
        return Ended(taken.entries, made, taken.first, begun, first_token, at)


def count_together(decoder: Decoder, slots: int, wanted: int = 0) -> int:
    """How many prompts are read in one call: `wanted` (0: few), filled up over the mesh's data."""
    ways = decoder.layout.mesh.shape["data"] if decoder.layout else 1
    return -(-(wanted or max(1, slots // SHARE)) // ways) * ways
