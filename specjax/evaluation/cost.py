"""What model calls cost on this device: the c and v of the speedup formulas."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from specjax.decoding.summary import Statistics
from specjax.models.base import LanguageModel, Params
from specjax.sampling import argmax
from specjax.theory import cascade
from specjax.theory.speculative import improvement

STEPS = 32
TRIALS = 5


@functools.partial(jax.jit, static_argnames=("model", "width", "capacity"))
def _extend_often(
    model: LanguageModel,
    params: Params,
    prompt: jax.Array,
    length: jax.Array,
    width: int,
    capacity: int,
    steps: jax.Array,
) -> jax.Array:
    """`steps` calls of `width` tokens in one program, each depending on the one before."""
    cache = model.start(params, prompt, length, capacity)
    batch = prompt.shape[0]

    def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        index, tokens, cache = carry
        output, fed = model.extend(params, tokens, cache)
        tokens = argmax(output.logits)
        # Stay inside the buffer; where exactly does not change the cost of masked attention.
        pointer = jnp.minimum(fed.length, capacity - 2 * width)
        return index + 1, tokens, fed.replace(length=pointer)

    tokens = jnp.zeros((batch, width), jnp.int32)
    return jax.lax.while_loop(lambda c: c[0] < steps, step, (0, tokens, cache))[1]


def step_ms(
    model: LanguageModel,
    params: Params,
    *,
    width: int = 1,
    batch: int = 1,
    prompt: int = 16,
    capacity: int = 96,
) -> float:
    """Milliseconds per call that extends `batch` rows by `width` tokens, argmax included.

    The difference of two run lengths of one jitted loop, so that neither dispatch nor the prompt
    counts; the best of a few trials.
    """
    capacity = max(capacity, 3 * width)
    args = (jnp.zeros((batch, prompt), jnp.int32), jnp.full(batch, prompt, jnp.int32))
    call = functools.partial(_extend_often, model, params, *args, width, capacity)
    call(jnp.int32(1)).block_until_ready()
    best = {steps: _best(lambda s=steps: call(jnp.int32(s))) for steps in (0, STEPS)}
    return max(best[STEPS] - best[0], 0.0) / STEPS * 1e3


def _best(run: Callable[[], jax.Array]) -> float:
    times = []
    for _ in range(TRIALS):
        start = time.perf_counter()
        run().block_until_ready()
        times.append(time.perf_counter() - start)
    return min(times)


@dataclasses.dataclass(frozen=True)
class Costs:
    """Measured call costs in milliseconds."""

    step: dict[str, float]  # one-token call by model
    verify: dict[int, float]  # target call by number of fed tokens, 1 included

    def predicted_speedup(self, statistics: Statistics, target: str, width: int) -> float:
        """E[tokens per round] / (K c + v) of a strategy whose drafter proposes `width` tokens.

        K c is the measured number of drafter calls per round times their cost relative to a
        target step, v the cost of the verification relative to it.
        """
        if not statistics.rounds:
            return 0.0
        drafting = sum(
            calls / statistics.rounds * self.step[name]
            for name, calls in statistics.calls.items()
            if name != target
        )
        step = self.verify[1]
        verification = self.verify[width + 1]
        tokens = statistics.tokens_per_target_call
        return float(improvement(tokens, drafting / step, verification / step))


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
