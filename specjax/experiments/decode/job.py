"""The decode experiment: every strategy of a config over the same examples, timed side by side."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from specjax import hosts
from specjax.adjusting.guidance import guided
from specjax.api import Generator
from specjax.checkpoints.draft_vocabulary import drafting_first
from specjax.checkpoints.shared_encoder import with_encoder_of
from specjax.checkpoints.shared_tokens import in_vocabulary_of, share_in
from specjax.checkpoints.small_copies import quantised
from specjax.checkpoints.spoken import in_language
from specjax.checkpoints.tokenizer import token_ids
from specjax.data.batching import Batch
from specjax.data.text import Example
from specjax.errors import UserError
from specjax.experiments.config.choosing import selection_trees
from specjax.experiments.config.fields import (
    asked_generation,
    asked_languages,
    checkpoint_dtype,
    model_names,
    model_source,
)
from specjax.experiments.config.memory import check_decode_memory
from specjax.experiments.config.placement import copies_target, decode_mesh, ways_of
from specjax.experiments.decode import planning, results
from specjax.experiments.decode.checks import check_decode
from specjax.experiments.decode.compiling import compile_programs, shape_groups
from specjax.experiments.decode.data import load_data
from specjax.experiments.decode.guides import guide
from specjax.experiments.decode.journal import JOURNAL, Journal, journal
from specjax.experiments.decode.on_topology import plan_on_topology
from specjax.experiments.decode.pricing import Pricing
from specjax.experiments.decode.prompts import prompts_of
from specjax.experiments.decode.records import Decoded, Job, Measured
from specjax.experiments.decode.show import show
from specjax.experiments.decode.strategies import BASELINE, common_width, load_strategies
from specjax.experiments.decode.tables import load_tables, reads_rest
from specjax.experiments.decode.unused import note_unused
from specjax.experiments.finished import finished
from specjax.loading import LoadedModel, load
from specjax.measuring import cost
from specjax.profiling import profile
from specjax.programs import release_programs
from specjax.progress import progress

PROFILE = "profile"
"""Folder of profiler traces in the workdir."""


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Runs the experiment and writes its results; returns the content of results.json.

    What the workdir holds of the same config is only shown.
    """
    check_decode(config)
    done = finished(config, workdir)
    if done is not None:
        show(done, workdir)
        return done
    strategies = load_strategies(config)
    check_decode_memory(config, planning.shapes(config), strategies)
    note_unused(config, strategies)
    models = load_models(config)
    workdir.mkdir(parents=True, exist_ok=True)
    return finish(prepare(config, models, workdir), workdir)


def finish(job: Job, workdir: Path) -> dict[str, Any]:
    """Decodes, measures and writes results; returns the content of results.json.

    A run that was killed goes on after the last batch that all strategies had decoded.
    """
    batches = job.batches()
    pricing = Pricing(job, batches, timed)
    with journal(workdir / JOURNAL, job) as kept:
        say_kept(job, kept, len(batches))
        measured = measure(job, batches, pricing.take, kept)
        prices = pricing.prices()
        if job.config.profile_rounds:
            write_profiles(job, workdir / PROFILE)
        return results.write(job, measured, prices, workdir)


def say_kept(job: Job, kept: Journal, batches: int) -> None:
    """Says what an earlier run leaves to do."""
    if kept.decoded:
        total = job.config.repeats * batches
        print(f"{len(kept.decoded)} of {total} batches were decoded before; going on")


def plan(config: ConfigDict) -> dict[str, Any] | None:
    """Prints what the experiment would need; on a topology returns what its compiler says."""
    planned = planning.run(config)
    if not config.get("topology"):
        return None
    return plan_on_topology(config, planning.shapes(config), *planned.values())


