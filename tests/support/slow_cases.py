"""Cases of a test of which only some are fast."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def some_slow(cases: Iterable[Any], *fast: Any) -> list[Any]:
    """All the cases; those that are not among the fast ones are marked as slow.

    A case of several arguments is a tuple.
    """
    return [one if one in fast else mark_slow(one) for one in cases]


def mark_slow(case: Any) -> Any:
    """The case, as one that runs among the slow tests only."""
    arguments = case if isinstance(case, tuple) else (case,)
    return pytest.param(*arguments, marks=pytest.mark.slow)
