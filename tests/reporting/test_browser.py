"""The report in a browser: legible on wide and narrow screens, light and dark; tables sort."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

DARK, LIGHT = 0, 1
"""What `preferredColorScheme` takes."""

MEASURE = """<script>
const box = element => element.getBoundingClientRect(), wide = document.documentElement;
const parts = [...document.querySelectorAll("section")];
const table = document.querySelector("table"), titles = [...table.tHead.rows[0].cells];
const shown = column => [...table.tBodies[0].rows].map(row => row.cells[column].textContent);
const by = name => titles.findIndex(title => title.textContent === name);
const sorted = (name, times) => {
  const button = titles[by(name)].querySelector("button");
  button.focus();
  if (document.activeElement !== button) return "no focus";
  for (let i = 0; i < times; i++) button.click();
  return [titles[by(name)].getAttribute("aria-sort"), shown(by(name)),
    titles.filter(title => title.hasAttribute("aria-sort")).length];
};
const look = getComputedStyle(document.body);
parent.document.title = JSON.stringify({
  overflow: wide.scrollWidth - wide.clientWidth,
  width: wide.clientWidth,
  boxes: [...document.querySelectorAll(".scroll")].every(
    each => box(each).right <= wide.clientWidth),
  captions: [...document.querySelectorAll("caption div")].every(
    each => box(each).right <= wide.clientWidth),
  column: parts.every((part, i) => i === 0 || box(parts[i - 1]).bottom <= box(part).top),
  letters: Math.min(...[...document.querySelectorAll("svg text")].map(text => box(text).height)),
  ink: look.color, ground: look.backgroundColor,
  drawn: getComputedStyle(document.querySelector("svg text")).fill,
  rising: sorted("ms/token", 1), falling: sorted("accepted", 2), names: sorted("strategy", 1),
});
</script>"""


def command(folder: Path, width: int, scheme: int) -> list[str]:
    return [
        BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
        "--disable-background-networking", "--no-first-run", f"--window-size={width},3000",
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--user-data-dir={folder / 'profile'}",
    ]  # fmt: skip


def measure_page(text: str, folder: Path, width: int, scheme: int) -> dict[str, Any]:
    """What a second script finds, which the page's own policy would not run.

    In a frame: windows are at least 500 pixels wide.
    """
    policy = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]*>', text)[0]
    inner = html.escape(text.replace(policy, "").replace("</body>", f"{MEASURE}</body>"))
    size = f"width: {width}px; height: 3000px; border: 0"
    file = folder / "page.html"
    file.write_text(
        "<!doctype html><html style='color-scheme: light dark'><title></title>"
        f"<iframe style='{size}' srcdoc=\"{inner}\"></iframe></html>",
        "utf-8",
    )
    asked = [*command(folder, 1300, scheme), "--dump-dom", file.as_uri()]
    done = subprocess.run(asked, capture_output=True, text=True, timeout=120)
    return json.loads(re.search(r"<title>(.*?)</title>", done.stdout)[1])


@pytest.mark.parametrize(
    ("width", "scheme", "ink", "ground"),
    [
        (1280, LIGHT, "rgb(26, 26, 26)", "rgb(255, 255, 255)"),
        (400, DARK, "rgb(232, 232, 232)", "rgb(21, 24, 28)"),
    ],
)
def test_a_page_is_legible_and_its_tables_sort(text, tmp_path, width, scheme, ink, ground):
    found = measure_page(text, tmp_path, width, scheme)
    assert found["width"] == width and found["overflow"] == 0
    assert found["boxes"] and found["captions"] and found["column"] and found["letters"] > 8
    assert (found["ink"], found["ground"], found["drawn"]) == (ink, ground, ink)
    order, times, marked = found["rising"]
    assert order == "ascending" and marked == 1
    assert [*map(float, times)] == sorted(map(float, times)) and len(times) > 5
    order, rates, marked = found["falling"]
    known = [float(rate.rstrip("%")) for rate in rates if rate != "-"]
    assert order == "descending" and known == sorted(known, reverse=True) and marked == 1
    assert rates[len(known) :] == ["-"] * (len(rates) - len(known)) != []
    order, names, _ = found["names"]
    assert order == "ascending" and names.index("speculative_3") < names.index("speculative_10")


def test_the_policy_lets_the_page_sort_its_tables(text, tmp_path):
    file, shot = tmp_path / "page.html", tmp_path / "page.png"
    file.write_text(text, "utf-8")
    asked = command(tmp_path, 1280, LIGHT)
    done = subprocess.run(
        [*asked, f"--screenshot={shot}", "--dump-dom", file.as_uri()],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.count('<button type="button">') == text.count("<th scope='col'>") > 20
    pixels = matplotlib.image.imread(shot)[..., :3]
    assert pixels.shape[:2] == (3000, 1280)
    assert pixels.mean() > 0.85  # a light ground
    dark_rows = (pixels.max(axis=-1) < 0.4).any(axis=1)
    assert dark_rows.mean() > 0.2  # with words from top to bottom
    assert dark_rows[:300].any() and dark_rows[-300:].any()
