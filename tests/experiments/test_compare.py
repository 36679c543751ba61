"""Finished runs side by side: paired intervals, seeds, and one sentence for runs that differ."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from command import ROOT, command, run_refused

from specjax.experiments.compare.figures import Figure, combine_pairs, over, rows, sum_blocks
from specjax.experiments.compare.runs import read_runs, same_but_for_seeds
from specjax.metrics.metric import get_metric

N = 24
TEXT = "zwei junge Männer stehen in blauen Hemden auf einer grünen Wiese und lachen laut"
SPEEDS = {"autoregressive": 1.0, "speculative_3": 2.0}


def write_run(
    folder: Path, *, seed: int = 0, batch_size: int = 1, slower: float = 1.0, wrong: int = 0, **data
) -> str:
    """A run as decode leaves it; `wrong` outputs of the drafted strategy miss a word.

    No two folders have the same moments of noise.
    """
    rng = np.random.default_rng([seed, *folder.name.encode()])
    # Easy and hard examples: times differ fourfold, by as much in every run.
    lengths = np.random.default_rng(99).integers(5, 21, N)
    references = [" ".join(TEXT.split()[i % 5 :][:9]) for i in range(N)]
    data = {"name": "test", "examples": N, "metric": "bleu"} | data
    arrays, lines = {}, []
    for name, speed in SPEEDS.items():
        noise = 1 + 0.02 * rng.random((N, 3))
        each = slower * 1e-3 * lengths[:, None] ** 1.5 / speed * noise
        starts = np.arange(0, N, batch_size)
        arrays[f"{name}/seconds"] = np.add.reduceat(each, starts, axis=0)
        for index, reference in enumerate(references):
            missing = name != "autoregressive" and index < wrong
            lines.append(
                {
                    "example": index,
                    "strategy": name,
                    "source": f"source {index}",
                    "reference": reference,
                    "output": reference.rpartition(" ")[0] if missing else reference,
                    "tokens": [1] * int(lengths[index]),
                }
            )
    strategies = {name: {"lossless": name == "autoregressive" or not wrong} for name in SPEEDS}
    content = {
        "environment": {"device": "cpu"},
        "config": {"seed": seed, "batch_size": batch_size, "wrong": wrong, "slower": slower},
        "data": data,
        "strategies": strategies,
    }
    folder.mkdir(parents=True)
    (folder / "results.json").write_text(json.dumps(content))
    (folder / "outputs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    np.savez(folder / "trace.npz", **arrays)
    return str(folder)


def compare_runs(*folders: str, seed: int = 0) -> dict[tuple[str, str], dict]:
    """The rows by strategy and the name of the run's folder."""
    groups = same_but_for_seeds(read_runs(",".join(folders)))
    return {(row["strategy"], Path(row["run"]).name): row for row in rows(groups, seed)}


@pytest.fixture
def two(tmp_path) -> tuple[str, str]:
    """A run, and one of another config that takes 10% longer and loses words."""
    return write_run(tmp_path / "a"), write_run(tmp_path / "b", slower=1.1, wrong=6)


def test_figures_are_those_of_all_examples(two):
    row = compare_runs(*two)["speculative_3", "b"]
    (run,) = [run for run in read_runs(",".join(two)) if run.name.endswith("b")]
    decoded = run.strategies["speculative_3"]
    assert row["ms_per_token"] == pytest.approx(1e3 * decoded.seconds.sum() / decoded.tokens.sum())
    references = [reference for _, reference in run.examples]
    assert row["bleu"] == pytest.approx(get_metric("bleu")(decoded.outputs, references)["bleu"])


def test_differences_are_paired_so_that_hard_examples_cancel(two):
    row = compare_runs(*two)["speculative_3", "b"]
    baseline = (row["ms_per_token_high"] - row["ms_per_token_low"]) / row["ms_per_token"]
    together = (row["speed_ratio_high"] - row["speed_ratio_low"]) / row["speed_ratio"]
    assert row["speed_ratio"] == pytest.approx(1 / 1.1, rel=0.01)
    assert row["speed_ratio_low"] < row["speed_ratio"] < row["speed_ratio_high"] < 1
    assert together < baseline / 5


def test_lost_words_show_and_equal_outputs_do_not_differ(two):
    found = compare_runs(*two)
    lost = found["speculative_3", "b"]
    assert lost["bleu_difference_low"] < lost["bleu_difference"] < 0
    assert lost["bleu_difference_high"] <= 0
    same = found["autoregressive", "b"]
    assert [same[f"bleu_difference{end}"] for end in ("", "_low", "_high")] == [0, 0, 0]
    assert "speed_ratio" not in found["autoregressive", "a"]


def test_the_same_seed_draws_the_same_examples(two):
    assert compare_runs(*two) == compare_runs(*two) != compare_runs(*two, seed=1)


def test_batches_are_drawn_whole(tmp_path):
    wide = write_run(tmp_path / "wide", batch_size=2), write_run(tmp_path / "other", batch_size=1)
    row = compare_runs(*wide)["speculative_3", "other"]
    assert row["speed_ratio"] == pytest.approx(1, rel=0.01)  # the same seconds, in twos
    assert row["speed_ratio_low"] is not None
    wider = wide[0], write_run(tmp_path / "three", batch_size=3)
    row = compare_runs(*wider)["speculative_3", "three"]
    assert row["speed_ratio_low"] is row["bleu_low"] is None  # four blocks say little
    assert sum_blocks(np.arange(5), 2).tolist() == [1, 5, 4]


