"""What a model says to each input of a data set, written as JSONL and resumable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from specjax.api import Generator
from specjax.data.text import Example
from specjax.errors import UserError


def write_outputs(
    generator: Generator, prompts: Sequence[str], file: Path, *, batch_size: int, seed: int
) -> list[Example]:
    """Decodes every prompt that `file` does not hold yet; one line {"source", "reference"} each.

    Lines are in the order of the prompts. A killed run goes on after the last whole line.

    Raises:
      UserError: when the file is of other prompts.
    """
    done = _whole_lines(file)
    for index, (row, prompt) in enumerate(zip(done, prompts, strict=False)):
        if row["source"] != prompt:
            raise UserError(
                f"{str(file)!r} line {index + 1} answers another prompt; it is of another data set"
                " or prefix: remove it, or use another workdir"
            )
    ids = generator.encode(prompts[len(done) :]) if len(done) < len(prompts) else []
    with (
        file.open("a", encoding="utf-8") as lines,
        tqdm(total=len(prompts), initial=len(done), desc="target outputs", unit="example") as bar,
    ):
        for start in range(0, len(ids), batch_size):
            first = len(done) + start
            batch = generator.batch(ids[start : start + batch_size], batch_size, first=first)
            made = generator.rows(generator.run(batch, generator.keys(batch, seed)))
            texts = generator.decode(made[: batch.rows])
            for offset, text in enumerate(texts):
                row = {"source": prompts[first + offset], "reference": text}
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")
            lines.flush()
            bar.update(batch.rows)
    return [Example(row["source"], row["reference"]) for row in _whole_lines(file)]


def _whole_lines(file: Path) -> list[dict[str, str]]:
    """The rows of a file; a last line that a kill cut off is removed."""
    if not file.exists():
        return []
    text = file.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if len(whole) < len(text):
        with file.open("r+b") as opened:
            opened.truncate(len(whole))
    return [json.loads(line) for line in whole.decode("utf-8").split("\n") if line]
