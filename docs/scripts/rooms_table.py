"""Writes the list of rooms in docs/design.md: the packages and modules of specjax, by layers.

    python docs/scripts/rooms_table.py

The layers are the contract of import-linter in pyproject.toml. What each room is for is said in
rooms.toml, beside this file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "design.md"
CONCERNS = ROOT / "docs" / "scripts" / "rooms.toml"

BEGIN = "<!-- made by docs/scripts/rooms_table.py -->\n"
END = "<!-- end of what rooms_table.py makes -->\n"


def page() -> str:
    """The whole page with the table as it is now."""
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    _, after = rest.split(END)
    return "".join([before, BEGIN, "\n", *made(), "\n", END, after])


def made() -> Iterator[str]:
    """The lines between the marks, the lowest layer first."""
    rules = contract()
    concerns = tomllib.loads(CONCERNS.read_text("utf-8"))
    for height, layer in enumerate(reversed(rules["layers"]), 1):
        rooms = [room.strip() for room in layer.split("|")]
        yield f"{height}. {'; '.join(f'{format_room(room)}: {concerns[room]}' for room in rooms)}\n"


def contract() -> dict[str, Any]:
    """The contract of the rooms."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    return next(one for one in contracts if one["id"] == "rooms")


def format_room(room: str) -> str:
    """A package as a folder, a module as a file."""
    return f"`{room}/`" if (ROOT / "specjax" / room).is_dir() else f"`{room}.py`"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
