"""Sizes, prices and measured costs of the models of a decode experiment."""

from __future__ import annotations

from typing import Any

import numpy as np

from specjax.contracts.drafter import Drafter
from specjax.decoding.strategy import Settings
from specjax.experiments.decode.session import Session
from specjax.experiments.decode.strategies import describe_cuts
from specjax.measuring.cost import Costs
from specjax.measuring.roofline import copy_bandwidth, roofline, step_bytes
from specjax.metrics.operations import idle_weights, transformer_shape
from specjax.metrics.traces import (
    Rounds,
)
from specjax.models.quantized_weights import count_numbers


def cost_entries(costs: dict[Settings, Costs], target: str) -> dict[str, Any]:
    """Measured costs of calls, by sampling settings and model."""
    return {label(settings): measured.entries(target) for settings, measured in costs.items()}


def label(settings: Settings) -> str:
    """Sampling settings in words: `greedy`, or `T=0.7, top-k 40`."""
    temperature, top_k, top_p, *_ = settings
    if temperature == 0:
        return "greedy"
    cuts = [f"top-k {top_k}"] * (top_k > 0) + [f"top-p {top_p:g}"] * (top_p < 1)
    return ", ".join([f"T={temperature:g}", *cuts, *describe_cuts(settings)])


def one_token_steps(costs: dict[Settings, Costs]) -> dict[str, float]:
    """Milliseconds of every model's one-token call, greedy where timed."""
    sampled_first = sorted(costs, reverse=True)
    return {
        part: ms for settings in sampled_first for part, ms in costs[settings].one_token.items()
    }


def models(session: Session, steps: dict[str, float]) -> dict[str, Any]:
    """Size and measured one-token cost of each model."""
    return {
        name: {
            "parameters": count_numbers(entry.params),
            "step_ms": steps.get(name, 0.0),
        }
        for name, entry in session.pair.members.items()
    }


def part_prices(session: Session, drafter: Drafter) -> dict[str, float]:
    """The price of a call of each model: `config.prices`, or its number of parameters.

    Inactive experts do not count. A drafter's early exits cost the share of parameters below the
    exit layer, a read-out the share of the output matrix.
    """
    sizes = {
        name: count_numbers(entry.params) - idle_weights(entry.model)
        for name, entry in session.pair.members.items()
    }
    prices: dict[str, float] = session.config.prices.to_dict() or dict(sizes)
    for call in drafter.spec.calls:
        shape = transformer_shape(session.pair.members[call.model].model)
        if call.exit is not None:
            rest = shape.slice_layers(call.exit, shape.layers)
            above = rest.decoder_weights - rest.idle_weights
            prices[call.part] = prices[call.model] * (1 - above / sizes[call.model])
        elif call.read_out:
            matrix = shape.d_model * shape.vocab
            prices[call.part] = prices[call.model] * matrix / sizes[call.model]
    return prices


def prompt_lengths(session: Session) -> np.ndarray:
    """Length [N] of every example's prompt: tokens, or encoder states of other input."""
    given = session.pair.target.model.info.input
    lengths = np.array([len(prompt) for prompt in session.prompts])
    return given.count_states(lengths) if given else lengths


def rooflines(session: Session, baseline: Rounds, steps: dict[str, float]) -> dict[str, Any] | None:
    """The memory bound on the one-token step of each model that ran.

    Uses the mean cache length of the target decoding `alone`. None on a mesh, where a device holds
    only a part of a model.
    """
    if any(entry.mesh for entry in session.pair.members.values()):
        return None
    rows, _ = np.nonzero(baseline.ran)
    cached = (
        float(np.mean(baseline.begin[rows] + baseline.started[baseline.ran] - 1))
        if len(rows)
        else 0.0
    )
    source = float(prompt_lengths(session).mean())
    bandwidth = copy_bandwidth()
    return {
        name: roofline(
            step_bytes(session.pair.members[name].model, session.config.batch_size, cached, source),
            bandwidth,
            step,
        )
        for name, step in steps.items()
        if name in session.pair.members
    }
