"""The tune experiment: draft length, thresholds and trees of a strategy for a pair and a data set.

The closed form predicts every candidate. Successive halving runs the best of them within a budget
of seconds. With prices of calls instead of times, it runs all of them.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config.memory import check_decode_memory
from specjax.experiments.decode.session import Session, open_session
from specjax.experiments.pairs import describe_pair, load_pair
from specjax.experiments.recipes.trees import WIDTHS
from specjax.experiments.tune import report as tune_report
from specjax.experiments.tune.predict import predict, timed_strategies
from specjax.experiments.tune.report import write_config
from specjax.experiments.tune.rounds import by_width, run_halving
from specjax.experiments.tune.space import Candidate, Space, make_space, round_sizes
from specjax.experiments.tune.trials import (
    TIME,
    Budget,
    OutOfTime,
    Search,
    Trial,
    choose_best,
    drop_by_prediction,
)
from specjax.measuring.cost import choose_widths, needed_calls
from specjax.metrics.metric import get_metric
from specjax.reporting.table import align_columns
from specjax.runtime.errors import UserError

TARGET = "target"


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Searches, writes tune.json, prints the candidates; returns the content of the file.

    An interrupted search resumes after its last finished round. A search that ran out of time
    resumes when the budget is raised.

    Raises:
      UserError: when the config cannot be used.
    """
    space = make_space(config)
    workdir.mkdir(parents=True, exist_ok=True)
    search, finished = tune_report.resume_search(workdir, config) or (
        make_search(config, space),
        False,
    )
    space = space.with_trees(search.shapes)
    status = tune_report.FINISHED
    if not finished:
        budget = Budget(config.budget_seconds, search.seconds)
        try:
            work(config, space, search, budget, workdir)
        except OutOfTime:
            status = tune_report.OUT_OF_TIME
        search.seconds = budget.spent
        space = space.with_trees(search.shapes)
    chosen = choose_best(search, config.quality_loss if space.judged else None)
    content = tune_report.write(workdir, config, space, search, status, chosen)
    tune_report.show(config, space, content)
    if chosen is not None:
        print(f"config of it: {write_config(workdir, space, space.candidate(chosen))}")
    print(f"results in {workdir}")
    return content


def make_search(config: ConfigDict, space: Space) -> Search:
    """A new search."""
    trials = {
        candidate.name: Trial(dict(candidate.fields), candidate.lossless)
        for candidate in space.candidates
    }
    return Search(Trial({}), trials, config.objective)


def work(config: ConfigDict, space: Space, search: Search, budget: Budget, workdir: Path) -> None:
    """Predicts and runs the remaining candidates.

    Raises:
      OutOfTime: when the budget ends first; `search` has the measurements.
    """

    def save() -> None:
        search.seconds = budget.spent
        tune_report.write(workdir, config, space, search, tune_report.RUNNING)

    budget.check()
    check_decode_memory(space.decode, describe_pair(space.decode), space.strategies)
    session = open_session(space.decode, space.strategies, load_pair(space.decode), workdir)
    check_metric(session, space)
    batches = by_width(session.batches())
    if config.objective == TIME and not search.predicted:
        few = batches[: -(-config.probe_examples // session.config.batch_size)]
        found = predict(session, space, few, budget)
        for name, speedup in found.speedups.items():
            search.trials[name].predicted = speedup
        search.costs, search.acceptance = found.costs, found.acceptance
        search.add_trees(found.trees)
        if found.trees:
            space = space.with_trees(search.shapes)
            session = open_session(space.decode, space.strategies, session.pair, workdir)
        drop_by_prediction(groups(space, search), config.margin, most_of_a_group(config, space))
        save()
    print(f"{len(search.alive)} of {len(search.trials)} candidates are run")
    run_halving(session, space, config, search, batches, budget, save)


def check_metric(session: Session, space: Space) -> None:
    """Refuses a search that changes outputs without a metric.

    Raises:
      UserError: when there is no metric.
    """
    if space.judged and not get_metric(session.metric).scores:
        raise UserError(
            f"config.base.metric is {session.metric!r}; candidates that change outputs are judged,"
            " so it must be a metric, and examples need references"
        )


def groups(space: Space, search: Search) -> list[list[Trial]]:
    """Groups of trials within which the prediction selects.

    If outputs change, a fast setting may be too bad to be chosen, so only draft lengths compete.
    Trees and chains are predicted from different decodes, so the best of both are run.
    """

    def key(candidate: Candidate) -> str:
        return candidate.others if space.judged else str(candidate.found)

    ordered = sorted(space.candidates, key=key)
    return [
        [search.trials[candidate.name] for candidate in group]
        for _, group in itertools.groupby(ordered, key)
    ]


def most_of_a_group(config: ConfigDict, space: Space) -> int:
    """Number of trials to run in a group: `contenders` over all groups, at least one each."""
    return max(1, config.contenders // space.groups)


def plan(config: ConfigDict) -> None:
    """Prints the candidates and the planned rounds.

    Raises:
      UserError: when the config cannot be used.
    """
    space = make_space(config)
    print(f"{space.strategy}: {len(space.candidates)} candidates")
    fields = list(space.candidates[0].fields)
    rows = [[str(x) for x in candidate.fields.values()] for candidate in space.candidates]
    print(align_columns(fields, rows))
    most = len(space.candidates)
    if config.objective == TIME:
        plan_prediction(config, space)
        each, trees = most_of_a_group(config, space), int(space.tree_nodes > 0)
        most = min(most, each * (space.groups - trees)) + each * trees
    available = space.decode.examples or "all"
    sizes = round_sizes(space.first_examples(config), space.decode.examples or 10**9, most)
    print(f"at most {most} run, in rounds of {', '.join(map(str, sizes))} examples of {available}")
    if space.judged:
        print(f"outputs are judged: at most {config.quality_loss:g} points below the target's")
    print(f"budget: {config.budget_seconds:g} s")


def plan_prediction(config: ConfigDict, space: Space) -> None:
    """Prints the decodes and calls that the closed form needs."""
    print(f"first {config.probe_examples} examples decoded for acceptance with:")
    for candidate in space.probes.values():
        print(f"  {candidate.label}")
    if space.tree_nodes:
        print(f"  a tree of widths {WIDTHS}: shapes of at most {space.tree_nodes} nodes follow")
    strategies = list(timed_strategies(space).values())
    widths = {width for candidate in strategies for width in candidate.target_widths}
    calls = choose_widths(needed_calls(strategies, TARGET, widths))
    for model, own in itertools.groupby(calls, key=lambda call: call.model):
        print(f"calls of {model} timed with {', '.join(str(call.tokens) for call in own)} tokens")
