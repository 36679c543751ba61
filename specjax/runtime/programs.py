"""Compiles programs in parallel, and limits how many a process holds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, TypeVar

import jax

from specjax.runtime import processes

MOST_MAPS = 30_000
"""Most memory maps before programs are dropped; Linux allows a process 65,530."""

_MAPS = Path("/proc/self/maps")
_COMPILED = "/jax/core/compile/backend_compile_duration"

Name = TypeVar("Name", bound=Hashable)


class _Maps:
    """Counts the memory maps of this process; recounts only after compiling, as it is slow."""

    def __init__(self) -> None:
        self._count, self._changed = 0, True
        jax.monitoring.register_event_duration_secs_listener(self._note_compilation)

    def _note_compilation(self, event: str, duration_secs: float, **more: str | int) -> None:
        self._changed |= event == _COMPILED

    def count(self) -> int:
        """Number of memory maps, counted again if anything was compiled since."""
        if self._changed:
            self._changed = False
            self._count = len(_MAPS.read_bytes().splitlines()) if _MAPS.exists() else 0
        return self._count


_maps = _Maps()


def release_programs(most: int | None = None) -> bool:
    """Drops compiled programs when the process has more than `most` (`MOST_MAPS`) memory maps.

    Returns whether it did. On CPU each program takes hundreds of maps, and the compiler crashes
    when they run out. Until then programs are kept, so that a sweep compiles each once.
    """
    full = _maps.count() > (MOST_MAPS if most is None else most)
    if full:
        jax.clear_caches()
    return full


def side_by_side(compilers: Mapping[Name, Callable[[], Any]]) -> Iterator[tuple[Name, float]]:
    """Runs compiling functions in parallel, one per processor; yields names and seconds.

    Yields in the order of completion. XLA mostly compiles a program with one thread, outside of
    Python's lock. Processes of one run compile in the same order, so that they can wait for each
    other.
    """

    def measure_seconds(compile_one: Callable[[], Any]) -> float:
        start = time.perf_counter()
        compile_one()
        return time.perf_counter() - start

    workers = 1 if processes.has_several() else os.cpu_count()
    with ThreadPoolExecutor(workers) as pool:
        running = {
            pool.submit(measure_seconds, compiler): name for name, compiler in compilers.items()
        }
        try:
            for done in as_completed(running):
                yield running[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
