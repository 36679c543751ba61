"""The online experiment: a drafter learns from a stream of texts while it drafts them.

Strategies alternate within every batch, in the order of the stream (docs/methods/online.md). One of
them may draft with a model that is updated after every few texts. The others show the speed without
updates.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict
from tqdm import tqdm

from specjax.experiments.config.defaults import to_decode_config
from specjax.experiments.config.memory import check_decode_memory
from specjax.experiments.decode.data import data_words
from specjax.experiments.decode.job import time_decode
from specjax.experiments.decode.planning import Plan, show_plan
from specjax.experiments.online.checks import check
from specjax.experiments.online.learner import DRAFTER, Text
from specjax.experiments.online.parts import Job, prepare
from specjax.experiments.online.records import Turn, read_records
from specjax.experiments.online.results import write_results
from specjax.experiments.pairs import describe_pair
from specjax.experiments.workdir import check_settings, write_settings
from specjax.models.base import Params
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import whole_lines, write_row
from specjax.runtime.programs import release_programs
from specjax.runtime.progress import progress
from specjax.training.checkpoint import Checkpoints

DECODED = "decoded.jsonl"
"""File in the workdir: a line for every batch."""

CHECKPOINTS = "checkpoints"

KEPT_EVERY = 20
"""Updates between checkpoints; a resumed run repeats those since the last one."""


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Decodes the stream, or resumes the workdir's run; returns results.json.

    Raises:
      UserError: when a field, a model or a text cannot be used.
    """
    strategies = check(config)
    check_settings(config, workdir, ("blocks",))
    decode = to_decode_config(config)
    check_decode_memory(decode, describe_pair(decode), strategies)
    job = prepare(config, strategies)
    turns = read_turns(job, workdir)
    # After all checks: a refused config must not claim the workdir.
    write_settings(config, workdir)
    with Checkpoints(workdir / CHECKPOINTS, "step", largest=True) as keeper:
        restore(job, turns, keeper)
        decode_stream(job, turns, workdir, keeper)
    places = job.learner.save(workdir) if job.learner else []
    return write_results(job, turns, places, workdir)


def plan(config: ConfigDict) -> None:
    """Prints the models, the strategies, the stream and the learning settings.

    Raises:
      UserError: when a field, a model or a file cannot be used.
    """
    show_plan(Plan.from_config(to_decode_config(config), check(config)))
    for name in config.stream:
        source = config.sources[name]
        print(f"stream: {name}, {source.examples or 'all'} texts of {data_words(source)}")
    if config.learns:
        print(
            f"learning: {config.drafter} by {config.objective.name} under {config.learns!r}, an"
            f" update of {config.steps} step(s) after every {config.every} texts"
        )


def read_turns(job: Job, workdir: Path) -> list[Turn]:
    """The batches that an earlier run has decoded.

    Raises:
      UserError: when it is of other texts.
    """
    turns = [Turn.of_row(row) for row in whole_lines(workdir / DECODED)]
    for batch, turn in enumerate(turns):
        if turn.texts != [job.texts[row] for row in job.rows(batch)]:
            raise UserError(
                f"{str(workdir / DECODED)!r} line {batch + 1} is of other texts than"
                " config.sources now has; give another --workdir, or remove that one"
            )
    return turns


def restore(job: Job, turns: Sequence[Turn], keeper: Checkpoints) -> None:
    """Restores the learner after the last of the turns, by a checkpoint and repeated updates.

    Raises:
      UserError: when the checkpoint is beyond them.
    """
    learner = job.learner
    if learner is None:
        return
    done = sum(len(turn.texts) for turn in turns) // job.config.every
    if (step := keeper.latest()) is not None:
        learner.state = keeper.restore(step, learner.state)
    if learner.updates > done:
        raise UserError(
            f"the workdir has a checkpoint after update {learner.updates:,} and {DECODED} ends"
            f" after update {done:,}; give another --workdir, or remove that one"
        )
    with progress(total=done - learner.updates, desc="learn again", unit="update") as bar:
        while learner.updates < done:
            learner.update(update_texts(job, turns, learner.updates))
            bar.update()


def update_texts(job: Job, turns: Sequence[Turn], update: int) -> list[Text]:
    """The texts of an update, counted from 0."""
    batches = range(update * job.turns, (update + 1) * job.turns)
    learned = [
        zip(job.rows(batch), turns[batch].records[job.config.learns], strict=True)
        for batch in batches
    ]
    return [(job.prompts[row], one) for row, one in itertools.chain(*learned)]


def decode_stream(job: Job, turns: list[Turn], workdir: Path, keeper: Checkpoints) -> None:
    """Decodes the rest of the stream; appends to the turns and their file."""
    learner, done = job.learner, sum(len(turn.texts) for turn in turns)
    with (
        (workdir / DECODED).open("a", encoding="utf-8") as out,
        progress(total=len(job.texts), initial=done, unit="text") as bar,
    ):
        for batch in range(len(turns), job.batches):
            turns.append(decode_batch(job, batch, bar))
            done += len(turns[-1].texts)
            due = learner if learner and learner.updates < done // job.config.every else None
            if due:
                bar.set_description("learn")
                learning = due.update(update_texts(job, turns, due.updates))
                turns[-1] = dataclasses.replace(turns[-1], learning=learning)
            write_row(out, turns[-1].row())
            # After its line is written: a checkpoint is never ahead of the decoded batches.
            if due and due.updates % KEPT_EVERY == 0:
                keeper.save(due.state, {"step": float(due.state.step)})
            bar.update(len(turns[-1].texts))


def decode_batch(job: Job, batch: int, bar: tqdm) -> Turn:
    """Decodes a batch by all strategies, one after another."""
    rows, config = job.rows(batch), job.config
    ids = [job.prompts[row] for row in rows]
    seconds, found = {}, {}
    for name, generator in job.generators.items():
        made = generator.batch(ids, config.batch_size, first=rows.start)
        trees: dict[str, Params] = {}
        if job.learner and name == config.learns:
            trees = {DRAFTER: job.learner.params}
        if (name, made.shape) not in job.compiled:
            bar.set_description(f"compile {name}")
            if release_programs():
                job.compiled.clear()
            generator.compile(made, generator.keys(made, config.seed), trees=trees)
            job.compiled.add((name, made.shape))
        bar.set_description("decode")
        took, _, generation = time_decode(generator, made, config.seed, trees=trees)
        seconds[name], found[name] = took, read_records(generation, made.rows)
    return Turn([job.texts[row] for row in rows], seconds, found, None)
