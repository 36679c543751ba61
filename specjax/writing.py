"""Files that a crash leaves whole: the old ones or the new ones, or all lines but the last."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specjax import hosts
from specjax.errors import UserError

MANIFEST = ".specjax.json"
"""In every folder written here: the names of the files that are its own."""
_PROBE = 2**16
"""Bytes that a folder must have room for."""

_SHOWN = 200
"""Characters of a path that a refusal shows."""


def check_folder(field: str, folder: Path) -> None:
    """Refuses a folder that cannot be made or written to; leaves nothing behind.

    Raises:
      UserError: naming the field and what the system says.
    """
    try:
        # The nearest parent that is there keeps what it holds: only what is made here goes again.
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
        shown = str(folder) if len(str(folder)) <= _SHOWN else f"{str(folder)[:_SHOWN]}..."
        raise UserError(f"{field} {shown!r} cannot be written to: {reason}") from None


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A path beside `file` to write to; it takes the place of `file` when all went well.

    Of several processes the first one writes; what others write goes nowhere.
    """
    if not hosts.is_first():
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
    """A directory to write into; it takes the place of `path` when all went well.

    Of an earlier one only its own files are replaced: what others put there stays. A crash leaves
    the old directory or the new one; between the two renames, both under a hidden name beside it.

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
    """Files of a directory written here; none when it is empty or not there."""
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
    """Links into `new` what is in `old` and not its own, folders included."""

    def passed_over(folder: str, names: list[str]) -> list[str]:
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
        old, new, symlinks=True, ignore=passed_over, copy_function=link, dirs_exist_ok=True
    )


def write_json(file: Path, content: Any) -> None:
    """Writes JSON, indented."""
    with replacing(file) as partial:
        partial.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


def write_jsonl(file: Path, rows: list[dict[str, Any]]) -> None:
    """Writes one JSON object per line."""
    with replacing(file) as partial, open(partial, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")


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


def whole_lines(file: Path) -> list[dict[str, Any]]:
    """The rows of a file; a last line that a kill cut off is removed.

    Raises:
      UserError: when another line is damaged.
    """
    if not file.exists():
        return []
    text = file.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        with file.open("r+b") as opened:
            opened.truncate(len(whole))
    lines = whole.decode("utf-8", "replace").split("\n")
    return [_row(file, number, line) for number, line in enumerate(lines, start=1) if line]


def _row(file: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        row = None
    if not isinstance(row, dict):
        raise UserError(
            f"{str(file)!r} line {number} is damaged; remove the file, or use another workdir"
        )
    return row
