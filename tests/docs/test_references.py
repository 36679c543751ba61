"""What the repository refers to is in the repository: pages, their headings, and files."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("specjax", "tests", "configs", "docs", "benchmarks", "colabs")

PAGE = re.compile(r'(?<![\w/.])(docs/[\w/]+\.md)(?:, "([^"]+)")?')
"""A page as text names it, by its path from the root; behind a comma a heading in quotes."""

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
"""The address of a Markdown link or picture."""

OWN_SITE = "https://github.com/specjax/specjax/blob/main/"
"""What notebooks, which are read outside of the repository, link to its files by."""

OWN_FILE = re.compile(r"`((?:tests|configs|benchmarks|specjax|docs|launch)/[\w./]*)")
"""A file or folder that a page names by its path from the root."""

NAV_PAGE = re.compile(r"^ +- (?:[^:\n]+: )?([\w/]+\.md)$", re.MULTILINE)
"""A page in the menu of the site."""

OUTSIDE = re.compile(r"(?<!\w)methods\.md")


def files(*endings: str) -> list[Path]:
    """Files of the repository with one of the endings."""
    roots = [ROOT / room for room in ROOMS]
    found = itertools.chain(ROOT.glob("*"), *(root.rglob("*") for root in roots))
    return sorted(path for path in found if path.suffix in endings)


def unwrap(text: str) -> str:
    """The text in one line, without the marks of comments that go on."""
    return re.sub(r"\s*\n\s*(?:# )?", " ", text)


def anchors(page: Path) -> set[str]:
    """What links to the headings of a page end with on GitHub."""
    return {anchor(heading) for heading in headings(page)}


def headings(page: Path) -> set[str]:
    """Headings of a page, outside of its code blocks."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE))


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def pointers(text: str) -> list[tuple[str, str]]:
    """Pages named in a text, each with the heading behind it, or an empty one."""
    return PAGE.findall(unwrap(text))


def broken_pointers(text: str) -> list[str]:
    """Pages or headings named in a text that do not exist."""
    return [
        f"{page} {heading}".strip()
        for page, heading in pointers(text)
        if not (ROOT / page).is_file() or (heading and heading not in headings(ROOT / page))
    ]


def broken_links(page: Path, text: str) -> list[str]:
    """Links of a page to files or headings that do not exist."""
    broken = []
    for address in LINK.findall(text):
        folder = ROOT if address.startswith(OWN_SITE) else page.parent
        path, _, fragment = address.removeprefix(OWN_SITE).partition("#")
        if re.match(r"\w+:", path):
            continue
        target = (folder / path).resolve() if path else page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            broken.append(address)
    return broken


@pytest.mark.parametrize("room", [*ROOMS, "."])
def test_pages_and_headings_that_texts_name_exist(room):
    for path in files(".py", ".md"):
        if (path.relative_to(ROOT).parts[0] if path.parent != ROOT else ".") == room:
            assert not broken_pointers(path.read_text()), path


def test_links_between_pages_and_notebooks_lead_somewhere():
    for path in [*files(".md"), *(ROOT / "colabs").glob("*.py")]:
        assert not broken_links(path, path.read_text()), path


def test_pages_link_to_nothing_that_the_site_lacks():
    for path in (ROOT / "docs").rglob("*.md"):
        addresses = [link for link in LINK.findall(path.read_text()) if not re.match(r"\w+:", link)]
        targets = [(path.parent / link.partition("#")[0]).resolve() for link in addresses]
        outside = [target for target in targets if not target.is_relative_to(ROOT / "docs")]
        assert not outside, path


def test_files_that_pages_name_exist():
    for path in (ROOT / "docs").rglob("*.md"):
        named = OWN_FILE.findall(path.read_text())
        assert [name for name in named if not (ROOT / name).exists()] == [], path


def test_the_site_lists_every_page_once():
    listed = NAV_PAGE.findall((ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2])
    pages = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize("part", ["tutorials", "how_to", "methods", "reference", "lab_book"])
def test_every_page_of_a_part_is_in_its_table(part):
    folder = ROOT / "docs" / part
    listed = set(LINK.findall((folder / "README.md").read_text()))
    assert {path.name for path in folder.glob("*.md")} - {"README.md"} <= listed


def test_every_page_begins_with_its_title():
    for path in (ROOT / "docs").rglob("*.md"):
        lines = [line for line in path.read_text().splitlines() if not line.startswith("<!--")]
        assert next(filter(None, lines)).startswith("# "), path


def test_nothing_points_at_a_specification_outside():
    assert [path for path in files(".py", ".md") if OUTSIDE.search(path.read_text())] == []


def test_what_does_not_exist_is_found():
    missing, heading = "docs/" + "no_such_page.md", '"No such heading"'
    assert broken_pointers(f"see {missing}") == [missing]
    assert broken_pointers(f"see docs/methods/bild.md,\n    # {heading}") != []
    assert broken_pointers('see docs/methods/bild.md,\n    # "The\n    # loop"') == []
    page = ROOT / "docs/methods/README.md"
    text = "[a](bild.md#no-such) [b](gone.md) [c](bild.md#the-loop) ![d](gone.png)"
    assert broken_links(page, text) == ["bild.md#no-such", "gone.md", "gone.png"]
    text = f"[a]({OWN_SITE}docs/methods/bild.md#the-loop) [b]({OWN_SITE}gone.md)"
    assert broken_links(page, text) == [f"{OWN_SITE}gone.md"]
