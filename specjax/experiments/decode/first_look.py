"""The first output of a run: one example, with and without drafts."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping

from specjax.decoding.strategy import Strategy
from specjax.experiments.decode.job import time_decode, warm_up
from specjax.experiments.decode.results import find_baseline
from specjax.experiments.decode.session import Session

TURNS = 5
"""Decodes of the example by each of the two strategies."""


def show_first_example(session: Session) -> None:
    """Prints the output and speedup of a strategy with drafts on the first example.

    The speedup is over the same strategy without drafts, by medians of a few alternating decodes; a
    whole run measures it better. The example is always the first one of the data. The reference and
    the target's own output show which model made a mistake.
    """
    names = choose_shown(session.strategies)
    if not names:
        return
    baseline, name = names
    batch = session.batches()[0]
    generators = {strategy: session.generators[strategy] for strategy in names}
    few = dataclasses.replace(session, generators=generators)
    warm_up(few, [batch])
    took: dict[str, list[float]] = {strategy: [] for strategy in few.generators}
    written: dict[str, list[int]] = {}
    for _ in range(TURNS):
        for strategy, generator in few.generators.items():
            arguments = session.arm_selectors[strategy].run_arguments(0, batch)
            seconds, rows, _ = time_decode(generator, batch, session.config.seed, **arguments)
            took[strategy].append(seconds)
            written[strategy] = rows[0]
    slow, fast = (statistics.median(took[strategy]) for strategy in names)
    own, text = session.generators[name].prompts.texts([written[strategy] for strategy in names])
    print(f"first look: {session.examples[0].source}")
    print(f"         -> {text}")
    if session.examples[0].output is not None:
        print(f" reference: {session.examples[0].output}")
    same = written[baseline] == written[name]
    print(f"            the target alone writes{' the same tokens' if same else f': {own}'}")
    here = "this sentence" if batch.rows == 1 else f"this batch of {batch.rows}"
    print(f"            speedup {slow / fast:.2f} by {name} on {here}", flush=True)


def choose_shown(strategies: Mapping[str, Strategy]) -> tuple[str, ...]:
    """The strategy with the longest drafts among lossless ones with a drafter model.

    Among all strategies with drafts when there is none. Preceded by its baseline without drafts;
    empty when no strategy drafts.
    """

    def rank(name: str) -> tuple[bool, bool, int]:
        one = strategies[name]
        return one.greedy and one.lossless, bool(one.drafter.spec.models), one.drafter.spec.width

    drafting = [name for name, strategy in strategies.items() if not strategy.autoregressive]
    name = max(drafting, key=rank, default=None)
    return () if name is None else (find_baseline(strategies[name], strategies), name)
