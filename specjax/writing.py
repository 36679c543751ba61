"""Writing result files so that a crash leaves the old one or the new one, never a part."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """A path beside `file` to write to; it takes the place of `file` when all went well."""
    partial = file.with_name(f".{file.stem}.partial{file.suffix}")
    try:
        yield partial
        os.replace(partial, file)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def replacing_directory(path: Path) -> Iterator[Path]:
    """A directory to write into; it takes the place of `path` when all went well."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        partial = Path(folder) / path.name
        partial.mkdir()
        yield partial
        if path.exists():
            path.rename(Path(folder) / "replaced")
        partial.rename(path)


def write_json(file: Path, content: Any) -> None:
    """Writes JSON, indented."""
    with replacing(file) as partial:
        partial.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


def write_jsonl(file: Path, rows: list[dict[str, Any]]) -> None:
    """Writes one JSON object per line."""
    with replacing(file) as partial, open(partial, "w", encoding="utf-8") as out:
        for row in rows:
            out.write(json.dumps(row, ensure_ascii=False) + "\n")
