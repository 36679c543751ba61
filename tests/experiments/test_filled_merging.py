"""Logs of processes that decoded apart, as that of one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specjax.experiments.decode.filled_log import list_logs
from specjax.experiments.decode.filled_merging import MERGED, merge_figures, merge_logs
from specjax.parallel.mesh import make_own_mesh
from specjax.runtime import processes
from specjax.runtime.errors import UserError


def figures(**changes) -> dict:
    times = {"median": 0.2, "p95": 0.5}
    return {
        "resumed_rows": 0, "rows": 4, "tokens": 40, "seconds": 2.0, "tokens_per_second": 20.0,
        "rounds": 10, "occupancy": 0.5, "occupancy_before_tail": 1.0, "first_token_seconds": times,
        "last_token_seconds": times, **changes,
    }  # fmt: skip


NONE = {"median": None, "p95": None}
RESUMED = {
    "resumed_rows": 4, "rows": 0, "tokens": 0, "tokens_per_second": None, "rounds": 0,
    "occupancy": None, "occupancy_before_tail": None, "first_token_seconds": NONE,
    "last_token_seconds": NONE,
}  # fmt: skip


def test_a_pass_is_as_long_as_its_longest_part():
    slow = figures(
        seconds=8.0, rounds=30, occupancy=0.9, last_token_seconds={"median": 0.1, "p95": 3.0}
    )
    whole = merge_figures([figures(), slow])
    assert whole["tokens_per_second"] == 80 / 8 and whole["rows"] == 8 and whole["rounds"] == 30
    assert whole["occupancy"] == pytest.approx((0.5 * 10 + 0.9 * 30) / 40)
    assert whole["last_token_seconds"] == {"median": 0.2, "p95": 3.0}


def test_a_part_of_which_all_rows_were_resumed_has_no_share():
    whole = merge_figures([figures(), figures(**RESUMED)])
    assert whole["resumed_rows"] == 4 and whole["occupancy"] == 0.5
    nothing = merge_figures([figures(**RESUMED)] * 2)
    assert nothing["tokens_per_second"] is None and nothing["first_token_seconds"] == NONE


def write_log(file: Path, prompts: str, examples: list[int]) -> None:
    key = {"strategy": "a", "pass": 0}
    rows = {"rows": [{"example": n} for n in examples], "sums": {"tokens": len(examples)}}
    lines = [{"prompts": prompts}, {**key, **rows}, {**key, "figures": figures()}]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_logs_of_all_processes_are_one(tmp_path):
    files = list_logs(tmp_path, 2)
    write_log(files[0], "same", [0, 2, 4])
    write_log(files[1], "same", [1, 3])
    with merge_logs(files, tmp_path / MERGED) as log:
        assert log.sum_up(["a"]) == {"a": {"tokens": 5}}
        assert log.figures["a", 0]["tokens"] == 80
    assert not (tmp_path / MERGED).exists()
    write_log(files[1], "others", [1, 3])
    refused = pytest.raises(UserError, match="filled.1.jsonl' is of other prompts than")
    with refused, merge_logs(files, tmp_path / MERGED):
        pass


def test_a_mesh_that_processes_cannot_share_is_refused(monkeypatch):
    monkeypatch.setattr(processes, "get_place", lambda: (0, 2))
    with pytest.raises(UserError, match="with 2 processes; in a filled run data must be"):
        make_own_mesh({"data": 1, "model": 1})
