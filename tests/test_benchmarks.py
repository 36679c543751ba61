"""The scripts of benchmarks/, most of which are run by hand: none has lost what it imports."""

from __future__ import annotations

import runpy

import pytest
from absl import flags
from cluster import ROOT

FOLDER = ROOT / "benchmarks"
EXTRAS = ("torch", "llama_cpp")
"""Packages of those that are compared with, which need not be there."""


@pytest.mark.parametrize("script", sorted(file.stem for file in FOLDER.glob("*.py")))
def test_it_finds_what_it_imports(script, monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    try:
        runpy.run_path(str(FOLDER / f"{script}.py"), run_name=script)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        pytest.skip(f"needs {error.name}")
    finally:
        for flag in list(flags.FLAGS.flags_by_module_dict().get(script, [])):
            delattr(flags.FLAGS, flag.name)  # another script may have one of the same name
