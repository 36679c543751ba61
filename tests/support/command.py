"""The command line in this process: flags in, exit code and what was printed out."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from pathlib import Path

from specjax.main import main

ROOT = Path(__file__).parents[2]


@dataclasses.dataclass(frozen=True)
class Done:
    """How a call of the main job ended."""

    returncode: int
    stdout: str
    stderr: str


def command(*flags: str) -> Done:
    """Runs the main job as `python -m specjax.main` would; an exception is the caller's."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["specjax", *flags])
    return Done(code, out.getvalue(), err.getvalue())


def run_refused(returncode: int, stderr: str, *words: str) -> None:
    """Asserts exit code 2 and one sentence that has these words."""
    assert returncode == 2, stderr
    assert "Traceback" not in stderr
    lines = [line for line in stderr.splitlines() if line.startswith("specjax: ")]
    assert len(lines) == 1, stderr
    missing = [word for word in words if word not in lines[0]]
    assert not missing, (missing, lines[0])
    assert len(lines[0]) < 900, lines[0]
