"""Formats registries as tables and lists of the docs, and for `--help`.

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

MOST = 120
"""Characters of allowed values; longer lists of names are tables of their own."""

_BOUNDS = re.compile(r"an integer of at least (\S+) and at most (\S+)")

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
    """Formats a registry as a Markdown table, followed by a list of its fields.

    Entries with the same field share its item. Where each entry is one field of its own name, as a
    generation setting is, a list alone says both. Only classes of the registry's own package are
    shown, not those that a user registered.
    """
    ours = [entry for entry in shown.values() if entry.cls.__module__.startswith(shown.package)]
    if all([*get_config_fields(entry.cls)] == [entry.name] for entry in ours):
        return "".join(_format_setting(entry) for entry in ours)
    head = [shown.kind, "what it is", *(name.replace("_", " ") for name in shown.shown)]
    entries = [
        [f"`{entry.name}`", entry.summary, *(_attribute(entry, name) for name in shown.shown)]
        for entry in ours
    ]
    owners: dict[str, list[str]] = {}  # by the item of a field
    for entry in ours:
        for name, field in get_config_fields(entry.cls).items():
            owners.setdefault(format_item(name, field), []).append(entry.name)
    items: dict[tuple[str, ...], list[str]] = {}  # by owners
    for item, names in owners.items():
        items.setdefault(tuple(names), []).append(item)
    lists = "".join(_list(names, own) for names, own in items.items())
    return _markdown(head, entries) + ("\n" + lists if lists else "")


def format_item(name: str, field: ConfigField) -> str:
    """Formats a field as an item of a Markdown list: name, default, allowed values and help."""
    default = "" if field.required else f"={field.default!r}"
    limits = ", ".join(filter(None, ["required" * field.required, format_limits(field)]))
    return join_item(name + default, limits, field.help)


def join_item(name: str, limits: str, help: str) -> str:
    """Joins an item of a Markdown list; limits and help may be empty."""
    head = f"- `{name}` ({limits})" if limits else f"- `{name}`"
    return f"{head}: {help}\n" if help else f"{head}\n"


def _format_setting(entry: Entry) -> str:
    """Formats an entry that is one field of its own name as an item of a Markdown list."""
    limits = format_limits(get_config_fields(entry.cls)[entry.name])
    return join_item(entry.name, limits, entry.summary)


def format_limits(field: ConfigField) -> str:
    """Formats the allowed values of a field, but for what its default shows."""
    if field.kind in (bool, dict) or field.words == "text":
        return ""
    if len(field.allowed) > MOST:
        return "a known name"
    words = _BOUNDS.sub(r"an integer from \1 to \2", field.allowed)
    shown = isinstance(field.default, int | float)
    return re.sub(r"^an? (integer|number) (of |from )?", "", words) if shown else words


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


def _list(owners: Sequence[str], items: Sequence[str]) -> str:
    """Formats items as a list below their owners; an owner's field of its name needs no owner."""
    if len(owners) == len(items) == 1 and items[0].startswith(f"- `{owners[0]}"):
        return items[0]
    names = ", ".join(f"`{name}`" for name in owners)
    return f"- {names}:\n" + "".join(f"    {item}" for item in items)


def _markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [head, ["---"] * len(head), *rows]
    lines = (" | ".join(text.replace("|", r"\|") for text in row) for row in cells)
    return "".join(f"| {line} |\n" for line in lines)


def _wrap(words: str, indent: int) -> str:
    """Wraps words into a paragraph with a hanging indent."""
    return textwrap.fill(words, WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)


if __name__ == "__main__":
    sys.exit(main())
