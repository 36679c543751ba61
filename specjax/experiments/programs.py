"""How many compiled programs a process can hold."""

from __future__ import annotations

from pathlib import Path

import jax

MOST_MAPS = 30_000
"""Memory maps beyond which programs are dropped; Linux allows a process 65,530."""

_MAPS = Path("/proc/self/maps")


def release_programs(most: int = MOST_MAPS) -> None:
    """Drops compiled programs when they hold more than `most` memory maps.

    On CPU each takes hundreds of them, and the compiler crashes when they run out. Until then
    they stay, so that a sweep compiles a program once.
    """
    if _MAPS.exists() and len(_MAPS.read_bytes().splitlines()) > most:
        jax.clear_caches()
