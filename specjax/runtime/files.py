"""Files of a run: user paths, atomic writes, a workdir's lock."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import shutil
import socket
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from specjax.runtime import processes
from specjax.runtime.errors import UserError

SHOWN = 200
"""Most characters of a path in an error message."""


def expand_path(name: str | Path) -> Path:
    """Expands `~` in a path; unchanged for an unknown user."""
    return Path(os.path.expanduser(name))


def shorten_path(name: str | Path) -> str:
    """Shortens a path for an error message."""
    text = str(name)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def check_regular(file: str | Path) -> None:
    """Refuses a pipe or a device, which may never end; missing files pass.

    Raises:
      UserError: naming it.
    """
    try:
        mode = os.stat(file).st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise UserError(f"{shorten_path(file)!r} is a pipe or a device; it must be a file")


MANIFEST = ".specjax.json"
"""File in every written folder: the names of the files that were written."""
_PROBE = 2**16
"""Free bytes that a folder must have."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error codes of a full disk, quota or process limit."""

_FILES = (
    ".csv", ".html", ".json", ".jsonl", ".lock", ".md", ".npz", ".pdf", ".png", ".py",
    ".safetensors", ".svg", ".tex", ".txt",
)  # fmt: skip
"""Endings of files, never of folders, that jobs write into their workdirs."""


def check_folder(field: str, folder: Path) -> None:
    """Refuses a folder that cannot be created or written to; removes its test files.

    Raises:
      UserError: naming the field and the system's error.
    """
    try:
        # The nearest existing parent is unchanged: only folders created here are removed.
        made = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as probe:
                probe.write(bytes(_PROBE))
        finally:
            for path in made:
                with contextlib.suppress(OSError):
                    path.rmdir()
    except (OSError, ValueError) as error:
        # A null byte is a ValueError.
        reason = getattr(error, "strerror", None) or error
        shown = shorten_path(folder)
        raise UserError(f"{field} {shown!r} cannot be written to: {reason}") from None
    _check_no_folders(field, folder)


def _check_no_folders(field: str, folder: Path) -> None:
    """Refuses folders with names of files that a run writes: it would fail at its end."""
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(folder.iterdir()):
            if entry.suffix in _FILES and entry.is_dir():
                raise UserError(
                    f"{field} {shorten_path(folder)!r} has a folder {entry.name!r}, where a run "
                    "has a"
                    " file; name another folder, or move that away"
                )


