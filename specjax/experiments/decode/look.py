"""The first thing that a run shows: one example, with and without drafts."""

from __future__ import annotations

import dataclasses
import statistics

from tqdm import tqdm

from specjax.experiments.decode.job import timed, warm_up
from specjax.experiments.decode.records import Job
from specjax.experiments.decode.results import baseline_of

TURNS = 5
"""Decodes of the example by each of the two."""


def first_look(job: Job) -> None:
    """Prints the first example as the first strategy that drafts writes it, and how much faster.

    Than the same without drafts: medians of a few decodes in turn. A whole run says it better.
    """
    drafting = [name for name, each in job.strategies.items() if not each.autoregressive]
    if not drafting:
        return
    name, alone = drafting[0], baseline_of(job.strategies[drafting[0]], job.strategies)
    batch = job.batches()[0]
    generators = {each: job.generators[each] for each in (alone, name)}
    few = dataclasses.replace(job, generators=generators)
    with tqdm(total=len(few.generators), unit="program") as bar:
        warm_up(few, batch, bar)
    took: dict[str, list[float]] = {each: [] for each in few.generators}
    for _ in range(TURNS):
        for each, generator in few.generators.items():
            told = job.guides[each].told(0, batch)
            seconds, rows, _ = timed(generator, batch, job.config.seed, **told)
            took[each].append(seconds)
    slow, fast = (statistics.median(seconds) for seconds in took.values())
    print(f"first look: {job.examples[0].source}")
    print(f"         -> {job.generators[name].decode(rows[:1])[0]}")
    print(
        f"            {slow / fast:.2f} times faster by {name}: {fast * 1e3:.0f} ms, alone"
        f" {slow * 1e3:.0f} ms",
        flush=True,
    )
