"""The closed form of a search: every candidate's speedup from a few decodes and timed calls."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from specjax.core.calls import parts
from specjax.data.batching import Batch
from specjax.decoding.strategy import Strategy
from specjax.experiments.decode import job as decode
from specjax.experiments.decode.records import Job
from specjax.experiments.decode.results import cost_entries, loop_seconds_per_token
from specjax.experiments.tune.budget import Budget
from specjax.experiments.tune.space import Candidate, Space
from specjax.measuring.cost import Costs
from specjax.metrics.traces import Rounds, rounds_of
from specjax.theory.speculative import improvement


@dataclasses.dataclass(frozen=True)
class Probe:
    """A decode with the longest drafts of some candidates."""

    strategy: Strategy
    rounds: Rounds
    speedup: float  # of the decode loop, over the target alone


def predict(
    job: Job, space: Space, batches: list[Batch], budget: Budget
) -> tuple[dict[str, float], dict[str, Any]]:
    """Predicted speedup of every candidate by its name, and the call costs they rest on.

    Candidates that differ in draft length share one decode of `batches`, with the longest.

    Raises:
      OutOfTime: when the budget ends before all of it is known.
    """
    probes = {}
    for others, candidate in space.probes.items():
        budget.check()
        probes[others] = probe(job, space, candidate, batches)
    budget.check()
    drafting = dataclasses.replace(job, strategies={c.name: c.strategy for c in space.candidates})
    calls = decode.call_times(drafting, batches, sparse=True)
    costs = {settings: times.costs() for settings, times in calls.items()}
    target = job.generators[space.baseline].decoder.target
    speedups = {
        candidate.name: predicted_speedup(
            costs[candidate.strategy.settings],
            probes[candidate.others],
            candidate.strategy,
            target,
        )
        for candidate in space.candidates
    }
    return speedups, cost_entries(costs, target)


def probe(job: Job, space: Space, candidate: Candidate, batches: list[Batch]) -> Probe:
    """Decodes batches once by a candidate, and by the target alone."""
    config = job.config.copy_and_resolve_references()
    config.repeats = 1
    generators = {name: job.generators[name] for name in (space.baseline, candidate.name)}
    measured = decode.measure(
        dataclasses.replace(job, config=config, generators=generators), batches
    )
    alone, own = (loop_seconds_per_token(measured[name]) for name in generators)
    rounds = rounds_of(measured[candidate.name].traces)
    return Probe(candidate.strategy, rounds, alone / own)


def predicted_speedup(costs: Costs, probe: Probe, strategy: Strategy, target: str) -> float:
    """E[tokens per round] / (K c + v + K r) of a strategy whose drafts are at most the probe's.

    r, the loop's own work for a drafted token in target steps, is what the costs of calls leave
    unexplained of the probe's measured speedup.
    """
    rounds = probe.rounds
    measured = tokens_per_round(rounds, probe.strategy) / probe.speedup
    unexplained = max(measured - sum(call_steps(costs, probe, probe.strategy, target)), 0.0)
    own_work = unexplained * drafts(rounds, strategy) / drafts(rounds, probe.strategy)
    drafting, verification = call_steps(costs, probe, strategy, target)
    tokens = tokens_per_round(rounds, strategy)
    return float(improvement(tokens, drafting + own_work, verification))


def tokens_per_round(rounds: Rounds, strategy: Strategy) -> float:
    """Mean tokens of a round of `strategy`, from rounds of drafts at least as long as its.

    A round that got as far as token j of a longer draft gets as far with a draft of j. So this is
    `expected_tokens_by_position` of the acceptance measured by position, ends of texts included.
    """
    return float(np.minimum(rounds.committed[rounds.ran], strategy.drafter.spec.width + 1).mean())


def drafts(rounds: Rounds, strategy: Strategy, most: int | None = None) -> float:
    """Mean tokens that a round of `strategy` tries to draft, from rounds like those above.

    A draft that stopped early tried one token more than it proposed. `most`: instead of its width.
    """
    width = strategy.drafter.spec.width if most is None else most
    return float(np.minimum(rounds.drafted[rounds.ran] + 1, width).mean())


def call_steps(costs: Costs, probe: Probe, strategy: Strategy, target: str) -> tuple[float, float]:
    """K c and v of a round of `strategy`: its calls in steps of the target.

    The runs that the probe counted, of shorter drafts in proportion to the calls that they try.
    """
    rounds, step = probe.rounds, costs.milliseconds(target, 1)

    def tried(part: str, strategy: Strategy) -> float:
        return drafts(
            rounds, strategy, sum(call.part == part for call in strategy.drafter.spec.calls)
        )

    runs = {
        part: round(rounds.runs[part] * tried(part, strategy) / tried(part, probe.strategy))
        for part in parts(strategy.drafter.spec.calls)
    }
    drafting = costs.drafting_ms(strategy.drafter, rounds.turns, runs) / rounds.turns
    return drafting / step, costs.verification_ms(
        {strategy.drafter.spec.width: 1}, strategy.reader, target
    ) / step
