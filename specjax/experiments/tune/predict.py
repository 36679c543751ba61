"""Predicts every candidate's speedup from a few decodes and timed calls."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from specjax.contracts.spec import list_parts
from specjax.data.batching import Batch
from specjax.decoding.strategy import Strategy, from_config
from specjax.experiments.decode import job as decode
from specjax.experiments.decode.model_costs import cost_entries
from specjax.experiments.decode.pricing import call_times
from specjax.experiments.decode.records import loop_seconds_per_token
from specjax.experiments.decode.session import Session
from specjax.experiments.recipes.trees import WIDE
from specjax.experiments.tune.space import Space
from specjax.experiments.tune.trees import (
    TreeOverhead,
    end_loss,
    fastest_trees,
    timed_shapes,
    tree_spec,
    wide_spec,
)
from specjax.experiments.tune.trials import Budget
from specjax.measuring.cost import SHORTEST, Costs
from specjax.measuring.in_place import DraftPrice, draft_price
from specjax.metrics.traces import Rounds, collect_rounds
from specjax.metrics.trees import by_rank
from specjax.theory.trees import Fastest, expected_tokens


@dataclasses.dataclass(frozen=True)
class Probe:
    """A decode with the longest drafts of some candidates."""

    strategy: Strategy
    rounds: Rounds
    speedup: float  # of the decode loop, over the target alone
    by_rank: dict[str, Any] | None = None  # acceptance of a tree
    shorter: Probe | None = None  # the same examples with the shortest drafts, if they are others

    @property
    def acceptance(self) -> Any:
        """By depth and rank [D, W], of a tree."""
        return None if self.by_rank is None else self.by_rank["rate"]


@dataclasses.dataclass(frozen=True)
class Predictions:
    """The predictions of a search."""

    speedups: dict[str, float]  # by name of the candidate
    costs: dict[str, Any]  # of the calls they rest on
    trees: list[Fastest] = dataclasses.field(default_factory=list)  # to run in addition
    acceptance: dict[str, Any] | None = None  # by depth and rank, of the wide tree


def predict(session: Session, space: Space, batches: list[Batch], budget: Budget) -> Predictions:
    """The predicted speedup of every candidate, and the fastest trees if searched.

    Candidates that differ in draft length share two decodes of `batches`. The longest drafts give
    the acceptance; together with the shortest drafts they give the time of a round in the loop.

    Raises:
      OutOfTime: when the budget ends before all of it is known.
    """
    probes = {}
    for others, candidate in space.probes.items():
        budget.check()
        short = space.short_probes[others].name
        probes[others] = probe(session, space, candidate.name, batches, short)
    wide = None
    if space.tree_nodes:
        budget.check()
        wide = probe(session, space, WIDE, batches, WIDE)
    budget.check()
    models = tuple(session.pair.models.items())
    timed = {name: one.bind(models) for name, one in timed_strategies(space).items()}
    drafting = dataclasses.replace(session, strategies=timed)
    calls = call_times(drafting, batches, sparse=True)
    costs = {settings: times.costs() for settings, times in calls.items()}
    target = session.generators[space.baseline].decoder.target
    speedups = {
        candidate.name: predicted_speedup(
            costs[candidate.strategy.settings],
            probes[candidate.others],
            timed[candidate.name],
            target,
        )
        for candidate in space.candidates
    }
    found = Predictions(speedups, cost_entries(costs, target))
    if wide is None:
        return found
    own, (chain,) = costs[wide.strategy.settings], probes.values()
    known = fit_overhead(own, chain, wide, target)
    (model,) = wide.strategy.drafter.spec.models
    trees = fastest_trees(own, wide.acceptance, model, space.tree_nodes, target, known)
    return dataclasses.replace(found, trees=trees, acceptance=wide.by_rank)


def fit_overhead(costs: Costs, chain: Probe, wide: Probe, target: str) -> TreeOverhead:
    """Overhead of trees, fitted to the probes.

    A round of a tree and each of its levels leave as much unexplained as a round of a chain and
    each of its tokens; what is beyond that in the wide tree is shared out by its nodes.
    """
    spec = wide.strategy.drafter.spec
    known = in_place(costs, chain, target)
    rest = unexplained_steps(costs, wide, target) - known.beyond_calls(len(spec.calls))
    expected = expected_tokens(wide.acceptance, spec.parents)
    end = end_loss(expected, tokens_per_round(wide.rounds, wide.strategy))
    return TreeOverhead(known.token, max(rest, 0.0) / spec.width, end, known.round_)


def timed_strategies(space: Space) -> dict[str, Strategy]:
    """Strategies whose calls are timed: candidates, and trees for pricing any shape."""
    timed = {candidate.name: candidate.strategy for candidate in space.candidates}
    if space.tree_nodes:
        timed[WIDE] = from_config(WIDE, wide_spec(space.spec))
        for parents in timed_shapes(space.tree_nodes):
            name = f"{len(parents)} nodes"
            timed[name] = from_config(name, tree_spec(space.spec, parents=parents))
    return timed


def probe(session: Session, space: Space, name: str, batches: list[Batch], short: str) -> Probe:
    """Decodes batches once by a strategy of the space, by `short`, and by the target alone."""
    config = session.config.copy_and_resolve_references()
    config.repeats = 1
    generators = {each: session.generators[each] for each in (space.baseline, name, short)}
    measured = decode.measure(
        dataclasses.replace(session, config=config, generators=generators), batches
    )
    took = {each: loop_seconds_per_token(entry) for each, entry in measured.items()}

    def probe_of(each: str, shorter: Probe | None = None) -> Probe:
        strategy, traces = session.strategies[each], measured[each].traces
        parents = strategy.drafter.spec.parents
        table = by_rank(traces, parents) if parents else None
        speedup = took[space.baseline] / took[each]
        return Probe(strategy, collect_rounds(traces), speedup, table, shorter)

    return probe_of(name, None if short == name else probe_of(short))


def predicted_speedup(costs: Costs, probe: Probe, strategy: Strategy, target: str) -> float:
    """E[tokens per round] / (K c + v + r) of a strategy whose drafts are at most the probe's.

    r is the time of a round in the loop beyond its separately timed calls, in target steps.
    """
    more = in_place(costs, probe, target).beyond_calls(drafts(probe.rounds, strategy))
    took = sum(call_steps(costs, probe, strategy, target)) + more
    # A noisy machine must not make a round cheaper than one of the shortest drafts.
    least = steps_per_round(probe.shorter) if probe.shorter else SHORTEST
    return tokens_per_round(probe.rounds, strategy) / max(took, least)


def in_place(costs: Costs, probe: Probe, target: str) -> DraftPrice:
    """Time of a round in the loop beyond its calls, in target steps.

    Interpolates linearly between the probe and the probe of the shortest drafts, if there is one.
    """
    known = {
        drafts(each.rounds, each.strategy): unexplained_steps(costs, each, target)
        for each in filter(None, (probe.shorter, probe))
    }
    return draft_price(known)


def unexplained_steps(costs: Costs, probe: Probe, target: str) -> float:
    """Target steps of a probe's round beyond its separately timed calls.

    Negative if the calls took longer alone.
    """
    return steps_per_round(probe) - sum(call_steps(costs, probe, probe.strategy, target))


def steps_per_round(probe: Probe) -> float:
    """Target steps that a round of the probe took in the loop."""
    return tokens_per_round(probe.rounds, probe.strategy) / probe.speedup


def tokens_per_round(rounds: Rounds, strategy: Strategy) -> float:
    """Mean tokens of a round of `strategy`, from rounds with drafts at least as long.

    A round that accepts token j of a longer draft also accepts it in a draft of length j. So this
    is `expected_tokens_by_position` of the acceptance measured by position, including ends of
    texts.
    """
    return float(np.minimum(rounds.committed[rounds.ran], strategy.drafter.spec.width + 1).mean())


def drafts(rounds: Rounds, strategy: Strategy, most: int | None = None) -> float:
    """Mean tokens that a round of `strategy` tries to draft, from the same rounds.

    A draft that stopped early tried one token more than it proposed. `most`: instead of its width.
    """
    width = strategy.drafter.spec.width if most is None else most
    return float(np.minimum(rounds.drafted[rounds.ran] + 1, width).mean())


def call_steps(costs: Costs, probe: Probe, strategy: Strategy, target: str) -> tuple[float, float]:
    """K c and v of a round of `strategy`: its calls in steps of the target.

    Uses the runs that the probe counted; for shorter drafts in proportion to their calls.
    """
    rounds, step = probe.rounds, costs.milliseconds(target, 1)

    def count_drafts(part: str, strategy: Strategy) -> float:
        return drafts(
            rounds, strategy, sum(call.part == part for call in strategy.drafter.spec.calls)
        )

    runs = {
        part: round(
            rounds.runs[part] * count_drafts(part, strategy) / count_drafts(part, probe.strategy)
        )
        for part in list_parts(strategy.drafter.spec.calls)
    }
    drafting = costs.drafting_ms(strategy.drafter, rounds.turns, runs) / rounds.turns
    return drafting / step, costs.verification_ms(
        {strategy.drafter.spec.width: 1}, strategy.reader, target
    ) / step
