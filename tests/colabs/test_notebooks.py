"""The notebooks: both files of a pair in step, fit to be read on a web page, and running."""

from __future__ import annotations

import os
import re

import pytest

pytest.importorskip("jupytext")

from notebooks import COLABS, NAMES, ROOT, make_notebook, read_notebook, run, sources
from smollm2 import write_small_smollm2

from specjax.experiments.recipes import grammar

PAIR = {"STEPS": 4, "LAYERS": 2}
"""A pair that is trained within seconds, once for all notebooks."""

SMALL = {
    "methods": {**PAIR, "EXAMPLES": 2, "REPEATS": 1},
    "new_drafter": {},
    "quickstart": {**PAIR, "LENGTHS": (2, 4), "SENTENCES": 4},
    "smollm2": {"LENGTHS": (3, 6), "NEW_TOKENS": 12, "REPEATS": 1},
    "t5xxl_tpu": {
        "REHEARSAL_EXAMPLES": 2,
        "REPEATS": 1,
        "MAX_NEW_TOKENS": 16,
        **{f"REHEARSAL_{name}": value for name, value in PAIR.items()},
    },
    "train_drafter": {
        **PAIR,
        "INPUTS": 64,
        "HELD_OUT": 8,
        "ALIGN_STEPS": 2,
        "DISTIL_STEPS": 2,
    },
}
"""What every notebook runs with here."""

SAYS = {
    "methods": ["cascade         100% of the texts are the target's own"],
    "new_drafter": ["the same tokens: 64 of 64", "so nothing is wrong", "so it is caught"],
    "quickstart": ["the same tokens: 4 of 4"],
    "smollm2": [
        f"{strategy:18} the same tokens in 3 of 3 answers"
        for strategy in ("prompt_lookup, 3", "prompt_lookup, 6", "suffix, 3", "suffix, 6")
    ],
    "t5xxl_tpu": ["rehearsal with a tiny pair"],
    "train_drafter": ["tokens per call of the target: "],
}
"""What every notebook then prints."""

SMOLLM2 = "SPECJAX_SMOLLM2"
"""Environment variable with the folder of SmolLM2-135M-Instruct, which its notebook reads."""

BADGE = "https://colab.research.google.com/github/specjax/specjax/blob/main/colabs/{}.ipynb"
MOST_BYTES = 600_000


def outputs(name: str) -> list:
    return [each for cell in read_notebook(name).cells for each in cell.get("outputs", ())]


def test_every_notebook_is_tested():
    assert set(SMALL) == set(NAMES)
    assert {file.stem for file in COLABS.glob("*.ipynb")} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_both_files_of_a_pair_have_the_same_cells(name):
    assert sources(read_notebook(name)) == sources(make_notebook(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_opens_in_colab_and_says_what_it_wants(name):
    first = make_notebook(name).cells[0]
    assert f"({BADGE.format(name)})" in first.source
    assert "**Runtime:**" in first.source and "**Shows:**" in first.source
    assert BADGE.format(name) in (COLABS / "README.md").read_text("utf-8")


def test_the_pair_of_the_notebooks_is_that_of_the_quickstart():
    texts = [text for name in NAMES for _, text, _ in sources(make_notebook(name))]
    given = re.findall(r"^(?:REHEARSAL_)?(STEPS|LAYERS) = (\d+)", "\n".join(texts), re.MULTILINE)
    assert given == [("STEPS", str(grammar.STEPS)), ("LAYERS", str(grammar.LAYERS))] * 4


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_notebook_has_been_run_from_its_first_cell_to_its_last(name):
    code = [cell for cell in read_notebook(name).cells if cell.cell_type == "code" and cell.source]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert any("image/png" in each.get("data", {}) for each in outputs(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_saved_notebook_reads_well_on_a_page(name):
    for each in outputs(name):
        assert each.output_type != "error" and each.get("name") != "stderr"
        plain = [text for kind, text in each.get("data", {}).items() if kind.startswith("text")]
        for text in [*plain, each.get("text", "")]:
            assert not re.search(r"(^|[\s'\"(=])/(\w[\w.-]*/)+|Warning|it/s|\x1b", text), text
    assert (COLABS / f"{name}.ipynb").stat().st_size < MOST_BYTES


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where all notebooks run, so that they share a pair."""
    return tmp_path_factory.mktemp("colabs")


@pytest.fixture(autouse=True)
def smollm2(request, monkeypatch):
    """The published model that the environment names, else one of its kind with random weights."""
    if SMOLLM2 not in os.environ and "folder" in request.fixturenames:
        place = request.getfixturevalue("folder") / "smollm2"
        if not place.exists():
            write_small_smollm2(place)
        monkeypatch.setenv(SMOLLM2, str(place))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_runs_from_its_first_cell_to_its_last(name, folder, monkeypatch):
    inherited = os.environ.get("PYTHONPATH", "")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{inherited}".rstrip(":"))
    notebook = make_notebook(name)
    run(notebook, folder, SMALL[name])
    printed = "".join(
        each.get("text", "") for cell in notebook.cells for each in cell.get("outputs", ())
    )
    for words in SAYS[name]:
        assert words in printed, printed
