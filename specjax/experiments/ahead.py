"""Compiles programs in the background during training, which leaves processors idle."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import jax

from specjax.data.pipeline import Arrays
from specjax.decoding.loop import generate
from specjax.decoding.strategy import Strategy
from specjax.experiments.config.placement import decode_mesh
from specjax.experiments.decode.first_look import choose_shown
from specjax.experiments.decode.planning import Plan, abstract_decode
from specjax.models.shapes import get_parameter_shapes
from specjax.training.step import Setup, train_step

Task = Callable[[], None]


@contextlib.contextmanager
def compile_ahead(tasks: Sequence[Task]) -> Iterator[None]:
    """Runs the tasks in order in a background thread until the block ends.

    Waits at the end for the task that is running. JAX's cache holds the compiled programs.
    """
    with ThreadPoolExecutor(1) as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            yield
        finally:
            pool.shutdown(cancel_futures=True)
    for task in futures:
        if not task.cancelled():
            task.result()


def steps(setups: Sequence[Setup], batch: Arrays) -> list[Task]:
    """Tasks that compile training steps for the shape of this batch."""
    return [functools.partial(_compile_step, setup, batch) for setup in setups]


def decodes(plan: Plan) -> list[Task]:
    """Tasks that compile decodes of one prompt bucket, those of the first example first.

    None on a mesh, without a bucket, or for a strategy with tables: how large these are is not
    known yet.
    """
    config, strategies = plan.config, plan.strategies
    if decode_mesh(config) is not None or not config.bucket:
        return []
    config = config.copy_and_resolve_references()
    config.max_prompt_tokens = config.bucket
    short = dataclasses.replace(plan, config=config)
    return [
        functools.partial(_compile_decode, short, strategies[name])
        for name in dict.fromkeys((*choose_shown(strategies), *strategies))
        if not strategies[name].drafter.spec.resources
    ]


def _compile_step(setup: Setup, batch: Arrays) -> None:
    params = get_parameter_shapes(setup.model)
    train_step.lower(setup, jax.eval_shape(setup.start, params), {}, batch).compile()


def _compile_decode(plan: Plan, strategy: Strategy) -> None:
    decoder, arguments = abstract_decode(plan, strategy)
    generate.lower(decoder, *arguments).compile()
