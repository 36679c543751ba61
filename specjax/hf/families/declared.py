"""Which fields transformers declares, and the names of those that are ignored without it."""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import functools
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

CONFIG_FILE = "config.json"
GENERATION_FILE = "generation_config.json"

LONGEST_NAME = 80
"""Characters of a field's name in a note."""

Ignored = dict[str, list[str]]
"""Names of ignored fields by the file that has them."""

_IGNORED: contextvars.ContextVar[Ignored | None] = contextvars.ContextVar("ignored", default=None)
_PARTS: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("parts", default=())


@functools.cache
def declared_by(model_type: str) -> Callable[[], Mapping[str, Any]]:
    """A function of the fields that a model type's configuration class declares: their defaults."""
    return functools.cache(functools.partial(_declared_by, model_type))


def _declared_by(model_type: str) -> Mapping[str, Any]:
    from transformers import CONFIG_MAPPING  # slow to import

    fields = dataclasses.fields(CONFIG_MAPPING[model_type])
    return {field.name: _default(field) for field in fields}


@functools.cache
def declared_for_generation() -> Mapping[str, Any]:
    """The fields that transformers' `GenerationConfig` declares, and their defaults."""
    from transformers import GenerationConfig  # slow to import

    return vars(GenerationConfig())


def _default(field: dataclasses.Field) -> Any:
    """A field's default, and for a field without one what equals no value."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


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