def load_models(config: ConfigDict) -> dict[str, LoadedModel]:
    """Every model of the config by its name, in the target's vocabulary.

    Raises:
      UserError: when one is missing or has too little in common with the target.
    """
    mesh, dtype, models = decode_mesh(config), checkpoint_dtype(config), {}
    for name in model_names(config):
        place, weights = model_source(config, name)
        if copies_target(config, name):
            models[name] = quantised(models["target"], str(weights))
            continue
        models[name] = load(
            place,
            dtype,
            weights=str(weights or ""),
            mesh=mesh,
            ways=ways_of(config, name),
            pad_heads=config.pad_heads,
            **asked_generation(config),
            **asked_languages(config, name),
        )
    target = models.pop("target")
    target = in_language(target, **config.speech) if "speech" in config else target
    target = guided(target, target.settings)
    share = config.least_shared
    met = {
        name: in_vocabulary_of(target, drafter, name=name, least_shared=share)
        for name, drafter in models.items()
    }
    count = config.get("draft_tokens", 0)
    borrowing = {name: with_encoder_of(target, drafter) for name, drafter in met.items()}
    return {"target": target} | {
        name: drafting_first(drafter, count) if count else drafter
        for name, drafter in borrowing.items()
    }


def prepare(config: ConfigDict, models: dict[str, LoadedModel], workdir: Path) -> Job:
    """Loads data and builds one generator per strategy on models that `load_models` gave.

    Answers to earlier turns of conversations are kept in the workdir.
    """
    target = models["target"]
    if target.tokenizer is None:
        raise UserError(f"target {config.target!r} has no tokenizer files")
    if config.prefix and target.model.frames:
        raise UserError(f"config.prefix is {config.prefix!r}; it must be empty: the target listens")
    width = min(entry.model.vocab_size for entry in models.values())
    strategies = load_strategies(config)
    invariant = common_width(config, strategies)
    check_decode_memory(config, {n: entry.model for n, entry in models.items()}, strategies)
    tables = {
        table for strategy in strategies.values() for table in strategy.drafter.spec.resources
    }
    chosen_by = selection_trees(strategies, target.model)
    read = tables - set(chosen_by)
    data = load_data(config, more=reads_rest(config, read))
    say_shared(models, data.examples)
    trees = chosen_by | load_tables(config, read, target, width, data.rest)
    generators = {
        name: Generator(
            target,
            {k: v for k, v in models.items() if k != "target"},
            strategy,
            tables=trees,
            max_new_tokens=config.max_new_tokens,
            max_prompt_tokens=config.max_prompt_tokens,
            bucket=config.bucket,
            invariant=invariant,
        )
        for name, strategy in strategies.items()
    }
    prompts = generators[BASELINE].encode(prompts_of(config, target, data.examples, workdir))
    guides = {
        name: guide(name, config.strategies.get(name), strategy, chosen_by, len(prompts))
        for name, strategy in strategies.items()
    }
    return Job(config, models, data.examples, data.metric, prompts, strategies, generators, guides)


def say_shared(models: dict[str, LoadedModel], examples: list[Example]) -> None:
    """Says of drafters of another vocabulary how much of the references they could write."""
    texts = [example.output for example in examples if example.output]
    for name, entry in models.items():
        if entry.own_tokenizer is not None and texts:
            share = share_in(entry, token_ids(entry.tokenizer, texts))
            print(f"drafter {name!r} has {share:.1%} of the tokens of the references")


