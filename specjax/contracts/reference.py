"""Registries in words: the tables of the docs, and `--help`.

`python -m specjax.contracts.reference` writes the tables anew into every page of docs/ that has
them by a pair of comments:

    <!-- table: objective -->
    <!-- end of table -->

The first comment names the kind of a registry; its table goes between the two.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specjax.contracts import registry
from specjax.contracts.fields import ConfigField, config_fields
from specjax.contracts.registry import Entry, Registry

DOCS = Path(__file__).parents[2] / "docs"

WIDTH = 100
"""Columns of help."""

_TABLE = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def main(folder: Path = DOCS) -> int:
    """Writes the tables of all pages in a folder; names the pages that have changed."""
    for page in sorted(folder.rglob("*.md")):
        before = page.read_text("utf-8")
        after = fill_tables(before)
        if after != before:
            page.write_text(after, "utf-8")
            print(page.relative_to(folder))
    return 0


def fill_tables(page: str) -> str:
    """The text of a page with its tables as the registries have them now.

    Raises:
      ValueError: when the kind of a table does not exist.
    """
    known = list_registries()

    def render(match: re.Match[str]) -> str:
        begin, kind, _, end = match.groups()
        if kind not in known:
            raise ValueError(f"table is {kind!r}; it must be one of {', '.join(known)}")
        return f"{begin}\n{table(known[kind])}\n{end}"

    return _TABLE.sub(render, page)


def list_registries() -> dict[str, Registry]:
    """All registries of `contracts.registry`, by the word for one of their entries."""
    return {known.kind: known for known in vars(registry).values() if isinstance(known, Registry)}


def help_text(*shown: Registry) -> str:
    """Registries for `--help`: every name with its summary, below it its fields."""
    lines = []
    for entries in shown:
        lines.append(f"\n{entries.kind}s:")
        for entry in entries.values():
            lines.append(_wrap(f"  {entry.name}: {entry.summary}", 4))
            for name, field in config_fields(entry.cls).items():
                given = "" if field.required else "default "
                words = f"{field.help}; {field.allowed} ({given}{default_words(field)})"
                lines.append(_wrap(f"    {name}: {words}", 8))
    return "\n".join(lines)


def table(shown: Registry) -> str:
    """The Markdown table of a registry, and below it one of its fields if it has any.

    Entries share a row where they say the same of a field.

    Of what lives in its package: what a user registered elsewhere is not in our docs.
    """
    ours = [entry for entry in shown.values() if entry.cls.__module__.startswith(shown.package)]
    head = [shown.kind, "what it is", *(name.replace("_", " ") for name in shown.shown)]
    entries = [
        [f"`{entry.name}`", entry.summary, *(_attribute(entry, name) for name in shown.shown)]
        for entry in ours
    ]
    owners: dict[tuple[str, ...], list[str]] = {}  # by the cells of a field
    for entry in ours:
        for name, field in config_fields(entry.cls).items():
            cells = f"`{name}`", field.help, field.allowed, default_words(field)
            owners.setdefault(cells, []).append(f"`{entry.name}`")
    tables = _markdown(head, entries)
    if owners:
        rows = [[", ".join(names), *cells] for cells, names in owners.items()]
        tables += "\n" + _markdown([shown.kind, "field", "what it is", "must be", "default"], rows)
    return tables


def default_words(field: ConfigField) -> str:
    """The default of a field in words."""
    if field.required:
        return "must be given"
    if field.default is None:
        return "off"
    if field.default in ("", ()):
        return "empty"
    return f"{field.default:g}" if field.kind is float else str(field.default)


def _attribute(entry: Entry, name: str) -> str:
    """What help and tables show of a class's attribute."""
    value: Any = getattr(entry.cls, name)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(value) or "none"
    return "none" if value is None else str(value)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [head, ["---"] * len(head), *rows]
    lines = (" | ".join(text.replace("|", r"\|") for text in row) for row in cells)
    return "".join(f"| {line} |\n" for line in lines)


def _wrap(words: str, indent: int) -> str:
    """Words as a paragraph; lines after the first are indented."""
    return textwrap.fill(words, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)


if __name__ == "__main__":
    sys.exit(main())
