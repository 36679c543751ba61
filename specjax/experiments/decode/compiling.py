"""Compiles every program of a decode experiment once before decoding."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from specjax.data.batching import Batch
from specjax.experiments.decode.session import Session
from specjax.runtime.programs import side_by_side
from specjax.runtime.progress import progress

MOST_AHEAD = 48
"""Most programs to compile before the first decode; a process holds a limited number."""


@dataclasses.dataclass
class Program:
    """A program, and the strategies and shapes that run it."""

    compile: Callable[[], Any]
    runs: list[tuple[str, tuple[int, ...]]]


def compile_programs(session: Session, batches: Sequence[Batch]) -> None:
    """Compiles all strategies for the shapes of batches; seconds are kept in `session.compiled`.

    Strategies that differ only in traced numbers share a program and its seconds.
    """
    programs = list(missing_programs(session, batches).values())
    compilers = {index: program.compile for index, program in enumerate(programs)}
    with progress(total=len(programs), desc="compile", unit="program", smoothing=0) as bar:
        for index, seconds in side_by_side(compilers):
            session.compiled.update(dict.fromkeys(programs[index].runs, seconds))
            bar.update()


def missing_programs(session: Session, batches: Sequence[Batch]) -> dict[Hashable, Program]:
    """Programs of batches that are not compiled yet, by JAX's cache key."""
    programs: dict[Hashable, Program] = {}
    for batch in batches:
        first = next(iter(session.generators.values()))
        keys = first.keys(batch, session.config.seed)  # the same for all
        for name, generator in session.generators.items():
            run = name, batch.shape
            if run in session.compiled:
                continue
            arguments = session.arm_selectors[name].run_arguments(0, batch)
            compiler = functools.partial(generator.compile, batch, keys, **arguments)
            program = generator.program(batch, keys, **arguments)
            programs.setdefault(program, Program(compiler, [])).runs.append(run)
    return programs


def shape_groups(batches: Sequence[Batch], strategies: int) -> list[list[list[int]]]:
    """Indices of batches by shape, in groups whose programs are compiled together."""
    shapes: dict[tuple[int, ...], list[int]] = {}
    for index, batch in enumerate(batches):
        shapes.setdefault(batch.shape, []).append(index)
    size = max(MOST_AHEAD // strategies, 1)
    indices = list(shapes.values())
    return [indices[start : start + size] for start in range(0, len(indices), size)]
