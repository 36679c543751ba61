"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def no_programs_left_behind() -> Iterator[None]:
    """Drops a module's compiled programs: each takes memory maps, which a process has few of."""
    yield
    jax.clear_caches()
