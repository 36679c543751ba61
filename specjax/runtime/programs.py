"""Compiling programs side by side, and how many of them a process can hold."""

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
"""Memory maps beyond which programs are dropped; Linux allows a process 65,530."""

_MAPS = Path("/proc/self/maps")
_COMPILED = "/jax/core/compile/backend_compile_duration"

Name = TypeVar("Name", bound=Hashable)


class _Maps:
    """The memory maps of this process. Counting many takes long, and only programs add them."""

    def __init__(self) -> None:
        self._count, self._changed = 0, True
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, duration_secs: float, **more: str | int) -> None:
        self._changed |= event == _COMPILED

    def count(self) -> int:
        """How many there are, counted again if anything was compiled since."""
        if self._changed:
            self._changed = False
            self._count = len(_MAPS.read_bytes().splitlines()) if _MAPS.exists() else 0
        return self._count


_maps = _Maps()


def release_programs(most: int | None = None) -> bool:
    """Drops compiled programs when the process has more than `most` (`MOST_MAPS`) memory maps.

    Returns whether it did. On CPU each takes hundreds of them, and the compiler crashes when they
    run out. Until then they stay, so that a sweep compiles a program once.
    """
    full = _maps.count() > (MOST_MAPS if most is None else most)
    if full:
        jax.clear_caches()
    return full


def side_by_side(compilers: Mapping[Name, Callable[[], Any]]) -> Iterator[tuple[Name, float]]:
    """Runs functions that compile, one for each processor at a time; yields names and seconds.

    In the order in which they end. XLA works on one program with one thread most of the time, and
    outside of Python's lock. Processes of one run compile in one order, in which they can wait for
    each other.
    """

    def taken(compile_one: Callable[[], Any]) -> float:
        start = time.perf_counter()
        compile_one()
        return time.perf_counter() - start

    workers = 1 if processes.has_several() else os.cpu_count()
    with ThreadPoolExecutor(workers) as pool:
        running = {pool.submit(taken, compiler): name for name, compiler in compilers.items()}
        try:
            for done in as_completed(running):
                yield running[done], done.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
