"""Writes docs/reference/python.md from the signatures and docstrings of the public names.

python docs/scripts/python_page.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import specjax

PAGE = Path(__file__).parents[1] / "reference" / "python.md"

HEAD = """<!-- made by docs/scripts/python_page.py -->

# Python

The public names of the package. `import specjax` is light; what a name needs is imported when the
name is first used. Everything here raises `specjax.UserError` for a mistake of the caller, with one
sentence that names the argument, its value and what it must be; streams do so when they are called.
"""

RAISES = re.compile(r"\n\nRaises:\n +UserError: .*?(?=\n\n|\Z)", re.DOTALL)
"""The part of a docstring that the head of the page says of all."""

STEPS = {
    "BeamGenerator": {"run"},
    "BeamStrategy": {"decoder", "scoring"},
    "Generator": {
        *("slots", "padded_size", "encode", "batch", "keys", "run", "compile", "program"),
        *("arguments", "rows", "decode"),
    },
    "Strategy": {"decoder", "options"},
}
"""Methods by class that its other ones consist of; each has one line."""

LONG = 90
"""Columns from which each argument has a line of its own."""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name in specjax.__all__:
        value = getattr(specjax, name)
        parts.append(f"## `{name}`\n\n{describe_call(f'specjax.{name}', value)}")
        if inspect.isclass(value) and not issubclass(value, Exception):
            parts.extend(describe_methods(name, value))
    return "\n".join(parts)


def describe_methods(name: str, cls: type) -> Iterator[str]:
    """A section for each method of a class, and a list of its steps."""
    steps = []
    for method, routine in methods(cls):
        if method in STEPS.get(name, ()):
            known = inspect.signature(routine).parameters
            arguments = ", ".join(each for each in known if each != "self")
            first, _, _ = inspect.getdoc(routine).partition("\n")
            steps.append(f"- `{method}({arguments})`: {first}\n")
            continue
        title = f"{name}.{method}".removesuffix(".__call__")
        called = "generator" if method == "__call__" else method
        shown = f"{title}{'(...)' * (title == name)}"
        yield f"### `{shown}`\n\n{describe_call(called, routine)}"
    if steps:
        yield f"Steps of a `{name}`:\n\n{''.join(steps)}"


def methods(cls: type) -> Iterator[tuple[str, Any]]:
    """The methods that a class documents, and its call."""
    for name in vars(cls):
        member = getattr(cls, name)
        own = name == "__call__" or not name.startswith("_")
        if own and inspect.isfunction(member) and member.__doc__:
            yield name, member


def describe_call(name: str, value: Any) -> str:
    """How it is called, and its docstring in Markdown."""
    text = RAISES.sub("", inspect.getdoc(value) or "")
    if inspect.isclass(value) and issubclass(value, Exception):
        return f"{text}\n"
    return f"```python\n{signature(name, value)}\n```\n\n{text}\n"


def signature(name: str, value: Any) -> str:
    """The call with types and defaults."""
    known = inspect.signature(value)
    shown, before = [], None
    for parameter in known.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and before is not parameter.KEYWORD_ONLY:
            shown.append("*")
        before = parameter.kind
        shown.append(argument(parameter))
    result = "" if inspect.isclass(value) else f" -> {known.return_annotation}"
    line = f"{name}({', '.join(shown)}){result}"
    if len(line) <= LONG:
        return line
    return f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){result}"


def argument(parameter: inspect.Parameter) -> str:
    """A parameter with its type and default."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{stars}{parameter.name}: {parameter.annotation}"
    if parameter.default is parameter.empty:
        return text
    plain = getattr(parameter.default, "__name__", None) or repr(parameter.default)
    return f"{text} = {plain}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
