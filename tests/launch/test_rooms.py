"""The contract of the rooms, which import-linter checks: what it lets through and what not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from cluster import ROOT

LAST = '    "runtime",\n]\n'
CHANGES = {
    "none": ("", "", "1 kept, 0 broken"),
    "layers swapped": (
        '    "reporting",\n    "metrics | pair",\n',
        '    "metrics | pair",\n    "reporting",\n',
        "specjax.reporting is not allowed to import specjax.metrics",
    ),
    "siblings that know each other": (
        '    "checks",\n    "contracts | ',
        '    "checks | contracts | ',
        "specjax.checks is not allowed to import specjax.contracts",
    ),
    "a room in no layer": (" | result", "", "- specjax.result"),
    "an import let through that is not there": (
        LAST,
        LAST + 'ignore_imports = ["specjax.runtime.errors -> specjax.main"]\n',
        "specjax.runtime.errors -> specjax.main",
    ),
}
"""What is changed of the contract, and what is said then."""


@pytest.mark.parametrize("change", CHANGES)
def test_only_the_contract_as_it_is_is_kept(change: str, tmp_path: Path) -> None:
    old, new, said = CHANGES[change]
    contract, config = (ROOT / "pyproject.toml").read_text("utf-8"), tmp_path / "pyproject.toml"
    config.write_text(contract.replace(old, new), "utf-8")
    assert (config.read_text("utf-8") == contract) == (change == "none")
    command = [Path(sys.executable).with_name("lint-imports"), config, "--no-logo", "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == (change != "none")
    assert said in " ".join(done.stdout.split())