def test_seeds_of_one_config_become_one_row_with_their_interval(tmp_path):
    ours = [write_run(tmp_path / f"a{seed}", seed=seed) for seed in (0, 1, 2)]
    theirs = [write_run(tmp_path / f"b{seed}", seed=seed, slower=1.2) for seed in (2, 1, 0)]
    found = compare_runs(*ours, *theirs)
    assert set(found) == {(name, run) for name in SPEEDS for run in ("a0", "b0")}
    row = found["speculative_3", "b0"]
    assert (row["runs"], row["seeds"], row["interval_over"]) == (3, "0 1 2", "seeds")
    assert row["speed_ratio_low"] <= row["speed_ratio"] <= row["speed_ratio_high"]
    assert row["speed_ratio"] == pytest.approx(1 / 1.2, rel=0.01)
    own = [over([Figure(value, None) for value in (1.0, 2.0, 3.0)])]
    assert own[0].value == 2 and own[0].high == pytest.approx(2 + 4.3027 / np.sqrt(3), rel=1e-4)


def test_a_seed_that_comes_again_is_another_run(tmp_path):
    before, after = write_run(tmp_path / "before"), write_run(tmp_path / "after")
    assert len(same_but_for_seeds(read_runs(f"{before},{after}"))) == 2


def test_groups_of_unlike_size_have_no_interval_between_them():
    figures = [Figure(value, np.full(4, value)) for value in (2.0, 4.0)]
    found = combine_pairs(figures, figures[:1], lambda a, b: a / b)
    assert (found.value, found.low, found.high) == (1.5, None, None)


def test_the_job_prints_writes_and_draws(two, tmp_path):
    line = [f"--config={ROOT / 'configs' / 'compare.py'}", f"--config.runs={two[0]},{two[1]}"]
    done = command(*line, f"--workdir={tmp_path / 'out'}")
    assert done.returncode == 0, done.stderr
    assert "speed over first" in done.stdout and "2 runs of the same 24 examples" in done.stdout
    with (tmp_path / "out" / "compare.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 4
    assert (tmp_path / "out" / "plots" / "compare.png").stat().st_size > 5000
    latex, markdown, page = (
        (tmp_path / "out" / name).read_text("utf-8")
        for name in ("table.tex", "table.md", "report.html")
    )
    assert latex.count(r" \\") == 5 and r"speculative\_3" in latex and r"\bottomrule" in latex
    assert markdown.count("\n| ") == 6 and r"speculative\_3" in markdown
    assert "95% intervals" in page and "<svg" in page and page.count("<tr") == 5


def change_run(folder: str, file: str, old: str, new: str) -> None:
    path = Path(folder) / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def no_times(folder: str) -> None:
    np.savez(Path(folder) / "trace.npz", other=np.ones(3))


def half_of_the_examples(folder: str) -> None:
    other = Path(folder)
    lines = (other / "outputs.jsonl").read_text().splitlines(keepends=True)
    (other / "outputs.jsonl").write_text("".join(lines[: N // 2] + lines[N : N + N // 2]))
    with np.load(other / "trace.npz") as trace:
        arrays = {name: trace[name][: N // 2] for name in trace}
    np.savez(other / "trace.npz", **arrays)


MISTAKES = {
    "other sources": (
        lambda run: change_run(run, "outputs.jsonl", "source 7", "another"),
        ("same examples", "differ in example 7"),
    ),
    "fewer examples": (half_of_the_examples, ("same examples", "24 and 12")),
    "another metric": (
        lambda run: change_run(run, "results.json", '"bleu"', '"exact_match"'),
        ("'bleu' and 'exact_match'",),
    ),
    "no outputs": (lambda run: (Path(run) / "outputs.jsonl").unlink(), ("no outputs.jsonl",)),
    "no JSON": (lambda run: (Path(run) / "results.json").write_text("{"), ("cannot be read",)),
    "of another job": (
        lambda run: (Path(run) / "results.json").write_text('{"chosen": 3}'),
        ("cannot be read", "KeyError: 'strategies'"),
    ),
    "of an older version": (no_times, ("cannot be read", "seconds")),
    "a broken archive": (
        lambda run: (Path(run) / "trace.npz").write_bytes(b""),
        ("cannot be read",),
    ),
    "no strategies": (
        lambda run: change_run(run, "results.json", '"strategies": {', '"strategies": {}, "x": {'),
        ("not of the same examples",),
    ),
}


@pytest.mark.parametrize(("spoil", "words"), MISTAKES.values(), ids=MISTAKES)
def test_runs_that_cannot_be_compared_are_refused(spoil, words, two, tmp_path):
    spoil(two[1])
    line = [f"--config={ROOT / 'configs' / 'compare.py'}", f"--config.runs={two[0]},{two[1]}"]
    done = command(*line, f"--workdir={tmp_path / 'out'}")
    run_refused(done.returncode, done.stderr, two[1], *words)
    assert not (tmp_path / "out").exists()