@contextlib.contextmanager
def naming_write_errors(field: str, folder: Path) -> Iterator[None]:
    """Replaces the system's errors about a folder that a run writes to.

    Raises:
      UserError: naming the field when the disk is full, or a file in the folder cannot be used.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        shown = shorten_path(folder)
        if is_full(error):
            raise UserError(
                f"{field} {shown!r} has no room for what is written; all that was written whole is"
                " kept: make room and start the same run again, which resumes from there"
            ) from None
        if isinstance(error, OSError) and (name := _name_in(folder, error)):
            raise UserError(
                f"{field} {shown!r} has a {name!r} that cannot be used: {error.strerror}"
            ) from None
        raise


def is_full(error: BaseException | None) -> bool:
    """Whether an error, or one of its causes, is of a full disk.

    Libraries in C++ and Rust only pass on the system's message.
    """
    while error is not None:
        words = str(error)
        if getattr(error, "errno", None) in _FULL or any(os.strerror(n) in words for n in _FULL):
            return True
        error = error.__cause__ or error.__context__
    return False


def _name_in(folder: Path, error: OSError) -> str:
    """The file of a folder that a system error is about; empty if none."""
    file = getattr(error, "filename2", None) or getattr(error, "filename", None)
    if not isinstance(file, (str, Path)):
        return ""
    inside = os.path.relpath(file, folder)
    return "" if inside.startswith(os.pardir) else inside


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A temporary path next to `file`, which it replaces on success.

    Only the first process writes; writes of other processes are discarded.
    """
    if not processes.is_first():
        with tempfile.TemporaryDirectory() as nowhere:
            yield Path(nowhere) / file.name
        return
    partial = file.with_name(f".{file.stem}.partial{file.suffix}")
    try:
        yield partial
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """A temporary directory, which replaces `path` on success.

    Only the files of an earlier export are replaced; other files remain. A crash leaves the old
    directory or the new one; between the two renames, both under a hidden name next to it.

    Raises:
      UserError: when `path` holds something and was not written here, or one of its files that
        are not its own would be overwritten.
    """
    path = path.resolve()
    own = _own_files(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        partial, replaced = Path(folder) / path.name, Path(folder) / "replaced"
        partial.mkdir()
        yield partial
        _write_manifest(partial)
        if path.exists():
            _keep_others(path, partial, own)
            path.rename(replaced)
        try:
            partial.rename(path)
        except OSError:
            if replaced.exists():
                replaced.rename(path)
            raise


def _own_files(path: Path) -> set[str]:
    """Files of an earlier export; empty for an empty or missing directory."""
    if not path.exists():
        return set()
    if not path.is_dir():
        raise UserError(f"{str(path)!r} is a file; a folder would be written there")
    names = sorted(entry.name for entry in path.iterdir())
    if not names:
        return set()
    try:
        files = json.loads((path / MANIFEST).read_text("utf-8"))["files"]
        return {MANIFEST, *map(str, files)}
    except (OSError, ValueError, KeyError, TypeError):
        raise UserError(
            f"folder {str(path)!r} holds {names[0]!r} and has no {MANIFEST} of an earlier export;"
            " name a new or empty folder"
        ) from None


def _write_manifest(path: Path) -> None:
    files = sorted(f.relative_to(path).as_posix() for f in path.rglob("*") if f.is_file())
    (path / MANIFEST).write_text(json.dumps({"files": files}, indent=2) + "\n", "utf-8")


def _keep_others(old: Path, new: Path, own: set[str]) -> None:
    """Links other files and folders of `old` into `new`."""

    def list_ignored(folder: str, names: list[str]) -> list[str]:
        inside = Path(folder).relative_to(old)
        return [name for name in names if (inside / name).as_posix() in own]

    def link(source: str, target: str) -> None:
        if os.path.lexists(target):
            name = Path(target).relative_to(new).as_posix()
            raise UserError(f"folder {str(old)!r} has a {name!r} of its own, which is not replaced")
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:  # a file system without links
            shutil.copy2(source, target)

    shutil.copytree(
        old, new, symlinks=True, ignore=list_ignored, copy_function=link, dirs_exist_ok=True
    )


def write_text(file: Path, text: str) -> None:
    """Writes text."""
    with replacing(file) as partial:
        partial.write_text(text, "utf-8")


def write_csv(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Writes one line per row under the names of all fields; a field that a row lacks is empty."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with replacing(file) as partial, partial.open("w", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, names)
        writer.writeheader()
        writer.writerows(rows)


LOCK = ".specjax.lock"
"""File in a workdir during a run: its process."""

_RETRY = 0.2
"""Seconds of retries: an ending holder removes the file that was just opened."""


@contextlib.contextmanager
def alone_in(field: str, folder: Path) -> Iterator[None]:
    """Creates and locks a folder for one run; removes it again if nothing is added.

    The lock is the kernel's: it ends with the process that holds it. Processes of one run count as
    one. File systems without locks exclude no one.

    Raises:
      UserError: naming the process that holds the lock.
    """
    with contextlib.ExitStack() as held:
        holder = _enter(held, folder) if processes.is_first() else ""
        if holder := processes.from_first(holder):
            raise UserError(
                f"{field} {str(folder)!r} is in use by {holder}; wait for its end, or name another"
                " folder"
            )
        yield


def _enter(held: contextlib.ExitStack, folder: Path) -> str:
    """Takes the lock until `held` ends; otherwise returns its holder."""
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
        if error.filename:  # the file cannot be opened; other errors: no locks on the file system
            raise
    held.callback(file.unlink, missing_ok=True)
    file.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", "utf-8")
    return ""


def _remove_empty(folders: list[Path]) -> None:
    """Removes empty folders, the inner ones first."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()
