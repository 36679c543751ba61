"""`evaluation` of results.json: figures over requests, as papers report them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from specjax.data.text import Example
from specjax.experiments.decode.records import StrategyMeasurement
from specjax.experiments.decode.session import Session
from specjax.metrics.accepted_lengths import collect_requests, evaluate
from specjax.metrics.traces import collect_rounds


def number_requests(examples: list[Example]) -> np.ndarray:
    """Which request, from 0, each example belongs to: later turns to that of the first."""
    numbers = np.cumsum([not example.earlier for example in examples])
    return numbers - numbers[:1]


def evaluate_strategies(
    session: Session, measured: Mapping[str, StrategyMeasurement], baselines: Mapping[str, str]
) -> dict[str, Any]:
    """The figures of every strategy; speeds where each example was a batch of its own."""
    requests = number_requests(session.examples)
    first = [example for example in session.examples if not example.earlier]
    categories = [example.group for example in first if example.group is not None]
    alone = session.config.batch_size == 1
    strategies = {
        name: collect_requests(
            collect_rounds(entry.traces), requests, entry.batch_seconds if alone else None
        )
        for name, entry in measured.items()
    }
    whole = categories if len(categories) == len(first) else None
    return evaluate(strategies, baselines, whole, session.config.seed)
