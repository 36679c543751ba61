"""Formats registries as tables of the docs and for `--help`.

`python -m specjax.contracts.reference` updates the tables in every page of docs/ that marks them by
a pair of comments:

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
from specjax.contracts.fields import ConfigField, get_config_fields
from specjax.contracts.registry import Entry, Registry

DOCS = Path(__file__).parents[2] / "docs"

WIDTH = 100
"""Line width of help, in characters."""

_TABLE = re.compile(r"(<!-- table: (\w+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def main(folder: Path = DOCS) -> int:
    """Updates the tables of all pages in a folder; prints the changed pages."""
    for page in sorted(folder.rglob("*.md")):
        before = page.read_text("utf-8")
        after = fill_tables(before)
        if after != before:
            page.write_text(after, "utf-8")
            print(page.relative_to(folder))
    return 0


def fill_tables(page: str) -> str:
    """Returns the text of a page with its tables updated from the registries.

    Raises:
      ValueError: if the kind of a table does not exist.
    """
    known = list_registries()

    def render(match: re.Match[str]) -> str:
        begin, kind, _, end = match.groups()
        if kind not in known:
            raise ValueError(f"table is {kind!r}; it must be one of {', '.join(known)}")
        return f"{begin}\n{format_table(known[kind])}\n{end}"

    return _TABLE.sub(render, page)


def list_registries() -> dict[str, Registry]:
    """Lists the registries of `contracts.registry` by their `kind`."""
    return {known.kind: known for known in vars(registry).values() if isinstance(known, Registry)}


def format_help(*shown: Registry) -> str:
    """Formats registries for `--help`: each name, its summary and its fields."""
    lines = []
    for entries in shown:
        lines.append(f"\n{entries.kind}s:")
        for entry in entries.values():
            lines.append(_wrap(f"  {entry.name}: {entry.summary}", 4))
            for name, field in get_config_fields(entry.cls).items():
                given = "" if field.required else "default "
                words = f"{field.help}; {field.allowed} ({given}{format_default(field)})"
                lines.append(_wrap(f"    {name}: {words}", 8))
    return "\n".join(lines)


def format_table(shown: Registry) -> str:
    """Formats a registry as a Markdown table, followed by a table of its fields.

    Entries with identical fields share a row. Only classes of the registry's own package are shown,
    not those that a user registered.
    """
    ours = [entry for entry in shown.values() if entry.cls.__module__.startswith(shown.package)]
    head = [shown.kind, "what it is", *(name.replace("_", " ") for name in shown.shown)]
    entries = [
        [f"`{entry.name}`", entry.summary, *(_attribute(entry, name) for name in shown.shown)]
        for entry in ours
    ]
    owners: dict[tuple[str, ...], list[str]] = {}  # by the cells of a field
    for entry in ours:
        for name, field in get_config_fields(entry.cls).items():
            cells = f"`{name}`", field.help, field.allowed, format_default(field)
            owners.setdefault(cells, []).append(f"`{entry.name}`")
    tables = _markdown(head, entries)
    if owners:
        rows = [[", ".join(names), *cells] for cells, names in owners.items()]
        tables += "\n" + _markdown([shown.kind, "field", "what it is", "must be", "default"], rows)
    return tables


def format_default(field: ConfigField) -> str:
    """Formats the default of a field in words."""
    if field.required:
        return "must be given"
    if field.default is None:
        return "off"
    if field.default in ("", ()):
        return "empty"
    return f"{field.default:g}" if field.kind is float else str(field.default)


def _attribute(entry: Entry, name: str) -> str:
    """Formats a class's attribute for help and tables."""
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
    """Wraps words into a paragraph with a hanging indent."""
    return textwrap.fill(words, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)


if __name__ == "__main__":
    sys.exit(main())
