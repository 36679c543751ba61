"""What model calls cost on this device: the c and v of the speedup formulas."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from specjax.decoding.summary import Statistics
from specjax.drafting.base import Call, Drafter
from specjax.models.base import LanguageModel, Params
from specjax.sampling import argmax
from specjax.theory import cascade
from specjax.theory.speculative import expected_tokens, improvement

STEPS = 32
TRIALS = 5

SHORTEST = 1e-6
"""Milliseconds of a call too short to measure: ratios of costs must exist."""


@functools.partial(jax.jit, static_argnames=("models", "calls", "capacity"))
def _call_often(
    models: tuple[LanguageModel, ...],
    params: tuple[Params, ...],
    prompt: jax.Array,
    length: jax.Array,
    calls: tuple[tuple[int, int], ...],
    capacity: int,
    steps: jax.Array,
) -> jax.Array:
    """`steps` turns in one program; in a turn models[i] makes calls[i], each after the one before.

    `calls` are pairs of fed tokens and of the last of them whose logits are computed.
    """
    caches = tuple(
        model.start(weights, prompt, length, capacity)
        for model, weights in zip(models, params, strict=True)
    )
    batch = prompt.shape[0]

    def turn(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        index, token, caches = carry
        after = []
        for model, weights, cache, (width, logits) in zip(
            models, params, caches, calls, strict=True
        ):
            at = jnp.broadcast_to(jnp.arange(width - logits, width), (batch, logits))
            fed = jnp.broadcast_to(token, (batch, width))
            output, cache = model.extend(weights, fed, cache, at=None if logits == width else at)
            token = jnp.max(argmax(output.logits), axis=1, keepdims=True)
            # Stay inside the buffer; where exactly does not change the cost of masked attention.
            pointer = jnp.minimum(cache.length, capacity - 2 * width)
            after.append(cache.replace(length=pointer))
        return index + 1, token, tuple(after)

    token = jnp.zeros((batch, 1), jnp.int32)
    return jax.lax.while_loop(lambda c: c[0] < steps, turn, (0, token, caches))[1]


@dataclasses.dataclass(frozen=True)
class Stopwatch:
    """Times calls of named models at one shape of batch, prompt and cache."""

    models: dict[str, LanguageModel]
    params: dict[str, Params]
    batch: int = 1
    prompt: int = 16
    capacity: int = 96

    def milliseconds(self, turns: Sequence[tuple[Call, ...]]) -> list[float]:
        """Milliseconds of each turn of calls for `batch` rows, argmax included.

        The difference of two run lengths of one jitted loop, so that neither dispatch nor the
        prompt counts; the best of a few trials, which take turns so that a machine that slows down
        does not change the ratios.
        """
        runs = [self._looped(turn) for turn in tqdm(turns, desc="call costs", unit="program")]
        lengths = (0, STEPS)
        best = np.min([[[_seconds(r, n) for n in lengths] for r in runs] for _ in range(TRIALS)], 0)
        return (np.maximum(best[:, 1] - best[:, 0], 0.0) / STEPS * 1e3).tolist()

    def _looped(self, turn: tuple[Call, ...]) -> Callable[[jax.Array], jax.Array]:
        """The compiled loop of a turn, as a function of how often it is taken."""
        run = functools.partial(
            _call_often,
            tuple(self.models[call.model] for call in turn),
            tuple(self.params[call.model] for call in turn),
            jnp.zeros((self.batch, self.prompt), jnp.int32),
            jnp.full(self.batch, self.prompt, jnp.int32),
            tuple((call.tokens, call.logits) for call in turn),
            max(self.capacity, 3 * max(call.tokens for call in turn)),
        )
        run(jnp.int32(1)).block_until_ready()
        return run


def _seconds(run: Callable[[jax.Array], jax.Array], steps: int) -> float:
    start = time.perf_counter()
    run(jnp.int32(steps)).block_until_ready()
    return time.perf_counter() - start


def openings(drafters: Iterable[Drafter]) -> set[Call]:
    """The first call of each model in a draft."""
    found = set()
    for drafter in drafters:
        for name in drafter.models:
            found.add(next(call for call in drafter.schedule if call.model == name))
    return found


def needed(drafters: Sequence[Drafter], target: str) -> list[Call]:
    """The calls whose cost the figures of drafters rest on, one for each model and width.

    Of every model the one-token call too: c and v are ratios to it.
    """
    calls = [Call(target, drafter.width + 1, drafter.width + 1) for drafter in drafters]
    calls += [call for drafter in drafters for call in drafter.schedule]
    calls += [Call(name, 1, 1) for name in {call.model: None for call in calls}]
    # Of two calls of a width, the one that opens a draft comes last and stays.
    first = openings(drafters)
    kept = {(call.model, call.tokens): call for call in sorted(calls, key=first.__contains__)}
    return sorted(kept.values(), key=lambda call: (call.model != target, call.model, call.tokens))


@dataclasses.dataclass(frozen=True)
class Costs:
    """Measured call costs in milliseconds, by model and number of fed tokens."""

    step: dict[str, dict[int, float]]

    def price(self, call: Call) -> float:
        return self.step[call.model][call.tokens]

    def drafting_ms(self, drafter: Drafter, rounds: int, runs: Mapping[str, int]) -> float:
        """Milliseconds of `runs` of the drafter's models in `rounds` rounds."""
        total = 0.0
        for name in drafter.models:
            calls = [call for call in drafter.schedule if call.model == name]
            first = min(rounds, runs[name])
            total += first * self.price(calls[0]) + (runs[name] - first) * self.price(calls[-1])
        return total

    def verification_ms(self, drafter: Drafter, target: str) -> float:
        """Milliseconds of the target call that reviews a draft."""
        return self.step[target][drafter.width + 1]

    def predicted_speedup(self, statistics: Statistics, drafter: Drafter, target: str) -> float:
        """E[tokens per round] / (K c + v) of a strategy.

        K c is the cost of the drafter calls that a round measurably has relative to a target step,
        v the cost of the verification relative to it, in the rounds that have one.
        """
        if not statistics.rounds:
            return 0.0
        step = self.step[target][1]
        drafting = self.drafting_ms(drafter, statistics.rounds, statistics.calls)
        verifying = statistics.reviews * self.verification_ms(drafter, target)
        return float(improvement(statistics.tokens, drafting / step, verifying / step))

    def theoretical_speedup(self, statistics: Statistics, drafter: Drafter, target: str) -> float:
        """Theorem 3.8: independent acceptance at the measured rate, drafts of full width, v = 1."""
        drafting = sum(map(self.price, drafter.schedule)) / self.step[target][1]
        tokens = expected_tokens(statistics.acceptance_rate, drafter.width)
        return float(improvement(tokens, drafting))

    def entries(self, target: str) -> dict[str, Any]:
        """By model: milliseconds per call, c, and v, by number of fed tokens."""
        return {
            name: {
                "step_ms": {str(width): ms for width, ms in widths.items()},
                "c": widths[1] / self.step[target][1],
                "v": {str(width): ms / widths[1] for width, ms in widths.items()},
            }
            for name, widths in self.step.items()
        }


def measure(watch: Stopwatch, drafters: Sequence[Drafter], target: str) -> Costs:
    """Times the calls that the figures of drafters rest on.

    A call that opens a draft is timed behind a step of the target: that step has driven a small
    model's weights out of the processor's caches. Later calls of the draft find them there, as
    they do in a loop of their own.
    """
    calls, first, step = needed(drafters, target), openings(drafters), Call(target, 1, 1)
    turns = [(step, call) if call in first else (call,) for call in calls]
    took = dict(zip(calls, watch.milliseconds(turns), strict=True))
    found: dict[str, dict[int, float]] = {}
    for call, ms in took.items():
        alone = ms - took[step] if call in first else ms
        found.setdefault(call.model, {})[call.tokens] = max(alone, SHORTEST)
    return Costs(found)


def standardized_walltime_improvement(
    statistics: Statistics, parameters: dict[str, int], target: str
) -> float:
    """Tokens per cost of all calls, each call priced by its model's size (methods.md 3.5)."""
    if not statistics.rounds:
        return 0.0
    costs = cascade.relative_costs(parameters, target)
    calls = statistics.calls
    return float(
        cascade.standardized_walltime_improvement(
            statistics.tokens, list(calls.values()), [costs[name] for name in calls]
        )
    )
