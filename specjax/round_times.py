"""Measures the rounds of a batch, for draft lengths that follow the load (`adapt="load"`).

The program that decodes is measured itself: `times` are traced, so a round of any length is one
for which they make that length the best.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from specjax.api import Generator
from specjax.checks import check_integer, check_integers
from specjax.contracts.catching_up import CHUNK
from specjax.contracts.context import Options
from specjax.data.batching import Prompt
from specjax.decoding.filling import advance_until
from specjax.decoding.loop import begin_jitted
from specjax.decoding.state import State
from specjax.decoding.strategy import Strategy
from specjax.drafting.adaptive_length import CATCHING_UP, EXPECTED, LOAD, TIMES, list_lengths
from specjax.drafting.proposer import Proposer
from specjax.measuring.cost import SHORTEST
from specjax.runtime import processes
from specjax.runtime.errors import UserError

ROUNDS = CHUNK
"""Rounds that are timed together: as many tokens as one call catches up with."""

PASSES = 6
"""Passes over all lengths, of which the fastest counts: other work on a machine only adds time."""

NEVER = 1e9
"""Time of lengths that are not to be chosen."""

LEAST, MOST = 0.01, 0.99
"""Bounds of a measured acceptance rate, which must be within (0, 1)."""


def measure_load(
    generator: Generator,
    prompts: Sequence[str] | Sequence[Prompt],
    *,
    batch_size: int | None = None,
    passes: int = PASSES,
    seed: int = 0,
) -> Strategy:
    """The generator's strategy with the `times` of rounds that were measured on prompts.

    Rounds of every draft length are timed in alternation, `passes` times, in a batch of the first
    `batch_size` prompts (None: of all), repeated if they are fewer. The fastest counts, relative to
    the fastest round without drafts; of `catching_up` it is the median. `acceptance` is that of the
    tested tokens. The figures hold for batches of that size.

    Raises:
      UserError: when the strategy's length does not follow the load, or an argument is invalid.
    """
    drafter = generator.strategy.drafter
    if not isinstance(drafter, Proposer) or drafter.adapt != LOAD:
        raise UserError(
            f"strategy has adapt {getattr(drafter, 'adapt', None)!r}; it must be {LOAD!r} for its"
            " times to be measured"
        )
    check_integers(seed=seed, **({} if batch_size is None else {"batch_size": batch_size}))
    check_integer("passes", passes, 1)
    ids = generator.encode(prompts)
    size = generator.padded_size(batch_size or len(ids))
    rounds = _Rounds(generator, [ids[row % len(ids)] for row in range(size)], seed)
    rounds.take()  # compiles
    found = np.array([rounds.take() for _ in range(passes)])
    steps = np.min(found[:, :-1], axis=0) / np.min(found[:, 0])
    # Single rounds vary more than means of several, so their fastest would seem to cost nothing.
    gap = np.median(found[:, -1] - found[:, 1]) / np.median(found[:, 0])
    numbers = {TIMES: tuple(map(float, steps)), CATCHING_UP: max(float(gap), 0.0)}
    if (acceptance := rounds.acceptance) is not None:
        numbers[EXPECTED] = float(np.clip(acceptance, LEAST, MOST))
    return dataclasses.replace(
        generator.strategy,
        drafter=dataclasses.replace(drafter, times=TIMES),
        numbers=tuple((dict(generator.strategy.numbers) | numbers).items()),
    )


class _Rounds:
    """Rows whose rounds are timed; they begin again when they have no room left."""

    def __init__(self, generator: Generator, ids: Sequence[Prompt], seed: int) -> None:
        drafter = cast(Proposer, generator.decoder.drafter)
        self.lengths = list_lengths(drafter.depth)
        self.decoder = dataclasses.replace(
            generator.decoder, drafter=dataclasses.replace(drafter, times=TIMES)
        )
        batch = generator.batch(ids, len(ids))
        options = self._force(generator.options, 0)
        given = generator.arguments(batch, generator.keys(batch, seed), options=options)
        self.params, self.arguments = given[1], given[2:]
        self._counts = np.zeros(2)
        self.state: State = self._begin()

    @property
    def acceptance(self) -> float | None:
        """The acceptance rate of all tested tokens; None before any test."""
        accepted, tested = self._counts + self._count()
        return accepted / tested if tested else None

    def take(self) -> list[float]:
        """Seconds of a round of each length, then of a round that catches up and drafts one token.

        That one follows `ROUNDS` rounds without drafts.
        """
        self._make_room(ROUNDS + 2)
        alone, first = self._time(0, ROUNDS), self._time(1, 1)
        later = []
        for length in self.lengths[1:]:
            self._make_room(ROUNDS * (length + 1))
            later.append(self._time(length, ROUNDS))
        return [alone, *later, first]

    def _make_room(self, tokens: int) -> None:
        """Begins again if no active row has room for so many tokens."""
        room = jax.device_get(self.state.context.room)
        if int(room.max()) < tokens:
            self._counts += self._count()
            self.state = self._begin()

    def _time(self, length: int, rounds: int) -> float:
        """Seconds of a round of a length: of `rounds` rounds, without their dispatch."""
        before = int(self.state.trace.rounds)
        dispatch, took = self._seconds(length, 0), self._seconds(length, rounds)
        done = int(self.state.trace.rounds) - before
        return processes.from_first(max(took - dispatch, SHORTEST) / max(done, 1))

    def _seconds(self, length: int, rounds: int) -> float:
        """Seconds until rounds of a length are done, or all rows have ended."""
        context = self.state.context
        context = context.replace(options=self._force(context.options, length))
        state = jax.block_until_ready(self.state.replace(context=context))
        limits = jnp.int32(len(context.length) + 1), jnp.int32(rounds)
        start = time.perf_counter()
        state = advance_until(self.decoder, self.params, state, *limits)
        self.state = jax.block_until_ready(state)
        return time.perf_counter() - start

    def _begin(self) -> State:
        return begin_jitted(self.decoder, self.params, *self.arguments)

    def _count(self) -> np.ndarray:
        """Accepted and tested tokens of the rounds so far."""
        trace = self.state.trace
        return np.array([float(trace.accepted.sum()), float(trace.tested.sum())])

    def _force(self, options: Options, length: int) -> Options:
        """The options under which rounds of a length are the best."""
        times = [1.0 if each == length else NEVER for each in self.lengths]
        forced = {TIMES: jnp.array(times, jnp.float32)}
        return options.replace(numbers=options.numbers | forced)
