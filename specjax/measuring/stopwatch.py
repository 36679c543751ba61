"""Times model calls on this device, each in a jitted loop of its own."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.contracts.context import fold_keys
from specjax.contracts.spec import Call
from specjax.models.base import Cache, LanguageModel, Params, Resume
from specjax.models.shapes import make_placeholder_prompts, start_cache
from specjax.runtime.programs import side_by_side
from specjax.runtime.progress import progress
from specjax.sampling import Sampling, adjust, argmax, draw

STEPS = 8
"""Turns of a timed loop: many short trials sample a machine better than few long ones."""


_prefill = jax.jit(start_cache, static_argnames=("model", "capacity", "ahead"))
"""The cache after a prompt, shared by all loops of a model, so that none compiles an encoder."""


@functools.partial(jax.jit, static_argnames=("models", "calls", "capacity"))
def _call_often(
    models: tuple[tuple[str, LanguageModel], ...],
    params: dict[str, Params],
    caches: dict[str, Cache],
    calls: tuple[Call, ...],
    capacity: int,
    settings: Sampling,
    steps: jax.Array,
) -> jax.Array:
    """`steps` turns in one program; in a turn the calls are made one after another.

    Logits are those of the last tokens fed.
    """
    rows = next(iter(caches.values())).length.shape[0]
    keys = jax.random.split(jax.random.key(0), rows)

    def make(call: Call, index: jax.Array, carry: tuple[Any, ...]) -> tuple[Any, ...]:
        token, caches = carry
        model = dict(models)[call.model]
        output, cache = _call(model, params[call.model], caches[call.model], call, token)
        # Stays inside the buffer; the position does not change the cost of masked attention.
        cache = cache.replace(length=jnp.minimum(cache.length, capacity - 2 * call.tokens))
        return _choose_token(output, settings, fold_keys(keys, index)), {
            **caches,
            call.model: cache,
        }

    def turn(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        index, rest = carry[0], carry[1:]
        for call, same in itertools.groupby(calls):
            again, times = functools.partial(make, call), len(list(same))
            if times == 1:
                rest = again(index, rest)
            else:
                rest = jax.lax.fori_loop(index, index + times, again, rest)
        return index + 1, *rest

    token = jnp.zeros((rows, 1), jnp.int32)
    return jax.lax.while_loop(lambda c: c[0] < steps, turn, (0, token, caches))[1]


def _call(
    model: LanguageModel, weights: Params, cache: Cache, call: Call, token: jax.Array
) -> tuple[jax.Array, Cache]:
    """Runs a call on copies of token [B, 1]; returns logits [B, A, V], or states without logits.

    A read-out uses those copies as states and leaves the cache unchanged.
    """
    batch, width = token.shape[0], call.tokens
    at = jnp.broadcast_to(jnp.arange(width - call.logits, width), (batch, call.logits))
    resume = None
    if call.resume_from or call.read_out:
        shape = batch, width, getattr(model.config, "residual_width", model.config.d_model)
        states = jnp.broadcast_to(token[..., None], shape).astype(model.config.dtype)
        if call.read_out:
            return model.read_out(weights, states), cache
        resume = Resume(states, call.resume_from)
    output, cache = model.extend(
        weights,
        jnp.broadcast_to(token, (batch, width)),
        cache,
        at=None if call.logits == width else at,
        exit=call.exit,
        resume=resume,
    )
    result = output.logits if call.logits else output.hidden
    if result is None:
        raise ValueError(f"{call.model!r} gives no states, and this call of it has no logits")
    return result, cache


def _choose_token(logits: jax.Array, settings: Sampling, keys: jax.Array) -> jax.Array:
    """A token [B, 1] that depends on every position of logits [B, A, V]."""
    if settings.greedy:
        return jnp.max(argmax(logits), axis=1, keepdims=True)
    rows, places, vocabulary = logits.shape
    probs = adjust(logits, settings).reshape(-1, vocabulary)
    drawn = draw(jnp.repeat(keys, places), probs).reshape(rows, places)
    return jnp.max(drawn, axis=1, keepdims=True)


@dataclasses.dataclass(frozen=True)
class Stopwatch:
    """Times calls of named models at one shape of batch, prompt and cache.

    A call chooses one token by `sampling`, from the distributions of all its positions. A trial is
    a loop of `steps` turns.
    """

    models: dict[str, LanguageModel]
    params: dict[str, Params]
    batch: int = 1
    prompt: int = 16
    capacity: int = 96
    sampling: Sampling = dataclasses.field(default_factory=lambda: Sampling(greedy=True))
    steps: int = STEPS

    def timing(self, turns: Sequence[tuple[Call, ...]]) -> Timing:
        """Compiles the loop of every turn of calls, and runs each once."""
        widest = max((call.tokens for turn in turns for call in turn), default=1)
        capacity = max(self.capacity, 3 * widest)
        caches = self._caches(turns, capacity, 2 * widest)
        runs = [self._loop(turn, caches, capacity) for turn in turns]
        compilers = {str(n): functools.partial(_compile, run) for n, run in enumerate(runs)}
        for _ in progress(
            side_by_side(compilers), desc="compile call costs", total=len(runs), unit="program"
        ):
            pass
        for run in runs:
            run(jnp.int32(1)).block_until_ready()
        return Timing(runs, self.steps)

    def _caches(
        self, turns: Sequence[tuple[Call, ...]], capacity: int, ahead: int
    ) -> dict[str, Cache]:
        """The cache after a prompt of every model that is called, by its name."""
        caches = {}
        for name in dict.fromkeys(call.model for turn in turns for call in turn):
            model = self.models[name]
            prompt = make_placeholder_prompts(model.info.input, self.batch, self.prompt)
            length = jnp.full(self.batch, self.prompt, jnp.int32)
            caches[name] = _prefill(model, self.params[name], prompt, length, capacity, ahead=ahead)
        return caches

    def _loop(
        self, turn: tuple[Call, ...], caches: dict[str, Cache], capacity: int
    ) -> functools.partial[jax.Array]:
        """The loop of a turn, as a function of how often it is taken."""
        names = dict.fromkeys(call.model for call in turn)
        return functools.partial(
            _call_often,
            tuple((name, self.models[name]) for name in names),
            {name: self.params[name] for name in names},
            {name: caches[name] for name in names},
            turn,
            capacity,
            self.sampling,
        )


def _compile(run: functools.partial[jax.Array]) -> None:
    _call_often.lower(*run.args, jnp.int32(1)).compile()


class Timing:
    """Trials of turns of calls, one whenever `take` is called.

    A machine's speed drifts from minute to minute; trials between the decodes see the same drift.
    """

    def __init__(self, runs: Sequence[Callable[[jax.Array], jax.Array]], steps: int) -> None:
        self.runs, self.steps = runs, steps
        self.trials: list[list[float]] = []

    def take(self) -> None:
        """Times every turn once: the difference of two run lengths of one jitted loop.

        So dispatch does not count.
        """
        self.trials.append([_milliseconds(run, self.steps) for run in self.runs])

    def milliseconds(self) -> np.ndarray:
        """Milliseconds [trials, turns] of each turn, including the choice of a token."""
        return np.array(self.trials)


def _milliseconds(run: Callable[[jax.Array], jax.Array], steps: int) -> float:
    _seconds(run, 0)  # compiles if the program was dropped
    return (_seconds(run, steps) - _seconds(run, 0)) / steps * 1e3


def _seconds(run: Callable[[jax.Array], jax.Array], steps: int) -> float:
    start = time.perf_counter()
    run(jnp.int32(steps)).block_until_ready()
    return time.perf_counter() - start
