"""Writes docs/reference/config.md: fields, defaults and comments of the configs.

    python docs/scripts/config_page.py

Read from the sources of `specjax.experiments.config.defaults`, `training`, `online` and
`transcribing`, where each field is set in a line.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from specjax.experiments.config import defaults, online, training, transcribing
from specjax.experiments.config.field_help import comments

PAGE = Path(__file__).parents[1] / "reference" / "config.md"

HEAD = """<!-- made by docs/scripts/config_page.py -->

# Config fields

You find here the fields of every experiment's config with their defaults. Each is a flag:
`--config.batch_size=4`, `--config.data.path=test.jsonl`. The fields of a strategy are in
[strategies](strategies.md), those of an objective in [training](../how_to/training.md#objectives).
"""

Row = tuple[str, str, str]  # field, default, what it is; all in Markdown


def page() -> str:
    """The whole page."""
    modules = defaults, training, online, transcribing
    return "\n".join([HEAD, *(part for module in modules for part in sections(module))])


def sections(module: ModuleType) -> Iterator[str]:
    """A section for each function of a module that sets fields."""
    source = inspect.getsource(module)
    said = {line: words.replace("|", r"\|") for line, words in comments(source).items()}
    for function in ast.parse(source).body:
        rows = list(fields(function, said)) if isinstance(function, ast.FunctionDef) else []
        if rows:
            about = (ast.get_docstring(function) or "").replace("\n\n", "\n")
            table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
            head = "| field | default | what it is |\n| --- | --- | --- |\n"
            yield f"## {title(function.name)}\n\n{about}\n\n{head}{table}"


def title(name: str) -> str:
    """The heading of a function's section; a run of training is put together by several."""
    words = name.removesuffix("_config").replace("_", " ")
    return words.replace(" add ", "train, ", 1)


def fields(function: ast.FunctionDef, said: dict[int, str]) -> Iterator[Row]:
    """What a function sets in `config`."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name("config"), attr=name)]):
                yield from entries(name, node.value, said)
            case ast.Call(
                func=ast.Attribute(ast.Name("config"), "update"), args=[ast.Call(ast.Name(other))]
            ):
                yield section(other), "", "all of that section"


def entries(name: str, value: ast.expr, said: dict[int, str]) -> Iterator[Row]:
    """A field, or the fields of a group that is spelled."""
    match value:
        case ast.Call(ast.Name("ConfigDict"), [ast.Dict(keys, values)]) if all(keys):
            for key, inner in zip(keys, values, strict=True):
                yield from entries(f"{name}.{key.value}", inner, said)
        case ast.Call(ast.Name("ConfigDict")):
            yield f"`{name}`", "a group", said.get(value.lineno, "")
        case ast.Call(ast.Name(other)) if other.endswith("_fields"):
            yield f"`{name}`", "a group", section(other)
        case ast.Constant() | ast.Tuple() | ast.Dict() | ast.UnaryOp():
            yield f"`{name}`", f"`{ast.unparse(value)}`", said.get(value.end_lineno, "")


def section(function: str) -> str:
    """A link to the section of a function."""
    words = title(function)
    return f"[{words}](#{words.replace(' ', '-')})"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
