"""The decode experiment: times all strategies of a config on the same examples."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from specjax.api import Generator
from specjax.data.batching import Batch
from specjax.decoding.strategy import Strategy
from specjax.experiments.config.memory import check_decode_memory
from specjax.experiments.config.schema import FILLED
from specjax.experiments.decode import filled, results
from specjax.experiments.decode.checks import check_decode, note_unused
from specjax.experiments.decode.compiling import compile_programs, shape_groups
from specjax.experiments.decode.journal import JOURNAL, Journal, journal
from specjax.experiments.decode.on_topology import plan_on_topology
from specjax.experiments.decode.planning import Plan, show_plan
from specjax.experiments.decode.pricing import Pricing
from specjax.experiments.decode.records import BatchOutput, StrategyMeasurement
from specjax.experiments.decode.session import Session, open_session
from specjax.experiments.decode.show import show
from specjax.experiments.pairs import describe_pair, load_pair
from specjax.experiments.workdir import read_finished
from specjax.measuring import cost
from specjax.pair import Pair
from specjax.profiling import profile
from specjax.runtime import processes
from specjax.runtime.programs import release_programs
from specjax.runtime.progress import progress

PROFILE = "profile"
"""Folder of profiler traces in the workdir."""


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Runs the experiment and writes its results; returns the content of results.json.

    Results of the same config in the workdir are only shown.
    """
    strategies = check_decode(config)
    done = read_finished(config, workdir)
    if done is not None:
        show(done, workdir)
        return done
    check_decode_memory(config, describe_pair(config), strategies)
    note_unused(config, strategies)
    pair = load_pair(config)
    workdir.mkdir(parents=True, exist_ok=True)
    return run_pair(config, strategies, pair, workdir)


def run_pair(
    config: ConfigDict, strategies: Mapping[str, Strategy], pair: Pair, workdir: Path
) -> dict[str, Any]:
    """The run of a checked config on a loaded pair, by the batching of the config."""
    if config.batching == FILLED:
        return filled.run(config, strategies, pair, workdir)
    return finish(open_session(config, strategies, pair, workdir), workdir)


def finish(session: Session, workdir: Path) -> dict[str, Any]:
    """Decodes, measures and writes results; returns the content of results.json.

    An interrupted run resumes after the last batch that all strategies decoded.
    """
    batches = session.batches()
    pricing = Pricing(session, batches, time_decode)
    with journal(workdir / JOURNAL, session) as kept:
        report_progress(session, kept, len(batches))
        measured = measure(session, batches, pricing.take, kept)
        prices = pricing.prices()
        if session.config.profile_rounds:
            write_profiles(session, workdir / PROFILE)
        return results.write(session, measured, prices, workdir)


def report_progress(session: Session, kept: Journal, batches: int) -> None:
    """Prints how many batches an interrupted run has decoded."""
    if kept.decoded:
        total = session.config.repeats * batches
        print(f"{len(kept.decoded)} of {total} batches were decoded before; going on")


def plan(config: ConfigDict) -> dict[str, Any] | None:
    """Prints the required resources; on a topology returns the compiler's report."""
    strategies = check_decode(config)
    note_unused(config, strategies)
    planned = Plan.from_config(config, strategies)
    sizes = show_plan(planned)
    return plan_on_topology(planned, sizes) if config.get("topology") else None


