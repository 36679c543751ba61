"""Monte-Carlo rounds of speculative decoding with independent acceptance.

Each function plays `rounds` rounds token by token, as the decode loop would, from the generator it
gets and without any closed form: the check on `speculative` and `cascade`, and a place to try a
schedule before it has a formula. Times are in target steps.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from specjax.theory.checks import count, non_negative, positive, probability


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean and its standard error."""

    mean: float
    standard_error: float


@dataclasses.dataclass(frozen=True)
class Simulation:
    """Estimates from the simulated rounds."""

    tokens: Estimate  # per round
    improvement: Estimate  # over autoregressive decoding


def simulate(
    rng: np.random.Generator,
    alphas: np.ndarray,
    costs: np.ndarray,
    rounds: int,
    verification: float = 1.0,
) -> Simulation:
    """Simulates rounds that draft one token for each of alphas [n], at costs [n].

    All tokens are reviewed at once. Plain speculative decoding when all entries are equal; a
    horizontal cascade when each stage repeats its acceptance rate and cost (`np.repeat`). Raises
    ValueError on impossible arguments.
    """
    alphas, costs = probability("alphas", alphas), non_negative("costs", costs)
    rounds = int(count("rounds", rounds, least=2))
    time = float(positive("the time of a round", np.sum(costs) + verification))
    stands = rng.random((rounds, len(alphas))) < alphas
    return _simulation(_leading_length(stands) + 1, time)


def simulate_vertical(
    rng: np.random.Generator,
    *,
    alpha: float,
    inner_alpha: float,
    steps: int,
    length: int,
    cost: float,
    inner_cost: float,
    rounds: int,
) -> Simulation:
    """Simulates rounds whose draft comes from `steps` inner rounds of `length` tokens.

    Arguments as of `cascade.vertical_ewif`. Raises ValueError on impossible arguments.
    """
    outer, inner = probability("alpha", alpha), probability("inner_alpha", inner_alpha)
    steps, length = int(count("steps", steps)), int(count("length", length))
    rounds = int(count("rounds", rounds, least=2))
    calls = non_negative("cost", cost) + length * non_negative("inner_cost", inner_cost)
    inner_stands = rng.random((rounds, steps, length)) < inner
    drafted = (_leading_length(inner_stands) + 1).sum(axis=-1)
    stands = rng.random((rounds, steps * (length + 1))) < outer
    return _simulation(np.minimum(_leading_length(stands), drafted) + 1, float(1.0 + steps * calls))


def _leading_length(stands: np.ndarray) -> np.ndarray:
    """Length [...] of the leading run of True in stands [..., n]."""
    return np.cumprod(stands, axis=-1, dtype=np.int64).sum(axis=-1)


def _simulation(tokens: np.ndarray, time: float) -> Simulation:
    """Tokens [rounds] of rounds that all take `time`."""
    mean, error = float(tokens.mean()), float(tokens.std(ddof=1) / np.sqrt(len(tokens)))
    return Simulation(Estimate(mean, error), Estimate(mean / time, error / time))
