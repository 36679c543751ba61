"""One run at a time in a workdir."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from specjax import hosts
from specjax.errors import UserError

LOCK = ".specjax.lock"
"""In a workdir while a run is in it: which process that is."""

_RETRY = 0.2
"""Seconds of further attempts: a holder that ends removes the file that was just opened."""


@contextlib.contextmanager
def alone_in(field: str, folder: Path) -> Iterator[None]:
    """Keeps other runs out of a folder, which is made; leaves it as it was if nothing is added.

    The lock is the kernel's: it ends with the process that holds it, however that ends. Processes
    of one run count as one. Where the file system has no locks nobody is kept out.

    Raises:
      UserError: naming the process that is in there.
    """
    with contextlib.ExitStack() as held:
        holder = _enter(held, folder) if hosts.is_first() else ""
        if holder := hosts.from_first(holder):
            raise UserError(
                f"{field} {str(folder)!r} is in use by {holder}; wait for its end, or name another"
                " folder"
            )
        yield


def _enter(held: contextlib.ExitStack, folder: Path) -> str:
    """Takes the lock until `held` ends; who else has it, if somebody has."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    held.callback(_remove_empty, made)
    file = folder / LOCK
    try:
        held.enter_context(FileLock(file, timeout=_RETRY, fallback_to_soft=False))
    except Timeout:
        with contextlib.suppress(FileNotFoundError):  # released since
            return file.read_text("utf-8").strip() or "another process"
        return "another process"
    except OSError as error:
        if error.filename:  # the file cannot be opened; else the file system has no locks
            raise
    held.callback(file.unlink, missing_ok=True)
    file.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", "utf-8")
    return ""


def _remove_empty(folders: list[Path]) -> None:
    """Removes folders, the inner ones first, as long as nothing is in them."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
