"""The time that a search may take."""

from __future__ import annotations

import time


class OutOfTime(Exception):
    """The budget is used up; what was measured so far stands."""


class Budget:
    """Seconds since its making, and those that earlier calls of an interrupted search took."""

    def __init__(self, seconds: float, spent: float = 0.0) -> None:
        self.seconds = seconds
        self._start = time.perf_counter() - spent

    @property
    def spent(self) -> float:
        return time.perf_counter() - self._start

    def check(self) -> None:
        """Called before every piece of work; what has begun is finished.

        Raises:
          OutOfTime: when nothing is left.
        """
        if self.spent >= self.seconds:
            raise OutOfTime
