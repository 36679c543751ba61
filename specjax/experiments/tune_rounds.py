"""Successive halving: candidates decode the same growing number of examples, the slower half drops.

Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization"
(2016), with time per token as the loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from ml_collections import ConfigDict
from tqdm import tqdm

from specjax.data.batching import Batch
from specjax.evaluation.quality import METRICS
from specjax.experiments import decode
from specjax.experiments.decode import Job
from specjax.experiments.programs import release_programs
from specjax.experiments.tune_budget import Budget
from specjax.experiments.tune_space import Space, round_sizes
from specjax.experiments.tune_trials import Search, Trial, drop_slower


def by_width(batches: Iterable[Batch]) -> list[Batch]:
    """Batches of the commonest prompt width first: every width is a program for each candidate."""
    found = list(batches)
    count = Counter(batch.tokens.shape[1] for batch in found)
    return sorted(found, key=lambda b: (-count[b.tokens.shape[1]], b.tokens.shape[1]))


def halve(
    job: Job,
    space: Space,
    config: ConfigDict,
    search: Search,
    batches: list[Batch],
    budget: Budget,
    save: Callable[[], None],
) -> None:
    """Rounds until one candidate is left; `save` is called after each.

    Raises:
      OutOfTime: when the budget ends first; what was measured is in `search`.
    """
    sizes = round_sizes(space.first_examples(config), len(job.examples), search.contenders)
    for number, size in list(enumerate(sizes, 1))[search.rounds :]:
        if search.rounds and len(search.alive) < 2:
            return
        stage = f"round {number}"
        decode_more(job, space, search, batches[: -(-size // job.config.batch_size)], budget, stage)
        if space.judged:
            judge(job, search, batches, config.quality_loss, stage)
        keep = 1 if number == len(sizes) else max(1, len(search.alive) // 2)
        drop_slower(search.alive, keep, stage)
        search.rounds = number
        release_programs()
        save()


def decode_more(
    job: Job, space: Space, search: Search, batches: list[Batch], budget: Budget, stage: str
) -> None:
    """Decodes those of batches that have not been yet by all candidates and by the target alone."""
    trials = {space.baseline: search.alone, **search.alive}
    compiled = set()
    todo = batches[len(search.alone.seconds) :]
    for batch in tqdm(todo, desc=f"{stage}: {len(search.alive)} candidates", unit="batch"):
        for name in trials:
            program = job.generators[name].decoder, batch.tokens.shape
            if program not in compiled:
                budget.check()
                decode.timed(job.generators[name], batch, job.config.seed)
                compiled.add(program)
        budget.check()
        seconds, rows = in_turns(job, list(trials), batch)
        for name, trial in trials.items():
            add_batch(job, trial, seconds[name], rows[name], texts=space.judged)


def in_turns(
    job: Job, names: Sequence[str], batch: Batch
) -> tuple[dict[str, float], dict[str, list[list[int]]]]:
    """Median seconds of a batch by strategy over the repeats, every other one backwards; rows."""
    took: dict[str, list[float]] = {name: [] for name in names}
    rows = {}
    for repeat in range(job.config.repeats):
        for name in names[:: 1 if repeat % 2 == 0 else -1]:
            seconds, found, _ = decode.timed(job.generators[name], batch, job.config.seed)
            took[name].append(seconds)
            rows[name] = found[: batch.rows]
    return {name: float(np.median(each)) for name, each in took.items()}, rows


def add_batch(
    job: Job, trial: Trial, seconds: float, rows: list[list[int]], *, texts: bool
) -> None:
    trial.seconds.append(seconds)
    trial.tokens.append(sum(map(len, rows)))
    trial.examples += len(rows)
    if texts:
        trial.outputs += job.generators[decode.BASELINE].decode(rows)


def judge(job: Job, search: Search, batches: list[Batch], allowed: float, stage: str) -> None:
    """Scores the outputs so far and drops candidates beyond the allowed loss."""
    order = [int(index) for batch in batches for index in batch.index[: batch.rows]]
    references = [job.examples[index].reference for index in order][: len(search.alone.outputs)]
    score = METRICS[job.metric]
    search.alone.quality = score(search.alone.outputs, references)
    for trial in search.alive.values():
        trial.quality = score(trial.outputs, references)
        losses = {name: best - trial.quality[name] for name, best in search.alone.quality.items()}
        worst = max(losses, key=losses.__getitem__)
        trial.loss = losses[worst]
        if not trial.may_be_chosen(allowed):
            trial.drop(stage, f"{worst} is {trial.loss:.2f} points below the target's")
