"""Times decodes of every query by every arm, one query at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from specjax.api import Generator
from specjax.data.batching import Batch
from specjax.experiments.decode.job import time_decode
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import whole_lines, write_row
from specjax.runtime.programs import release_programs
from specjax.runtime.progress import progress
from specjax.selection.data import SECONDS, TOKENS

TIMES = "seconds.jsonl"
"""File in the workdir."""


def measure_times(
    generators: Mapping[str, Generator],
    ids: Sequence[Sequence[int]],
    file: Path,
    repeats: int,
    seed: int,
) -> list[dict[str, Any]]:
    """One row {"index", "seconds", "tokens"} by generator for each query, in order.

    Seconds are the median of `repeats` decodes from host tokens to host tokens, unbatched, the
    generators one after another. Queries of one padded length follow each other and each program
    runs once before it is timed. An interrupted run resumes after the last complete line of `file`.

    Raises:
      UserError: when the file is of other generators.
    """
    made = {row["index"]: row for row in whole_lines(file)}
    for row in made.values():
        if set(row[SECONDS]) != set(generators):
            raise UserError(f"{str(file)!r} times other arms; remove it, or use another workdir")
    first = next(iter(generators.values()))
    batches = {
        index: first.batch([list(row)], first.padded_size(1), first=index)
        for index, row in enumerate(ids)
        if index not in made
    }
    left = sorted(batches, key=lambda index: batches[index].shape[1:])
    ready: tuple[int, ...] = ()
    with (
        file.open("a", encoding="utf-8") as lines,
        progress(total=len(ids), initial=len(made), desc="seconds", unit="query") as bar,
    ):
        for index in left:
            batch = batches[index]
            if batch.shape != ready:
                release_programs()
                for generator in generators.values():
                    time_decode(generator, batch, seed)
                ready = batch.shape
            made[index] = {"index": index} | _decode(generators, batch, repeats, seed)
            write_row(lines, made[index])
            bar.update()
    return [made[index] for index in range(len(ids))]


def _decode(
    generators: Mapping[str, Generator], batch: Batch, repeats: int, seed: int
) -> dict[str, dict[str, Any]]:
    timings: dict[str, list[tuple[float, int]]] = {name: [] for name in generators}
    for _ in range(repeats):
        for name, generator in generators.items():
            seconds, rows, _ = time_decode(generator, batch, seed)
            timings[name].append((seconds, len(rows[0])))
    return {
        SECONDS: {name: median(s for s, _ in pairs) for name, pairs in timings.items()},
        TOKENS: {name: pairs[0][1] for name, pairs in timings.items()},
    }
