"""Writes long texts of which one paragraph is marked, and that paragraph as what is to be written.

    python benchmarks/copied_paragraphs.py --text=train.en.gz --out=paragraphs --count=20000

A paragraph is some random lines of the text, and the mark a `#` before it. `train.jsonl` and
`test.jsonl` have rows for the task `xsum`, `document` and `summary`; `documents.txt` has the
documents alone, for a tokenizer.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from absl import app, flags

from specjax.data.files import text_lines

TEXT = flags.DEFINE_string("text", None, "file of lines, plain or gzipped", required=True)
OUT = flags.DEFINE_string("out", None, "folder to write", required=True)
COUNT = flags.DEFINE_integer("count", 20_000, "documents for training", lower_bound=1)
TEST = flags.DEFINE_integer("test", 300, "documents held out, of lines held out", lower_bound=1)
PARAGRAPHS = flags.DEFINE_integer("paragraphs", 12, "paragraphs of a document", lower_bound=1)
LINES = flags.DEFINE_integer("lines", 2, "lines of a paragraph", lower_bound=1)
SEED = flags.DEFINE_integer("seed", 0, "of the choice of lines")
HELD_OUT = 0.1
"""Share of the text's lines that only the documents for testing have."""


def make_row(lines: list[str], rng: np.random.Generator) -> dict[str, str]:
    """A document of random lines, and its marked paragraph."""
    chosen = rng.choice(len(lines), (PARAGRAPHS.value, LINES.value), replace=False)
    paragraphs = [" ".join(lines[number] for number in numbers) for numbers in chosen]
    marked = int(rng.integers(PARAGRAPHS.value))
    quoted = paragraphs[marked]
    paragraphs[marked] = f"# {quoted}"
    return {"document": " ".join(paragraphs), "summary": quoted}


def main(_: list[str]) -> None:
    lines = [line for line in text_lines("--text", TEXT.value) if line and "#" not in line]
    held_out, needed = int(len(lines) * HELD_OUT), PARAGRAPHS.value * LINES.value
    if held_out < needed:
        raise app.UsageError(
            f"{TEXT.value} has {len(lines):,} lines without #, of which {held_out:,} are held out;"
            f" a document needs {needed}"
        )
    folder, rng = Path(OUT.value), np.random.default_rng(SEED.value)
    folder.mkdir(parents=True, exist_ok=True)
    test = [make_row(lines[:held_out], rng) for _ in range(TEST.value)]
    train = [make_row(lines[held_out:], rng) for _ in range(COUNT.value)]
    for file, rows in (("test.jsonl", test), ("train.jsonl", train)):
        (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    documents = "".join(f"{row['document']}\n" for row in train)
    (folder / "documents.txt").write_text(documents, "utf-8")
    print(f"{len(train):,} documents for training and {len(test):,} held out in {folder}")


if __name__ == "__main__":
    app.run(main)
