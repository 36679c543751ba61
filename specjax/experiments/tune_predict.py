"""The closed form of a search: every candidate's speedup from a few decodes and timed calls."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from tqdm import tqdm

from specjax.data.batching import Batch
from specjax.drafting.base import Drafter
from specjax.evaluation.cost import Costs
from specjax.evaluation.traces import Rounds, rounds_of
from specjax.experiments import decode
from specjax.experiments.decode import Job
from specjax.experiments.tune_budget import Budget
from specjax.experiments.tune_space import Candidate, Space
from specjax.theory.speculative import improvement


def predict(
    job: Job, space: Space, batches: list[Batch], budget: Budget
) -> tuple[dict[str, float], Costs]:
    """Predicted speedup of every candidate by its name, and the call costs they rest on.

    Candidates that differ in draft length share one decode of `batches`, with the longest.

    Raises:
      OutOfTime: when the budget ends before all of it is known.
    """
    rounds = {}
    for others, candidate in tqdm(space.probes.items(), desc="acceptance", unit="probe"):
        budget.check()
        rounds[others] = probe(job, candidate, batches)
    budget.check()
    drafting = dataclasses.replace(job, strategies={c.name: c.strategy for c in space.candidates})
    costs = decode.measure_costs(drafting, batches, sparse=True)
    target = next(iter(job.generators.values())).decoder.target
    found = {
        each.name: predicted_speedup(costs, rounds[each.others], each.strategy.drafter, target)
        for each in space.candidates
    }
    return found, costs


def probe(job: Job, candidate: Candidate, batches: list[Batch]) -> Rounds:
    """The rounds of a candidate on batches."""
    generator = job.generators[candidate.name]
    made = [
        (jax.device_get(generator.run(batch, generator.keys(batch, job.config.seed))), batch.rows)
        for batch in batches
    ]
    return rounds_of(made)


def predicted_speedup(costs: Costs, rounds: Rounds, drafter: Drafter, target: str) -> float:
    """E[tokens per round] / (K c + v) of `drafter`, from rounds of drafts at least as long as its.

    A round that got as far as token j of a longer draft gets as far with a draft of j: its tokens
    are the smaller of what it gave and K + 1. Their mean is `expected_tokens_by_position` of the
    measured acceptance by position, the ends of texts included. Drafter calls are cut likewise; a
    draft that stopped early ran once for the token that it did not propose.
    """
    tokens = np.minimum(rounds.committed[rounds.ran], drafter.width + 1)
    tried = rounds.drafted[rounds.ran] + 1
    runs = {
        name: int(np.minimum(tried, sum(call.model == name for call in drafter.schedule)).sum())
        for name in drafter.models
    }
    step = costs.milliseconds(target, 1)
    drafting = costs.drafting_ms(drafter, tokens.size, runs) / tokens.size
    verification = costs.verification_ms({drafter.width: 1}, target)
    return float(improvement(tokens.mean(), drafting / step, verification / step))