def measure(
    job: Job,
    batches: list[Batch],
    between: Callable[[Batch], None] | None = None,
    journal: Journal | None = None,
) -> dict[str, Measured]:
    """Decodes all batches by all strategies in alternation, `repeats` times, shape after shape.

    The programs of all shapes are compiled first, unless they are many (`shape_groups`). What the
    journal holds is not decoded again; what is decoded is added to it. `between` is called with the
    batch that was just decoded, at most `cost.TRIALS` times, spread over the decodes. Programs may
    be dropped once their shapes are decoded (`release_programs`).
    """
    journal = journal or Journal()
    repeats = job.config.repeats
    done = itertools.count(1)
    measured = {name: Measured.empty(repeats, len(batches)) for name in job.generators}
    left = repeats * len(batches) - len(journal.decoded)
    every = max(-(-left // cost.TRIALS), 1)
    for group in shape_groups(batches, len(measured)):
        ready(job, [(batches[indices[0]], indices) for indices in group], measured, journal)
        total = repeats * len(batches)
        turns = [turn for indices in group for turn in itertools.product(range(repeats), indices)]
        with progress(
            total=total, initial=total - left, desc="decode", unit="batch", smoothing=0
        ) as bar:
            for repeat, index in turns:
                kept = journal.decoded.get((repeat, index))
                decoded = kept or measure_batch(job, batches[index], repeat)
                take_in(job, batches[index], measured, repeat, index, decoded)
                if kept:
                    continue
                journal.add(repeat, index, decoded)
                left -= 1
                bar.update()
                if next(done) % every == 0 and between:
                    between(batches[index])
        release_programs()
    return measured


def ready(
    job: Job,
    shapes: Sequence[tuple[Batch, Sequence[int]]],
    measured: dict[str, Measured],
    journal: Journal,
) -> None:
    """Compiles all strategies for a batch of each shape, unless all batches of it are decoded.

    With each goes the indices of the batches of its shape.
    """
    todo = [batch for batch, indices in shapes if not _decoded(indices, job, journal)]
    warm_up(job, todo)
    for batch in todo:
        seconds = {name: job.compiled[name, batch.shape] for name in job.generators}
        journal.add_compiled(batch.shape, seconds)
    for batch, _ in shapes:
        for name, entry in measured.items():
            entry.compile_seconds += journal.compiled[batch.shape][name]


def _decoded(indices: Sequence[int], job: Job, journal: Journal) -> bool:
    """Whether the journal holds all repeats of these batches."""
    return set(itertools.product(range(job.config.repeats), indices)) <= set(journal.decoded)


def warm_up(job: Job, batches: Sequence[Batch]) -> None:
    """Compiles every strategy for the shapes of batches and runs it once on each."""
    compile_programs(job, batches)
    for batch in batches:
        for name, generator in job.generators.items():
            timed(generator, batch, job.config.seed, **job.guides[name].told(0, batch))


def measure_batch(job: Job, batch: Batch, repeat: int) -> dict[str, Decoded]:
    """Decodes a batch by all strategies, one after another, and once each without new tokens."""
    nothing = np.zeros(job.config.batch_size, np.int32)
    decoded = {}
    for name, generator in job.generators.items():
        guide = job.guides[name]
        told = guide.told(repeat, batch)
        took, _, generation = timed(generator, batch, job.config.seed, **told)
        fixed = timed(generator, batch, job.config.seed, limit=nothing, **told)[0]
        lesson = guide.lesson(generation, took)
        kept = jax.device_get(generation.replace(memory=())) if repeat == 0 else None
        decoded[name] = Decoded(took, fixed, kept, lesson)
    return decoded


def take_in(
    job: Job,
    batch: Batch,
    measured: dict[str, Measured],
    repeat: int,
    index: int,
    decoded: dict[str, Decoded],
) -> None:
    """Adds what all strategies gave for a batch to what is measured, and to what guides know."""
    for name, output in decoded.items():
        measured[name].add(repeat, index, batch.rows, output)
        job.guides[name].learn(repeat, batch, output.lesson)


def timed(
    generator: Generator, batch: Batch, seed: int, **more: Any
) -> tuple[float, list[list[int]], Any]:
    """Seconds from host tokens to host tokens, the rows, and the generation.

    With several processes they are those of the first one, as strategies may learn from them.
    `more` are other arguments of `Generator.run`.
    """
    keys = generator.keys(batch, seed).block_until_ready()
    start = time.perf_counter()
    generation = generator.run(batch, keys, **more)
    rows = generator.rows(generation)
    return hosts.from_first(time.perf_counter() - start), rows, generation


def write_profiles(job: Job, folder: Path) -> None:
    """A profiler trace of the first rounds of every strategy, in a folder of its own."""
    prompts = job.prompts[: job.config.batch_size]
    for name, generator in job.generators.items():
        rounds = job.config.profile_rounds
        profile(generator, prompts, folder / name, rounds=rounds, seed=job.config.seed)
    print(f"profiles in {folder}")
