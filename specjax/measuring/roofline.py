"""The memory bandwidth bound of a decode step.

Decoding one token does two operations for each weight it reads, so the time of reading is a lower
bound that a step can approach but, with weights in main memory, not pass.
"""

from __future__ import annotations

import functools
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.metrics.operations import transformer_shape
from specjax.models.base import LanguageModel

COPIED = 2**28
"""Bytes of the copied buffer: many times what processor caches hold."""

RUNS = 9


@functools.partial(jax.jit, donate_argnums=0)
def _copy(x: jax.Array) -> jax.Array:
    # Donates the buffer: on CPU a new one spends its time in page faults.
    return -x


def copy_bandwidth(size: int = COPIED, runs: int = RUNS) -> float:
    """Bytes per second that one device reads and writes together, the median of `runs` copies."""
    buffer = _copy(jnp.ones(size // 4, jnp.float32)).block_until_ready()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        buffer = _copy(buffer).block_until_ready()
        times.append(time.perf_counter() - start)
    return 2 * size / statistics.median(times)


def step_bytes(model: LanguageModel, batch: int, cached: float, source: float) -> float:
    """Bytes of weights and caches that a one-token step of `batch` rows must read.

    `cached` tokens are in each row's cache; `source` is the length of its encoder text, which a
    decoder-only model ignores. Mixtures count the experts that the tokens are expected to use.
    """
    shape = transformer_shape(model)
    weights = float(shape.read_weights(batch)) + shape.output_weights
    keys = cached + source * shape.cross
    caches = batch * shape.attending_layers * shape.cached_width * keys
    states = batch * sum(one.state for one in shape.recurrent) * np.dtype(np.float32).itemsize
    return float((weights + caches) * np.dtype(model.config.dtype).itemsize + states)


def roofline(moved: float, bandwidth: float, measured_ms: float) -> dict[str, Any]:
    """The time bound of reading `moved` bytes, and the share that a measured step reaches."""
    bound = moved / bandwidth * 1e3
    return {
        "bytes_per_step": moved,
        "bandwidth": bandwidth,
        "bound_ms": bound,
        "measured_ms": measured_ms,
        "percent": 100 * bound / measured_ms,
    }
