"""Prices of a decode experiment: calls timed alone, rounds timed by short decodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from specjax.data.batching import Batch
from specjax.decoding.strategy import Settings, Strategy, drawing_fields
from specjax.experiments.decode.records import Prices
from specjax.experiments.decode.results import find_baseline
from specjax.experiments.decode.session import Session
from specjax.experiments.decode.strategies import BASELINE
from specjax.measuring import cost
from specjax.measuring.in_place import TOKENS, RoundPrice, Sample, round_price, sum_work
from specjax.measuring.stopwatch import Stopwatch
from specjax.measuring.walltime import can_be_priced
from specjax.runtime.progress import progress
from specjax.sampling import make_sampling

Timed = Callable[..., tuple[float, Any, Any]]
"""Seconds, rows and generation of a decode, as of `experiments.decode.job.time_decode`."""


class RoundTimes:
    """Decodes that price rounds: of all strategies in turn, pass by pass.

    They run the programs of the experiment and compile nothing.
    """

    def __init__(self, session: Session, timed: Timed) -> None:
        self.session, self.timed = session, timed
        names = [name for name, one in session.generators.items() if can_be_priced(one.decoder)]
        self.samples: dict[str, list[Sample]] = {name: [] for name in names}

    @property
    def passes(self) -> int:
        """Number of passes so far; the full number if no strategy has a price."""
        return min(map(len, self.samples.values()), default=cost.TRIALS)

    def take(self, batch: Batch, *, ready: bool = True) -> None:
        """Runs one more pass over a batch; `ready`: its programs are compiled."""
        for name, samples in self.samples.items():
            if not ready:
                self._decode(name, batch, np.zeros_like(batch.limit))
            samples.append(self._sample(name, batch))

    def _sample(self, name: str, batch: Batch) -> Sample:
        took, generation = self._decode(name, batch, np.minimum(batch.limit, TOKENS))
        fixed, _ = self._decode(name, batch, np.zeros_like(batch.limit))
        work = sum_work(self.session.generators[name].decoder, [(generation, batch.rows)])
        return Sample(1e3 * (took - fixed), work)

    def _decode(self, name: str, batch: Batch, limit: np.ndarray) -> tuple[float, Any]:
        arguments = self.session.arm_selectors[name].run_arguments(0, batch)
        seed, generator = self.session.config.seed, self.session.generators[name]
        took, _, generation = self.timed(generator, batch, seed, limit=limit, **arguments)
        return took, generation

    def prices(self, calls: dict[Settings, cost.Costs]) -> dict[str, RoundPrice]:
        """Prices of rounds by strategy, if they have one; `calls` are timed alone."""
        found = {}
        for name, samples in self.samples.items():
            strategy = self.session.strategies[name]
            baseline = find_baseline(strategy, self.session.strategies)
            decoder = self.session.generators[name].decoder
            found[name] = round_price(
                samples,
                self.samples[baseline],
                calls[strategy.settings],
                decoder,
                decoder.target,
            )
        return {name: price for name, price in found.items() if price}


class Pricing:
    """Prices of calls and rounds from trials between the decodes of an experiment.

    A machine's speed drifts from minute to minute; trials between the decodes see the same drift.
    """

    def __init__(self, session: Session, batches: list[Batch], timed: Timed) -> None:
        self.batches = batches
        self.calls = call_times(session, batches)
        self.rounds = RoundTimes(session, timed)

    def take(self, batch: Batch) -> None:
        """Runs one more trial with the last decoded batch."""
        for times in self.calls.values():
            times.take()
        self.rounds.take(batch)

    def prices(self) -> Prices:
        """Prices from at least `cost.TRIALS` trials."""
        missing = range(self.rounds.passes, cost.TRIALS)
        for done in progress(missing, desc="price rounds", total=len(missing), unit="pass"):
            index = done * len(self.batches) // cost.TRIALS
            self.rounds.take(self.batches[index], ready=False)
        calls = {settings: times.costs() for settings, times in self.calls.items()}
        return Prices(calls, self.rounds.prices(calls))


def call_times(
    session: Session, batches: list[Batch], *, sparse: bool = False
) -> dict[Settings, cost.CallTimes]:
    """Prepares the timing of the model calls that the predictions need.

    Calls have the shapes of this run. They are grouped by sampling settings, because drawing a
    token takes longer than finding the largest. `sparse` leaves out some widths, for predictions
    that only select candidates.
    """
    groups: dict[Settings, list[Strategy]] = {}
    for strategy in session.strategies.values():
        groups.setdefault(strategy.settings, []).append(strategy)
    return {
        settings: _group_times(session, batches, settings, group, sparse)
        for settings, group in groups.items()
    }


def _group_times(
    session: Session, batches: list[Batch], settings: Settings, group: list[Strategy], sparse: bool
) -> cost.CallTimes:
    """Times the calls of strategies with the same sampling settings."""
    decoder = session.generators[BASELINE].decoder
    widest = sorted(batch.tokens.shape[1] for batch in batches)[len(batches) // 2]
    watch = Stopwatch(
        {name: entry.model for name, entry in session.pair.members.items()},
        {name: entry.params for name, entry in session.pair.members.items()},
        batch=session.config.batch_size,
        prompt=widest,
        capacity=decoder.buffer(widest),
        sampling=make_sampling(**drawing_fields(settings)),
    )
    widths = {width for strategy in group for width in strategy.target_widths}
    return cost.call_times(watch, group, decoder.target, widths, sparse=sparse)
