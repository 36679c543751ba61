"""The notebooks of `colabs/`: reading them, running them, and saving them with their outputs.

    python tests/support/notebooks.py quickstart   # runs it, and writes colabs/quickstart.ipynb

A notebook is written as `NAME.py`; `NAME.ipynb` is made of it here and never edited.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
COLABS = ROOT / "colabs"
NAMES = sorted(file.stem for file in COLABS.glob("*.py"))
WORK = ROOT / "runs" / "colabs"
"""Where saved notebooks are run; a pair that was trained there stays for the next one."""

PARAMETERS = "parameters"
"""Tag of the cell whose values a run may replace."""

SECONDS = 1200
"""That a cell may take."""


def make_notebook(name: str) -> NotebookNode:
    """The notebook of `NAME.py`, without outputs."""
    notebook = jupytext.read(COLABS / f"{name}.py")
    for index, cell in enumerate(notebook.cells):
        cell.id = f"cell-{index}"  # not random ones: the same text gives the same file
    notebook.metadata.pop("jupytext", None)
    return notebook


def read_notebook(name: str) -> NotebookNode:
    """The notebook of `NAME.ipynb`."""
    return nbformat.read(COLABS / f"{name}.ipynb", as_version=4)


def sources(notebook: NotebookNode) -> list[tuple[str, str, list[str]]]:
    """Kind, text and tags of every cell."""
    return [(cell.cell_type, cell.source, tags(cell)) for cell in notebook.cells]


def tags(cell: NotebookNode) -> list[str]:
    return list(cell.metadata.get("tags", []))


def run(notebook: NotebookNode, folder: Path, values: Mapping[str, Any] | None = None) -> None:
    """Runs all cells in a folder, in place; `values` replace those of the parameters' cell."""
    (cell,) = (cell for cell in notebook.cells if PARAMETERS in tags(cell))
    kept = cell.source
    lines = [f"{name} = {value!r}" for name, value in (values or {}).items()]
    cell.source = "\n".join([kept, *lines])
    NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    ).execute()
    cell.source = kept


def save(name: str) -> None:
    """Runs a notebook and writes `NAME.ipynb`, without the progress that went to stderr."""
    notebook = make_notebook(name)
    WORK.mkdir(parents=True, exist_ok=True)
    run(notebook, WORK)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    nbformat.validate(notebook)
    nbformat.write(notebook, COLABS / f"{name}.ipynb")


if __name__ == "__main__":
    for each in sys.argv[1:] or NAMES:
        save(each)
