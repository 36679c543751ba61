"""Pages that are made from the code are as the code is now."""

from __future__ import annotations

import runpy
import tomllib
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"

PAGES = {
    "python_page": "reference/python.md",
    "config_page": "reference/config.md",
    "rooms_table": "design.md",
}


@pytest.mark.parametrize(("script", "page"), PAGES.items())
def test_the_page_is_as_its_script_makes_it(script, page):
    """`python docs/scripts/....py` writes it."""
    made = runpy.run_path(str(DOCS / "scripts" / f"{script}.py"))["page"]()
    assert (DOCS / page).read_text("utf-8") == made


def test_only_rooms_have_a_concern():
    script = runpy.run_path(str(DOCS / "scripts" / "rooms_table.py"))
    layers = " | ".join(script["contract"]()["layers"]).split(" | ")
    assert sorted(tomllib.loads(script["CONCERNS"].read_text("utf-8"))) == sorted(layers)
