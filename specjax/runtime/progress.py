"""Progress of long work: a bar on a terminal, occasional lines in a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from tqdm import tqdm

EVERY = 30.0
"""Seconds between two lines of a log; shorter work prints none."""

UNNOTICED = 1.0
"""Seconds after which work that is mostly short shows a bar (`delay`)."""

_LINE = "{desc}: {n_fmt}/{total_fmt} {unit} [{elapsed}<{remaining}{postfix}]"


def progress(items: Iterable[Any] | None = None, **settings: Any) -> tqdm:
    """A progress bar with tqdm's settings, or lines without a terminal."""
    if sys.stderr.isatty():
        return tqdm(items, **settings)
    return _Lines(items, **settings | {"bar_format": _LINE, "mininterval": EVERY, "delay": EVERY})


class _Lines(tqdm):
    """Prints whole lines in place of a redrawn bar."""

    _time: Callable[[], float]  # tqdm's clock
    _said = 0.0, 0  # when the last line was written, after how many items

    @property
    def format_dict(self) -> dict[str, Any]:
        """Adds the colon that an initial description lacks, unlike a later one."""
        values = super().format_dict
        return {**values, "prefix": (values["prefix"] or "").removesuffix(": ")}

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Prints a line if the last one is old enough, also for a changed description.

        Returns nothing, because there is nothing to clear.
        """
        if msg is None and self._time() - max(self._said[0], self.start_t) >= EVERY:
            self._say()

    def clear(self, nolock: bool = False) -> None:
        """Does nothing: lines are not cleared."""

    def close(self) -> None:
        """Prints a last line for long work."""
        long = not self.disable and self._time() - self.start_t >= EVERY
        if long and self._said[1] < self.n:
            self._say()
        self.leave = False
        super().close()

    def _say(self) -> None:
        self._said = self._time(), self.n
        self.fp.write(f"{self}\n")
