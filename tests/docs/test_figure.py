"""The figures of the README and the lab book say what the lab book says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs" / "figures"
BARS = {
    name: json.loads((FIGURES / f"{name}.json").read_text("utf-8"))["bars"]
    for name in ("published", "speedup")
}
ALL = [bar for bars in BARS.values() for bar in bars]


def section(page: str, heading: str) -> str:
    """What stands below a heading, up to the next one."""
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def row(bar: dict[str, str]) -> list[str]:
    """The cells behind the beginning of the row that a bar names."""
    below = section((ROOT / bar["page"]).read_text("utf-8"), bar["heading"])
    start = f"| {bar['row']} |"
    lines = [line for line in below.splitlines() if line.startswith(start)]
    assert lines, start
    return [
        re.sub(r"\*\*| .*", "", cell.strip()) for cell in lines[0].removeprefix(start).split("|")
    ]


@pytest.mark.parametrize("bar", ALL, ids=[bar["label"] for bar in ALL])
def test_every_number_stands_in_the_row_that_it_names(bar):
    cells = row(bar)
    assert bar["speedup"] in cells
    if "bleu" in bar:
        assert bar["bleu"] in cells
        below = section((ROOT / bar["page"]).read_text("utf-8"), bar["heading"])
        baseline = [
            line for line in below.splitlines() if re.match(r"\| (autoreg|target alone)", line)
        ]
        assert any(bar["target"] in line for line in baseline)


@pytest.mark.parametrize("name", BARS)
def test_the_picture_shows_these_bars(name):
    drawn = (FIGURES / f"{name}.svg").read_text("utf-8")
    for bar in BARS[name]:
        assert f">{bar['label']}</text>" in drawn
        assert f">{float(bar['speedup']):.2f} ×" in drawn
        if "bleu" in bar:
            assert f"{float(bar['target']) - float(bar['bleu']):.2f} BLEU</text>" in drawn
