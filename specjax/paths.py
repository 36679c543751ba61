"""Paths as users write them: also those that the system could never have."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from specjax.errors import UserError

SHOWN = 200
"""Characters of a path that a refusal shows."""


def expanded(name: str | Path) -> Path:
    """The path with the home directory for `~`; of an unknown user it stays as it is."""
    return Path(os.path.expanduser(name))


def shortened(name: str | Path) -> str:
    """A path as a refusal shows it."""
    text = str(name)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def check_regular(file: str | Path) -> None:
    """Refuses a pipe or a device, which may never end; what is not there passes.

    Raises:
      UserError: naming it.
    """
    try:
        mode = os.stat(file).st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UserError(f"{shortened(file)!r} is a pipe or a device; it must be a file")
