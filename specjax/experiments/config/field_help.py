"""`--help`: what a config is for, and its fields with their values and a line about each.

The lines are the comments beside the fields' defaults in `MODULES`.
"""

from __future__ import annotations

import ast
import inspect
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from specjax.experiments.config import defaults, online, training, transcribing
from specjax.experiments.config.file import read_config

MODULES = (defaults, training, online, transcribing)
"""Where fields and their comments are."""

WIDTH = 100
"""Columns of help."""

_SET_BY = {"quickstart": "decode_config"}
"""The functions that set the fields of experiments, where they are not called after them."""

_SHOWN = 28
"""Columns of a field and its value, beside its comment."""


def config_help(place: str) -> str:
    """The docstring of a config file and a line for each of its fields.

    Raises:
      UserError: when the file gives no config.
    """
    config = read_config(place)
    source = Path(place.partition(":")[0]).read_text("utf-8")
    words = field_words(_SET_BY.get(config.experiment, f"{config.experiment}_config"))
    names = dict.fromkeys((*(name for name in words if name in config), *config))
    return "\n".join(
        [
            _docstring(source) or place,
            "",
            "Fields, each a flag such as --config.seed=1, and their values in this config:",
            *(_line(name, config[name], words.get(name, "")) for name in names),
        ]
    )


def field_words(function: str) -> dict[str, str]:
    """The comments of the fields that a function sets, by their names, in its order."""
    words: dict[str, str] = {}
    for module in MODULES:
        source = inspect.getsource(module)
        for node in ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                for name, text in _fields(node, comments(source)):
                    words[name] = text or words.get(name, "")
    return words


def _fields(function: ast.FunctionDef, said: dict[int, str]) -> Iterator[tuple[str, str]]:
    """Names and comments of the fields that a function sets, by other functions too."""
    for statement in function.body:
        match statement:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name("config"), attr=name)]):
                first = said.get(statement.value.lineno, "")
                yield name, said.get(statement.value.end_lineno or 0, "") or first
            case (
                ast.Expr(ast.Call(ast.Attribute(attr="update"), args=[ast.Call(ast.Name(other))]))
                | ast.Assign(value=ast.Call(ast.Name(other)))
                | ast.Expr(ast.Call(ast.Name(other)))
            ):
                yield from field_words(other).items()


def comments(source: str) -> dict[int, str]:
    """The comment behind each line of code, with the lines of comment below that go on."""
    found: dict[int, list[str]] = {}
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line, words = token.start[0], token.string.lstrip("# ")
        if token.type != tokenize.COMMENT:
            continue
        if not token.line.lstrip().startswith("#"):
            last, found[line] = line, [words]
        elif last and line == last + len(found[last]):
            found[last].append(words)
    return {line: " ".join(words) for line, words in found.items()}


def _docstring(source: str) -> str:
    """The docstring of a module as its file has it, with its ends of lines."""
    tree = ast.parse(source)
    first = tree.body[0] if ast.get_docstring(tree) is not None else None
    if not isinstance(first, ast.Expr):
        return ""
    return (ast.get_source_segment(source, first.value) or "").strip("rR\"'\n ")


def _line(name: str, value: Any, words: str) -> str:
    """A field, its value and what it is, cut to one line."""
    if isinstance(value, ConfigDict):
        words = "; ".join(filter(None, [", ".join(map(str, value)), words]))
        shown = f"  {name}.*" if value else f"  {name}.NAME"
    else:
        shown = f"  {name}={value!r}"
    return _cut(f"{shown:{_SHOWN}}  {words}".rstrip())


def _cut(text: str) -> str:
    return text if len(text) <= WIDTH else text[: WIDTH - 3] + "..."
