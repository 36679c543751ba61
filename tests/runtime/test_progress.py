"""Progress in a log: whole lines now and then, or none; a bar on a terminal only."""

from __future__ import annotations

import io
import sys

from specjax.runtime import progress as module
from specjax.runtime.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_short_work_leaves_nothing_in_a_log(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with progress(range(50), desc="decode", unit="batch") as bar:
        for step in bar:
            bar.set_description(f"step {step}")
    assert log.getvalue() == ""


def test_long_work_leaves_whole_lines_in_a_log(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(module, "EVERY", 10.0)
    with progress(total=30, desc="decode", unit="batch") as bar:
        bar._time = lambda start=bar.start_t: start + bar.n
        for step in range(30):
            bar.update()
            bar.set_postfix(loss=str(step))
            bar.write(f"word {step}", file=log)
            if step == 15:
                bar.set_description("compile")
    lines = log.getvalue().splitlines()
    assert "\r" not in log.getvalue() and "\x1b" not in log.getvalue()
    shown = [line.split("[")[0] for line in lines if not line.startswith("word")]
    names = ("decode", "compile", "compile")
    pairs = zip(names, (10, 20, 30), strict=True)
    assert shown == [f"{name}: {done}/30 batch " for name, done in pairs]


def test_a_terminal_has_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(progress(range(3), desc="decode")) == [0, 1, 2]
    assert "\r" in terminal.getvalue() and "3/3" in terminal.getvalue()
