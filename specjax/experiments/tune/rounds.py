"""Successive halving: candidates decode the same growing number of examples, the worse half drops.

Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization"
(2016), with time per token, or the price of its calls, as the loss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from specjax.data.batching import Batch
from specjax.decoding.summary import summarize
from specjax.experiments.decode import job as decode
from specjax.experiments.decode.data import collect_references
from specjax.experiments.decode.model_costs import part_prices
from specjax.experiments.decode.session import Session
from specjax.experiments.decode.strategies import BASELINE
from specjax.experiments.tune.space import Space, round_sizes
from specjax.experiments.tune.trials import SWI, Budget, Search, Trial, drop_worse
from specjax.measuring.cost import standardized_walltime_improvement
from specjax.metrics.metric import get_metric
from specjax.runtime.programs import release_programs
from specjax.runtime.progress import progress


def by_width(batches: Iterable[Batch]) -> list[Batch]:
    """Batches of the most common prompt width first; each width compiles a program."""
    batches = list(batches)
    count = Counter(batch.tokens.shape[1] for batch in batches)
    return sorted(batches, key=lambda b: (-count[b.tokens.shape[1]], b.tokens.shape[1]))


def run_halving(
    session: Session,
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
    sizes = round_sizes(space.first_examples(config), len(session.examples), search.contenders)
    for number, size in list(enumerate(sizes, 1))[search.rounds :]:
        if search.rounds and len(search.alive) < 2:
            return
        stage = f"round {number}"
        decode_more(
            session, space, search, batches[: -(-size // session.config.batch_size)], budget, stage
        )
        if space.judged:
            judge(session, search, batches, config.quality_loss, stage)
        keep = 1 if number == len(sizes) else max(1, len(search.alive) // 2)
        drop_worse(search.alive, search.objective, keep, stage)
        search.rounds = number
        release_programs()
        save()


def decode_more(
    session: Session, space: Space, search: Search, batches: list[Batch], budget: Budget, stage: str
) -> None:
    """Decodes the remaining batches by all candidates and by the target alone.

    Times are medians of `repeats`; the calls that SWI prices are the same in every repeat.
    """
    repeats = 1 if search.objective == SWI else session.config.repeats
    trials = {space.baseline: search.alone, **search.alive}
    compiled = set()
    todo = batches[len(search.alone.seconds) :]
    for batch in progress(todo, desc=f"{stage}: {len(search.alive)} candidates", unit="batch"):
        for name in trials:
            program = session.generators[name].decoder, batch.shape
            if program not in compiled:
                budget.check()
                decode.time_decode(session.generators[name], batch, session.config.seed)
                compiled.add(program)
        budget.check()
        seconds, last = time_in_turns(session, list(trials), batch, repeats)
        for name, trial in trials.items():
            rows, generation = last[name]
            add_batch(session, trial, seconds[name], rows, texts=space.judged)
            if search.objective == SWI:
                add_calls(session, name, trial, generation, len(rows))


def time_in_turns(
    session: Session, names: Sequence[str], batch: Batch, repeats: int
) -> tuple[dict[str, float], dict[str, tuple[list[list[int]], Any]]]:
    """Median seconds of a batch by strategy; every other repeat runs in reverse order.

    Also returns the rows and the generation of the last repeat.
    """
    took: dict[str, list[float]] = {name: [] for name in names}
    last = {}
    for repeat in range(repeats):
        for name in names[:: 1 if repeat % 2 == 0 else -1]:
            seconds, rows, generation = decode.time_decode(
                session.generators[name], batch, session.config.seed
            )
            took[name].append(seconds)
            last[name] = rows[: batch.rows], generation
    return {name: float(np.median(times)) for name, times in took.items()}, last


def add_batch(
    session: Session, trial: Trial, seconds: float, rows: list[list[int]], *, texts: bool
) -> None:
    trial.seconds.append(seconds)
    trial.tokens.append(sum(map(len, rows)))
    trial.examples += len(rows)
    if texts:
        trial.outputs += session.generators[BASELINE].prompts.texts(rows)


def add_calls(session: Session, name: str, trial: Trial, generation: Any, rows: int) -> None:
    """Adds the calls of the first `rows` rows and prices all calls of the trial.

    See docs/methods/cascade.md, "Standardized walltime improvement".
    """
    decoder = session.generators[name].decoder
    for part, count in summarize(decoder, [(generation, rows)]).calls.items():
        trial.calls[part] = trial.calls.get(part, 0) + count
    trial.swi = standardized_walltime_improvement(
        sum(trial.tokens), trial.calls, part_prices(session, decoder.drafter), decoder.target
    )


def judge(
    session: Session, search: Search, batches: list[Batch], allowed: float, stage: str
) -> None:
    """Scores the outputs so far; drops candidates beyond the allowed loss."""
    order = [int(index) for batch in batches for index in batch.index[: batch.rows]]
    references = collect_references(session.examples[i] for i in order[: len(search.alone.outputs)])
    score = get_metric(session.metric)
    search.alone.quality = score(search.alone.outputs, references)
    for trial in search.alive.values():
        trial.quality = score(trial.outputs, references)
        losses = {name: best - trial.quality[name] for name, best in search.alone.quality.items()}
        worst = max(losses, key=losses.__getitem__)
        trial.loss = losses[worst]
        if not trial.may_be_chosen(allowed):
            trial.drop(stage, f"{worst} is {trial.loss:.2f} points below the target's")
