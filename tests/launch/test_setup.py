"""What the scripts install, and what they find installed already."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from cluster import ROOT

PYTHON = """#!/usr/bin/env bash
echo "${@: -1}" >> .venv/installed
"""
"""In place of the environment's Python: notes what pip is asked for."""


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with an environment in which nothing is installed."""
    (tmp_path / "launch").mkdir()
    shutil.copy(ROOT / "launch" / "setup.sh", tmp_path / "launch")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def set_up(clone: Path, needs: str = "", extras: str = "") -> list[str]:
    """Runs the script as its callers do; all that was installed so far."""
    line = f"set -euo pipefail; needs={needs}; source launch/setup.sh"
    environment = {**os.environ, "SPECJAX_EXTRAS": extras}
    subprocess.run(["bash", "-c", line], cwd=clone, env=environment, check=True)
    return (clone / ".venv" / "installed").read_text().split()


def test_the_quickstart_installs_no_test_tools(clone: Path) -> None:
    assert set_up(clone) == ["."]
    assert set_up(clone) == ["."]


def test_what_is_missing_later_is_added_and_what_is_there_is_not_installed_again(
    clone: Path,
) -> None:
    set_up(clone)
    assert set_up(clone, needs="test") == [".", ".[test]"]
    assert set_up(clone) == set_up(clone, needs="test") == [".", ".[test]"]
    assert set_up(clone, extras="tpu")[2:] == [".[test,tpu]"]
    assert len(set_up(clone, needs="test")) == 3


def test_new_requirements_are_installed_for_all_that_is_there(clone: Path) -> None:
    set_up(clone, needs="test", extras="cuda13")
    with (clone / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    assert set_up(clone) == [".[cuda13,test]"] * 2
