"""Pages that are made from the code are as the code is now."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from specjax.experiments.config.field_help import comments

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", ["python", "config"])
def test_the_page_is_as_its_script_makes_it(name):
    """`python docs/scripts/..._page.py` writes it."""
    made = runpy.run_path(str(DOCS / "scripts" / f"{name}_page.py"))["page"]()
    assert (DOCS / "reference" / f"{name}.md").read_text("utf-8") == made


def test_a_comment_of_several_lines_belongs_to_its_field():
    source = "a = 1  # of one\n# and two\n# three\n\nb = 2\n# not of b\nc = 3  # of | c\n"
    assert comments(source) == {1: "of one and two three", 7: "of | c"}