def measure(
    session: Session,
    batches: list[Batch],
    between: Callable[[Batch], None] | None = None,
    journal: Journal | None = None,
) -> dict[str, StrategyMeasurement]:
    """Decodes all batches by all strategies in alternation, `repeats` times, shape after shape.

    The programs of all shapes are compiled first, unless they are many (`shape_groups`). Decodes in
    the journal are not repeated; new ones are appended to it. `between` is called with the batch
    that was just decoded, at most `cost.TRIALS` times, spread over the decodes. Programs may be
    dropped once their shapes are decoded (`release_programs`).
    """
    journal = journal or Journal()
    repeats = session.config.repeats
    done = itertools.count(1)
    measured = {
        name: StrategyMeasurement.empty(repeats, len(batches)) for name in session.generators
    }
    left = repeats * len(batches) - len(journal.decoded)
    every = max(-(-left // cost.TRIALS), 1)
    for group in shape_groups(batches, len(measured)):
        compile_strategies(
            session, [(batches[indices[0]], indices) for indices in group], measured, journal
        )
        total = repeats * len(batches)
        turns = [turn for indices in group for turn in itertools.product(range(repeats), indices)]
        with progress(
            total=total, initial=total - left, desc="decode", unit="batch", smoothing=0
        ) as bar:
            for repeat, index in turns:
                kept = journal.decoded.get((repeat, index))
                decoded = kept or measure_batch(session, batches[index], repeat)
                take_in(session, batches[index], measured, repeat, index, decoded)
                if kept:
                    continue
                journal.add(repeat, index, decoded)
                left -= 1
                bar.update()
                if next(done) % every == 0 and between:
                    between(batches[index])
        release_programs()
    return measured


def compile_strategies(
    session: Session,
    shapes: Sequence[tuple[Batch, Sequence[int]]],
    measured: dict[str, StrategyMeasurement],
    journal: Journal,
) -> None:
    """Compiles all strategies for a batch of each shape, unless all batches of it are decoded.

    Each shape comes with the indices of its batches.
    """
    todo = [batch for batch, indices in shapes if not _is_decoded(indices, session, journal)]
    warm_up(session, todo)
    for batch in todo:
        seconds = {name: session.compiled[name, batch.shape] for name in session.generators}
        journal.add_compiled(batch.shape, seconds)
    for batch, _ in shapes:
        for name, entry in measured.items():
            entry.compile_seconds += journal.compiled[batch.shape][name]


def _is_decoded(indices: Sequence[int], session: Session, journal: Journal) -> bool:
    """Whether the journal holds all repeats of these batches."""
    return set(itertools.product(range(session.config.repeats), indices)) <= set(journal.decoded)


def warm_up(session: Session, batches: Sequence[Batch]) -> None:
    """Compiles every strategy for the shapes of batches and runs it once on each."""
    compile_programs(session, batches)
    for batch in batches:
        for name, generator in session.generators.items():
            arguments = session.arm_selectors[name].run_arguments(0, batch)
            time_decode(generator, batch, session.config.seed, **arguments)


def measure_batch(session: Session, batch: Batch, repeat: int) -> dict[str, BatchOutput]:
    """Decodes a batch by all strategies, one after another, and once each without new tokens."""
    nothing = np.zeros(session.config.batch_size, np.int32)
    decoded = {}
    for name, generator in session.generators.items():
        selector = session.arm_selectors[name]
        arguments = selector.run_arguments(repeat, batch)
        took, _, generation = time_decode(generator, batch, session.config.seed, **arguments)
        fixed = time_decode(generator, batch, session.config.seed, limit=nothing, **arguments)[0]
        lesson = selector.lesson(generation, took)
        kept = jax.device_get(generation.replace(memory=())) if repeat == 0 else None
        decoded[name] = BatchOutput(took, fixed, kept, lesson)
    return decoded


def take_in(
    session: Session,
    batch: Batch,
    measured: dict[str, StrategyMeasurement],
    repeat: int,
    index: int,
    decoded: dict[str, BatchOutput],
) -> None:
    """Adds the outputs of all strategies for a batch to the records and arm_selectors."""
    for name, output in decoded.items():
        measured[name].add(repeat, index, batch.rows, output)
        session.arm_selectors[name].learn(repeat, batch, output.lesson)


def time_decode(
    generator: Generator, batch: Batch, seed: int, **more: Any
) -> tuple[float, list[list[int]], Any]:
    """Seconds from host tokens to host tokens, the rows, and the generation.

    All processes get the seconds of the first one, because strategies may learn from them. `more`
    are other arguments of `Generator.run`.
    """
    keys = generator.keys(batch, seed).block_until_ready()
    start = time.perf_counter()
    generation = generator.run(batch, keys, **more)
    rows = generator.rows(generation)
    return processes.from_first(time.perf_counter() - start), rows, generation


def write_profiles(session: Session, folder: Path) -> None:
    """A profiler trace of the first rounds of every strategy, in a folder of its own."""
    prompts = session.prompts[: session.config.batch_size]
    for name, generator in session.generators.items():
        rounds = session.config.profile_rounds
        profile(generator, prompts, folder / name, rounds=rounds, seed=session.config.seed)
    print(f"profiles in {folder}")
