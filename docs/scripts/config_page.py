"""Writes docs/reference/config.md: fields, defaults and bounds of the configs.

    python docs/scripts/config_page.py

Made of the declarations in `specjax.experiments.config.schema`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specjax.contracts.fields import KEY, ConfigField
from specjax.experiments.config.schema import SCHEMAS

PAGE = Path(__file__).parents[1] / "reference" / "config.md"

HEAD = """<!-- made by docs/scripts/config_page.py -->

# Config fields

You find here the fields of every experiment's config with their defaults. Each is a flag:
`--config.batch_size=4`, `--config.data.path=test.jsonl`. The fields of a strategy are in
[strategies](strategies.md), those of an objective in [training](../how_to/training.md#objectives).
"""

_TABLE = "| field | default | must be | what it is |\n| --- | --- | --- | --- |\n"

_MOST = 120
"""Characters of what a field must be; longer lists of names are in pages of their own."""


def page() -> str:
    """The whole page: the experiments, then the blocks and groups that they share."""
    shown = dict.fromkeys(SCHEMAS.values())
    for cls in list(shown_with(shown)):
        shown.setdefault(cls)
    return "\n".join([HEAD, *map(section, shown)])


def shown_with(classes: dict[type, None]) -> Iterator[type]:
    """The classes that others inherit from or have as groups."""
    for cls in classes:
        parts = [*blocks(cls), *filter(None, map(group_of, own(cls).values()))]
        yield from (part for part in parts if part not in classes)
        yield from shown_with(dict.fromkeys(parts))


def group_of(field: ConfigField) -> type | None:
    """The class of a group's fields, or of those of the members of a mapping."""
    of = field.of or (field.members and field.members.of)
    return of if isinstance(of, type) else None


def blocks(cls: type) -> tuple[type, ...]:
    """The classes with fields that a class inherits from."""
    return tuple(base for base in cls.__bases__ if base is not object)


def own(cls: type) -> dict[str, ConfigField]:
    """The fields that a class declares itself."""
    slots = cls.__dataclass_fields__
    named = (name for name in cls.__annotations__ if KEY in slots[name].metadata)
    return {name: slots[name].metadata[KEY] for name in named}


def inherited(cls: type) -> set[str]:
    """The names of the fields that classes above have."""
    return {name for base in blocks(cls) for name in base.__dataclass_fields__}


def section(cls: type) -> str:
    """The heading of a class, what it is for and the table of its fields."""
    about = (cls.__doc__ or "").partition("\n\n")[0]
    rows = [row(name, field) for name, field in own(cls).items()]
    gone = [name for name in inherited(cls) if name in cls.__annotations__ and name not in own(cls)]
    rows += [f"| `{name}` | | | not here |\n" for name in gone]
    rows += [f"| {link(base)} |  |  | all of that section |\n" for base in blocks(cls)]
    return f"## {title(cls)}\n\n{about}\n\n{_TABLE}{''.join(rows)}"


def row(name: str, field: ConfigField) -> str:
    """A field in Markdown."""
    default, allowed = f"`{field.default!r}`", field.allowed
    if field.kind is dict:
        default = ", ".join(f"`{each}={value!r}`" for each, value in field.default.items())
        group = group_of(field)
        allowed = link(group) if group else field.allowed
    if len(allowed) > _MOST:
        allowed = "a known name"
    return f"| `{name}` | {default} | {allowed} | {field.help} |\n".replace("  |", " |")


def link(cls: type) -> str:
    """A link to the section of a class."""
    return f"[{title(cls)}](#{title(cls).replace(' ', '-')})"


def title(cls: type) -> str:
    """The heading of a section: the experiment's name, or the class's in words."""
    names = {schema: name for name, schema in SCHEMAS.items()}
    words = "".join(f" {c.lower()}" if c.isupper() else c for c in cls.__name__)
    return names.get(cls, words.strip()).replace("_", " ")


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
