"""The benchmark for accelerators on CPU: planted texts, what is measured, resumed and printed."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import accelerator  # noqa: E402
import contests  # noqa: E402
import planted  # noqa: E402
from accelerator_results import Results, report  # noqa: E402
from contests import DECODE, DRAFT, VERIFY, Texts, Unit  # noqa: E402

from specjax.accelerators.chips import get_bandwidth  # noqa: E402
from specjax.runtime.errors import UserError  # noqa: E402

FLAGS = ("--batches=1", "--lengths=7", "--prompt_tokens=8", "--new_tokens=100", "--repeats=2")
SETTINGS = {"prompt_tokens": 256, "new_tokens": 128, "repeats": 2}


@pytest.fixture(autouse=True)
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No copy is timed, and what the benchmark sets of jax does not outlive a test."""
    monkeypatch.setattr(accelerator, "copy_bandwidth", lambda size: 1e9)
    names = ("jax_compilation_cache_dir", "jax_platforms")
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def parse_table(folder: Path, *more: str) -> accelerator.argparse.Namespace:
    return accelerator.parse([f"--out={folder}", *FLAGS, *more])


def test_errors_are_as_many_as_asked_for_and_the_output_layer_is_only_reordered():
    after = planted.successors(250, 0.62, seed=3)
    assert sorted(after) == list(range(250))
    wrong = after != (np.arange(250) + 1) % 250
    assert [wrong[:100].sum(), wrong[100:200].sum(), wrong[200:].sum()] == [38, 38, 19]
    assert (planted.successors(250, 0.62, seed=4) != after).any()
    assert (after[planted.find_predecessors(after)] == np.arange(250)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny_t5", "tiny_llama"])
def test_a_part_is_measured_once_at_the_acceptance_that_is_set(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    part = accelerator.Part("default", name, 0)
    accelerator.work(parse_table(tmp_path, "--until=1"), part)
    assert not list(Results(tmp_path).rows), "the time was over"

    accelerator.work(parse_table(tmp_path), part)
    rows = list(Results(tmp_path).rows)
    assert {row["kind"] for row in rows} == {DECODE, DRAFT, VERIFY}
    decoded = [row for row in rows if row["kind"] == DECODE]
    assert decoded and all(row["same_tokens"] for row in decoded)
    for row in decoded:
        # Errors are exact over 100 tokens; which of them a round does not test is not.
        assert np.mean(row["accepted"]) == pytest.approx(row["acceptance"], abs=0.06)
    assert all(len(row[side]) == 2 for row in rows for side in ("base_ms", "other_ms"))

    monkeypatch.setattr(accelerator, "loader", None)  # whatever measured again would call it
    accelerator.work(parse_table(tmp_path), part)
    assert accelerator.list_missing(parse_table(tmp_path, "--batches=2"), part, Results(tmp_path))
    capsys.readouterr()
    assert accelerator.main([f"--out={tmp_path}", "--report"]) == 0
    shown = capsys.readouterr().out
    assert f"## {name}, XLA's default command buffers" in shown
    assert "| small | 7 | 0.75 | 0.7" in shown and "DIFFER" not in shown


@pytest.mark.slow
def test_drafts_of_a_text_that_counts_are_the_text_itself():
    loaded = contests.Loaded.make(planted.PAIRS["tiny_t5"], Texts(8, 100))
    trial = loaded.contest(Unit(DECODE, 1, "small", 7, 1.0)).trial(1, 0)
    assert trial.tokens == list(range(1, 101))
    assert trial.accepted == 1.0


def make_rows(folder: Path, device: str = "NVIDIA H100 80GB HBM3") -> Results:
    """Results by hand: a step of 5 ms, c 0.1, v(7) 1.25, a decode at 2.5 times the speed."""
    results = Results(folder)
    results.agree("settings", SETTINGS)
    results.agree("about", {"device": device, "platform": "gpu"})
    decoded = {"same_tokens": True, "accepted": [0.74, 0.76]}
    for unit, base, other, more in (
        (Unit(VERIFY, 1, length=7), [5.0, 5.0], [6.25, 6.25], {}),
        (Unit(DRAFT, 1, "small"), [5.0, 5.0], [0.5, 0.5], {}),
        (Unit(DECODE, 1, "small", 7, 0.75), [6.0, 5.0], [2.4, 2.0], decoded),
    ):
        results.add("default", "t5xxl", unit, 0, {"base_ms": base, "other_ms": other, **more})
    failed = {"failed": "memory is not enough"}
    results.add("default", "t5xxl", Unit(VERIFY, 64, length=7), 0, failed)
    return results


def test_the_tables_say_how_far_from_the_bound_and_beside_the_paper(tmp_path: Path):
    shown = report(make_rows(tmp_path))
    # 9.40 ms on a TPU v4 (benchmarks/bandwidth_bound.py) are 3.4 at 3,350 GB/s.
    step = "| 1 | 5.00 (5.00 to 5.00) | 3.36 | 67% | 0.100 (0.100 to 0.100) | 1.250"
    assert step in shown
    # Theorem 3.8: 3.600 tokens a round over 7 x 0.1 + 1.25.
    end = "| 2.20 (2.00 to 2.40) | 2.50 (2.50 to 2.50) | 1.85 | 3.4 |"
    assert "| small | 7 | 0.75 | 0.75 | same |" in shown and end in shown
    assert "- verify/batch=64/K=7: memory is not enough" in shown


def test_a_bandwidth_that_is_given_counts_and_an_unknown_one_is_said(tmp_path: Path):
    results = make_rows(tmp_path, "Unheard-of")
    assert "the bandwidth is not known; give --bandwidth" in report(results)
    assert "| 9.38 | 188% |" in report(results, 1200e9)


def test_tokens_that_differ_are_shown_and_end_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    row = {"base_ms": [2.0], "other_ms": [1.0], "accepted": [None], "same_tokens": False}
    make_rows(tmp_path).add("huggingface", "t5xxl", Unit(DECODE, 1, "base", 7, 0.8), 0, row)
    assert accelerator.main([f"--out={tmp_path}", "--report"]) == 1
    assert "| base | 7 | 0.80 | - | DIFFER |" in capsys.readouterr().out


def test_command_buffers_are_turned_off_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_to=here")
    assert accelerator.variables("default")["XLA_FLAGS"] == "--xla_dump_to=here"
    off = accelerator.variables("off")["XLA_FLAGS"]
    assert off == "--xla_dump_to=here --xla_gpu_enable_command_buffer="
    assert accelerator.variables("huggingface")["JAX_PLATFORMS"] == "cpu"


def test_every_part_has_a_process_and_a_crash_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    started = []

    def run(command: list[str], **how: object) -> object:
        started.append(next(word for word in command if word.startswith("--part=")))
        return accelerator.subprocess.CompletedProcess(command, 1 if len(started) == 1 else 0)

    monkeypatch.setattr(accelerator.subprocess, "run", run)
    flags = [f"--out={tmp_path}", "--shapes=tiny_t5", *FLAGS]
    assert accelerator.main(flags) == 1
    assert started == [f"--part={s}:tiny_t5:{n}" for s, n in ORDER]


ORDER = (("default", 0), ("off", 0), ("off", 1), ("default", 1))


def test_other_settings_and_other_devices_are_not_mixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    results = make_rows(tmp_path)
    assert accelerator.main([f"--out={tmp_path}", "--repeats=3"]) == 2
    assert "repeats is 3, and" in capsys.readouterr().err
    with pytest.raises(UserError, match="device is 'cpu'.*H100"):
        results.agree("about", {"device": "cpu"})


@pytest.mark.parametrize(
    ("flag", "sentence"),
    [
        ("--shapes=t5xxl,gpt", "--shapes has 'gpt'; it must be of t5xxl"),
        ("--batches=1,0", "--batches is '1,0'; it must be integers"),
        ("--lengths=16", "from 1 to 15"),
        ("--new_tokens=1", "--new_tokens is '1'; it must be an integer from 2 to 1024"),
        ("--repeats=2,3", "--repeats is '2,3'; it must be an integer"),
        ("--minutes=-1", "--minutes is '-1'; it must be a number of at least 0"),
        ("--bandwidth=fast", "--bandwidth is 'fast'"),
        ("--command_buffers=on", "--command_buffers has 'on'; it must be of default, off"),
        ("--sheep=1", "--sheep=1"),
        ("--report", "it must be a folder with a results.json"),
    ],
)
def test_bad_flags_are_refused_in_one_sentence(
    flag: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert accelerator.main([f"--out={tmp_path / 'new'}", flag]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("accelerator: ") and sentence in line
    assert not (tmp_path / "new").exists()


def test_a_file_that_is_no_json_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "results.json").write_text("{")
    assert accelerator.main([f"--out={tmp_path}", "--report"]) == 2
    assert "is not JSON" in capsys.readouterr().err
    (tmp_path / "results.json").write_text(json.dumps([1]))
    assert accelerator.main([f"--out={tmp_path}", "--report"]) == 2


def test_bandwidths_are_known_by_the_name_of_the_device():
    known = {"NVIDIA H200": 4800, "NVIDIA L4": 300, "TPU v4": 1200, "TPU v5 lite": 819}
    assert {name: get_bandwidth(name) / 1e9 for name in known} == known
    assert get_bandwidth("NVIDIA H200 MIG 1g.18gb") is None


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_torch_decodes_the_same_text_with_and_without_an_assistant():
    from contests_huggingface import Loaded

    loaded = Loaded(planted.PAIRS["tiny_llama"], Texts(8, 12))
    row = contests.alternate(loaded.contest(Unit(DECODE, 1, "small", 3, 0.75)), 1)
    ours = contests.Loaded.make(planted.PAIRS["tiny_llama"], Texts(8, 12))
    text = ours.contest(Unit(DECODE, 1, "small", 3, 0.75)).trial(0, 0).tokens
    assert row["same_tokens"]
    assert loaded.contest(Unit(DECODE, 1, "small", 3, 0.75)).trial(0, 0).tokens == text
