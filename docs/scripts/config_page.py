"""Writes docs/reference/config.md: fields, defaults and bounds of the configs.

    python docs/scripts/config_page.py

Made of the declarations in `specjax.experiments.config.schema`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specjax.contracts.fields import KEY, ConfigField
from specjax.contracts.reference import format_item, join_item
from specjax.experiments.config.schema import SCHEMAS

PAGE = Path(__file__).parents[1] / "reference" / "config.md"

HEAD = """<!-- made by docs/scripts/config_page.py -->

# Config fields

The fields of every experiment's config, with their defaults and, in brackets, what they must be.
Fields that experiments share are listed once, below the experiments. Each is a flag:
`--config.batch_size=4`, `--config.data.path=test.jsonl`. The fields of a strategy are in
[strategies](strategies.md), those of an objective in [training](../how_to/training.md#objectives).
"""


def page() -> str:
    """The whole page: the experiments, then the blocks and groups that they share."""
    shown = dict.fromkeys(SCHEMAS.values())
    for cls in list(find_parts(shown)):
        shown.setdefault(cls)
    return "\n".join([HEAD, *map(section, shown)])


def find_parts(classes: dict[type, None]) -> Iterator[type]:
    """The classes that others inherit from or have as groups."""
    for cls in classes:
        parts = [*blocks(cls), *filter(None, map(group_of, own(cls).values()))]
        yield from (part for part in parts if part not in classes)
        yield from find_parts(dict.fromkeys(parts))


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


def inherited_names(cls: type) -> set[str]:
    """The names of the fields that classes above have."""
    return {name for base in blocks(cls) for name in base.__dataclass_fields__}


def section(cls: type) -> str:
    """The heading of a class, what it is for and its fields."""
    about = (cls.__doc__ or "").partition("\n\n")[0]
    items = "".join(item(name, field) for name, field in own(cls).items())
    gone = [
        name
        for name in inherited_names(cls)
        if name in cls.__annotations__ and name not in own(cls)
    ]
    shared = ", ".join(map(link, blocks(cls)))
    if shared:
        but = f", but for {', '.join(f'`{name}`' for name in gone)}" if gone else ""
        about += f" It has the fields of {shared}{but}, and:"
    return f"## {title(cls)}\n\n{about}\n\n{items}"


def item(name: str, field: ConfigField) -> str:
    """A field as an item of a list; a group links to the section of its fields."""
    if field.kind is not dict:
        return format_item(name, field)
    group = group_of(field)
    changes = ", ".join(f"`{each}={value!r}`" for each, value in field.default.items())
    limits = " with ".join(filter(None, [group and link(group), changes]))
    known = group and (group.__doc__ or "").partition("\n")[0]
    return join_item(name, limits, "" if field.help == known else field.help)


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
