"""Times model calls on this device, each in a jitted loop of its own."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

from specjax.drafting.base import Call
from specjax.models.base import LanguageModel, Params
from specjax.sampling import argmax

STEPS = 32
"""Turns of a timed loop."""


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

    def timing(self, turns: Sequence[tuple[Call, ...]]) -> Timing:
        """Compiles the loop of every turn of calls."""
        bar = tqdm(turns, desc="call costs", unit="program")
        return Timing([self._looped(turn) for turn in bar])

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


class Timing:
    """Trials of turns of calls, one whenever `take` is called.

    A machine is not the same from minute to minute: trials among the decodes meet what those met.
    """

    def __init__(self, runs: Sequence[Callable[[jax.Array], jax.Array]]) -> None:
        self.runs = runs
        self.trials: list[list[float]] = []

    def take(self) -> None:
        """Times every turn once: the difference of two run lengths of one jitted loop.

        So neither dispatch nor the prompt counts.
        """
        self.trials.append([_milliseconds(run) for run in self.runs])

    def milliseconds(self) -> np.ndarray:
        """Of each turn in each trial [trials, turns], argmax included."""
        return np.array(self.trials)


def _milliseconds(run: Callable[[jax.Array], jax.Array]) -> float:
    _seconds(run, 0)  # compiles where the program was dropped
    return (_seconds(run, STEPS) - _seconds(run, 0)) / STEPS * 1e3


def _seconds(run: Callable[[jax.Array], jax.Array], steps: int) -> float:
    start = time.perf_counter()
    run(jnp.int32(steps)).block_until_ready()
    return time.perf_counter() - start
