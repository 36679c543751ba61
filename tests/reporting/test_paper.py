"""The table of a paper: from results of made-up runs to Markdown and LaTeX."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from specjax.metrics.accepted_lengths import Requests, evaluate
from specjax.reporting.paper import CONVENTIONS, combine, main, read_columns

BASELINES = {"plain": "plain", "drafted": "plain"}


def requests(tokens: list[int], rounds: list[int], seconds: list[float] | None) -> Requests:
    """Requests of one turn whose every round had three drafted tokens."""
    count = np.array(rounds)
    return Requests(
        turns=np.ones_like(count),
        rounds=count,
        tokens=np.array(tokens),
        drafted=count * 3 * (tokens != rounds),
        at_least=count[:, None],
        seconds=None if seconds is None else np.array(seconds),
    )


def write_run(
    folder: Path, name: str, categories: list[str] | None, seconds: list[float] | None
) -> str:
    """A run of two requests, of 12 tokens in 3 rounds and 1 token in 1 round."""
    strategies = {
        "plain": requests([12, 1], [12, 1], None if seconds is None else [2.0, 1.0]),
        "drafted": requests([12, 1], [3, 1], seconds),
    }
    content = {
        "data": {"name": name},
        "strategies": {name: {"baseline": base} for name, base in BASELINES.items()},
        "evaluation": evaluate(strategies, BASELINES, categories, seed=0),
    }
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(content), "utf-8")
    return str(folder)


@pytest.fixture
def run(tmp_path) -> str:
    return write_run(tmp_path / "one", "spec_bench", ["qa", "rag"], [1.0, 1.0])


def print_table(capsys, *flags: str) -> list[str]:
    assert main(["paper", *flags]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("convention", "qa", "rag", "overall"),
    [
        ("spec_bench", "4.00", "1.00", "3.25"),
        ("deepspec", "4.00", "1.00", "3.25"),
        ("speed_bench", "3.25", "1.00", "2.12"),  # 2.125 to even
        ("pooled_with_prefill", "3.25", "1.00", "2.50"),
        ("per_request", "4.00", "1.00", "2.50"),
    ],
)
def test_lengths_are_by_the_convention_that_the_caption_names(
    run, capsys, convention, qa, rag, overall
):
    caption, _, head, _, plain, drafted = print_table(capsys, run, f"--convention={convention}")
    assert caption.startswith(CONVENTIONS[convention].name + ": ")
    assert caption.endswith("; 2 requests.")
    assert head == "| strategy | qa | rag | overall |"
    assert plain == "| plain | 1.00 | 1.00 | 1.00 |"
    assert drafted == f"| drafted | {qa} | {rag} | {overall} |"


def test_speedups_and_verify_rates_have_tables_of_their_own(run, capsys):
    caption, *_, drafted = print_table(capsys, run, "--figure=speedup")
    assert "over the baseline's" in caption
    assert drafted == "| drafted | 2.00 | 1.00 | 1.86 |"  # (12 + 1) / (6 + 1)
    caption, *_, plain, drafted = print_table(capsys, run, "--figure=verify_rate")
    assert "DeepSpec" in caption and plain == "| plain | - | - | - |"
    assert drafted == "| drafted | 1.000 | 0.250 | 0.812 |"  # 13 / (12 + 4)


def test_several_runs_are_columns_with_all_of_their_requests_last(tmp_path, run, capsys):
    other = write_run(tmp_path / "two", "math500", None, [0.5, 1.0])
    caption, _, head, _, plain, drafted = print_table(
        capsys, run, other, "--convention=speed_bench"
    )
    assert head == "| strategy | spec\\_bench | math500 | overall |"
    assert drafted == "| drafted | 2.12 | 2.12 | 2.12 |" and "4 requests" in caption
    *_, drafted = print_table(capsys, run, other, "--figure=speedup")
    assert drafted == "| drafted | 1.86 | 3.57 | 2.71 |"  # (13 + 25) / (7 + 7)


def test_combined_figures_are_those_of_all_requests(tmp_path):
    one = write_run(tmp_path / "one", "a", None, [1.0, 1.0])
    two = write_run(tmp_path / "two", "b", None, [1.0, 1.0])
    *parts, whole = read_columns([one, two])
    assert whole == combine(parts)
    mine, part = whole.figures["drafted"], parts[0].figures["drafted"]
    for prefill in ("without_prefill", "with_prefill"):
        for mean in ("pooled", "per_request"):
            assert mine[prefill][mean]["value"] == part[prefill][mean]["value"]
    assert mine["verify_rate"]["value"] == part["verify_rate"]["value"]


def test_runs_of_the_same_data_are_told_apart_by_their_folders(tmp_path, run):
    other = write_run(tmp_path / "two", "spec_bench", None, None)
    columns = read_columns([run, other])
    assert [one.title for one in columns] == ["spec_bench (one)", "spec_bench (two)", "overall"]
    assert columns[-1].figures["drafted"]["speedup"]["value"] is None


def test_latex_has_the_caption_in_a_float(run, capsys):
    lines = print_table(capsys, run, "--convention=deepspec", "--format=latex")
    assert lines[0] == r"\begin{table}" and lines[-1] == r"\end{table}"
    assert lines[2].startswith(r"\caption{Accepted length $\tau$ (DeepSpec): all tokens over all")
    assert r"drafted & 4.00 & 1.00 & 3.25 \\" in lines
    assert "".join(lines).count("{") == "".join(lines).count("}")


def test_intervals_are_half_widths(tmp_path, capsys):
    folder = tmp_path / "many"
    write_run(folder, "math500", None, None)
    file = folder / "results.json"
    content = json.loads(file.read_text())
    pooled = content["evaluation"]["drafted"]["overall"]["without_prefill"]["pooled"]
    pooled.update(low=3.0, high=3.5)
    file.write_text(json.dumps(content))
    caption, *_, plain, drafted = print_table(capsys, str(folder), "--intervals")
    assert "95% interval" in caption and plain == "| plain | 1.00 |"
    assert drafted == "| drafted | 3.25±0.25 |"


def test_what_is_no_run_is_named(tmp_path, run, capsys):
    old = tmp_path / "old"
    old.mkdir()
    (old / "results.json").write_text('{"strategies": {}}')
    for names, words in (
        ([str(tmp_path)], "has no results.json; it must be a finished decode run's workdir"),
        ([str(old)], "has no evaluation in its results.json"),
        ([run, run], "is named twice; each run must be another workdir"),
    ):
        assert main(["paper", *names]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"specjax: run {names[0]!r} ") and words in error
