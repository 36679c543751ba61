"""The names of fields that are ignored, for transformers does not declare them."""

from __future__ import annotations

import contextlib
import contextvars
import textwrap
from collections.abc import Iterator

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"

LONGEST_NAME = 80
"""Characters of a field's name in a note."""

Ignored = dict[str, list[str]]
"""Names of ignored fields by the file that has them."""

_IGNORED: contextvars.ContextVar[Ignored | None] = contextvars.ContextVar("ignored", default=None)
_PARTS: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("parts", default=())


@contextlib.contextmanager
def collect_ignored() -> Iterator[Ignored]:
    """Collects the names of the fields that are ignored inside of the block."""
    ignored: Ignored = {}
    token = _IGNORED.set(ignored)
    try:
        yield ignored
    finally:
        _IGNORED.reset(token)


@contextlib.contextmanager
def part(name: str) -> Iterator[None]:
    """Names the object inside of `config.json` whose fields are read in the block."""
    token = _PARTS.set((*_PARTS.get(), name))
    try:
        yield
    finally:
        _PARTS.reset(token)


def ignore(name: str, file: str = CONFIG_FILE) -> None:
    """Adds a field to those that the surrounding block collects."""
    ignored = _IGNORED.get()
    if ignored is not None:
        names = ignored.setdefault(file, [])
        path = ".".join((*_PARTS.get(), name)) if file == CONFIG_FILE else name
        word = textwrap.shorten(path, LONGEST_NAME)
        if word not in names:
            names.append(word)


@contextlib.contextmanager
def note_ignored(subject: str) -> Iterator[None]:
    """Prints one line that names the fields of `subject` that the block ignored, if any."""
    with collect_ignored() as ignored:
        yield
    if ignored:
        files = (f"ignored in {file}: {', '.join(names)}" for file, names in ignored.items())
        print(f"{subject}: {'; '.join(files)}")
