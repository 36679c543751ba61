"""Other numbers for what is a long text, so that short ones take its ways."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jax
import pytest

from specjax.models import attention, causal, prefill


@contextlib.contextmanager
def sizes(**numbers: int) -> Iterator[None]:
    """Other numbers for what is long; no program traced under them is left to other tests."""
    jax.clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        for module in (attention, causal, prefill):
            for name, number in numbers.items():
                if hasattr(module, name):
                    patch.setattr(module, name, number)
        yield
    jax.clear_caches()
