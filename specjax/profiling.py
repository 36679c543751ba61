"""Writes a profiler trace of a few rounds of a decode, for TensorBoard, XProf or Perfetto."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jax

from specjax.api import Generator
from specjax.data.batching import Prompt
from specjax.decoding.loop import advance_jitted, begin_jitted


def profile(
    generator: Generator,
    prompts: Sequence[str] | Sequence[Prompt],
    folder: str | Path,
    *,
    rounds: int,
    seed: int = 0,
) -> int:
    """Writes a `jax.profiler` trace of the first `rounds` rounds of one batch under `folder`.

    Rounds are dispatched one by one, as in streaming, and numbered in the trace. Compilation and
    prompt reading are left out. Returns the number of rounds that there were to profile.
    """
    ids = generator.encode(prompts)
    batch = generator.batch(ids, generator.padded_size(len(ids)))
    keys = generator.keys(batch, seed)
    decoder, params, *args = generator.arguments(batch, keys)
    advance_jitted(decoder, params, begin_jitted(decoder, params, *args), 1)
    state = jax.block_until_ready(begin_jitted(decoder, params, *args))
    done = 0
    with jax.profiler.trace(str(folder)):
        while done < rounds and bool(state.context.active.any()):
            with jax.profiler.StepTraceAnnotation("round", step_num=done):
                state = jax.block_until_ready(advance_jitted(decoder, params, state, 1))
            done += 1
    return done
