"""Merges the logs of processes that decoded apart into that of one run."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specjax.experiments.decode.filled_log import Pass, RowLog
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import stream_rows, write_row

MERGED = "filled.merged.jsonl"
"""File in the workdir, while results are written."""

SHARES = ("occupancy", "occupancy_before_tail")
TIMES = ("first_token_seconds", "last_token_seconds")


@contextlib.contextmanager
def merge_logs(files: Sequence[Path], merged: Path) -> Iterator[RowLog]:
    """A log with the rows and figures of all `files`; its file exists as long as the context.

    Raises:
      UserError: when a file is damaged or missing, or its process read other prompts.
    """
    figures: dict[Pass, list[dict[str, Any]]] = {}
    with merged.open("w", encoding="utf-8") as out:
        _write_description(files, out)
        for file in files:
            for _, line in itertools.islice(stream_rows(file), 1, None):
                if "figures" in line:
                    key = line["strategy"], line["pass"]
                    figures.setdefault(key, []).append(line["figures"])
                else:
                    write_row(out, line, ensure_ascii=False)
        whole = {key: merge_figures(parts) for key, parts in figures.items()}
        yield RowLog(merged, out, whole)
    merged.unlink()


def _write_description(files: Sequence[Path], out: Any) -> None:
    """Writes the first line, which says what the run is."""
    described = [next(stream_rows(file), (0, {}))[1] for file in files]
    for file, each in zip(files, described, strict=True):
        if each.get("prompts") != described[0].get("prompts"):
            raise UserError(
                f"{str(file)!r} is of other prompts than {str(files[0])!r}; all processes must read"
                " the same data"
            )
    write_row(out, described[0])


def merge_figures(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of a pass of all processes, from those of each, as if they began together.

    Seconds and times are the longest ones, shares the means over the rounds of all processes.
    """
    counts = {
        name: sum(part[name] for part in parts) for name in ("resumed_rows", "rows", "tokens")
    }
    seconds, ran = max(part["seconds"] for part in parts), [part for part in parts if part["rows"]]
    return {
        **counts,
        "seconds": seconds,
        "tokens_per_second": counts["tokens"] / seconds if ran else None,
        "rounds": max(part["rounds"] for part in parts),
        **{name: _average(ran, name) for name in SHARES},
        **{name: _find_longest([part[name] for part in ran or parts]) for name in TIMES},
        "processes": list(parts),
    }


def _average(parts: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The mean of a share over the rounds of all parts that have one; None if none has."""
    known = [part for part in parts if part[name] is not None]
    rounds = sum(part["rounds"] for part in known)
    return sum(part[name] * part["rounds"] for part in known) / rounds if known else None


def _find_longest(times: Sequence[Mapping[str, float | None]]) -> dict[str, float | None]:
    """The longest of each time."""
    known = {name: [each[name] for each in times] for name in times[0]}
    return {
        name: max((value for value in values if value is not None), default=None)
        for name, values in known.items()
    }
