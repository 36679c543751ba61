"""One run at a time in a workdir."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from specjax import hosts
from specjax.errors import UserError

LOCK = ".specjax.lock"
"""In a workdir while a run is in it: which process that is."""


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
    while True:
        file = held.enter_context((folder / LOCK).open("a+", encoding="utf-8"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            return file.read().strip() or "another process"
        except OSError:
            pass  # there are no locks here
        if _still_there(file, folder / LOCK):
            break  # else its last holder has removed it since it was opened
    held.callback((folder / LOCK).unlink, missing_ok=True)
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
    file.flush()
    return ""


def _still_there(file: IO[str], path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    return False


def _remove_empty(folders: list[Path]) -> None:
    """Removes folders, the inner ones first, as long as nothing is in them."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
