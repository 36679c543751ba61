"""Generates a model's outputs for a data set as JSONL; resumable."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from specjax.api import Generator
from specjax.data.batching import Prompt
from specjax.data.pipeline import Ids, is_states
from specjax.runtime import processes
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import whole_lines, write_row
from specjax.runtime.programs import release_programs
from specjax.runtime.progress import progress


def write_outputs(
    generator: Generator,
    prompts: Sequence[str],
    ids: Sequence[Ids],
    file: Path,
    *,
    batch_size: int,
    seed: int,
    title: str = "target outputs",
) -> list[list[int]]:
    """Generated ids of every prompt; decodes those that `file` does not hold yet.

    One line {"index", "source", "reference", "tokens"} for each, the longest prompts first: rows of
    similar length share a batch. An interrupted run resumes after the last complete line. A row's
    tokens depend only on the seed and its index. Only the first process writes.

    Raises:
      UserError: when the file is of other prompts.
    """
    done = [(row["index"], row["tokens"]) for row in _read_answers(file, prompts)]
    made = dict(processes.from_first(done))
    order = sorted(range(len(prompts)), key=lambda i: -len(ids[i]))
    left = [index for index in order if index not in made]
    with (
        (file if processes.is_first() else Path(os.devnull)).open("a", encoding="utf-8") as lines,
        progress(total=len(prompts), initial=len(made), desc=title, unit="example") as bar,
    ):
        for start in range(0, len(left), batch_size):
            indices = left[start : start + batch_size]
            tokens = _decode(generator, [ids[i] for i in indices], indices, batch_size, seed)
            texts = generator.decode(tokens) or [None] * len(tokens)
            for index, row, text in zip(indices, tokens, texts, strict=True):
                made[index] = row
                line = {"index": index, "source": prompts[index], "reference": text, "tokens": row}
                write_row(lines, line, ensure_ascii=False)
            bar.update(len(indices))
            release_programs()
    return [made[index] for index in range(len(prompts))]


def _decode(
    generator: Generator,
    ids: Sequence[Ids],
    indices: Sequence[int],
    batch_size: int,
    seed: int,
) -> list[list[int]]:
    batch = generator.batch(list(map(make_prompt, ids)), batch_size)
    batch.index[: batch.rows] = indices
    return generator.rows(generator.run(batch, generator.keys(batch, seed)))[: batch.rows]


def make_prompt(row: Ids) -> Prompt:
    """A row's prompt in the form that a generator takes."""
    array = np.asarray(row)
    return array if is_states(array) else array.tolist()


def _read_answers(file: Path, prompts: Sequence[str]) -> list[dict[str, Any]]:
    """The rows that are already decoded."""
    done = whole_lines(file)
    for row in done:
        index = row["index"]
        if index >= len(prompts) or row["source"] != prompts[index]:
            raise UserError(
                f"{str(file)!r} answers another prompt {index}; it is of another data set or"
                " prefix: remove it, or use another workdir"
            )
    return done
