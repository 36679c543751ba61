"""Every deliberate fault still fits the code; whether tests see it says `run.py`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from faults import FAULTS  # noqa: E402
from run import ROOT, apply_fault, list_tests  # noqa: E402


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "_"))
def test_a_fault_changes_one_place(fault):
    text = (ROOT / "specjax" / fault.file).read_text("utf-8")
    assert apply_fault(fault, text) != text


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "_"))
def test_the_tests_of_a_fault_are_there(fault):
    files, *_ = " ".join(list_tests(fault)).split(" -k ")
    assert all((ROOT / file).exists() for file in files.split())
