"""Writes images of lines of text, in the font that Pillow brings along, and their manifests.

    python benchmarks/rendered_lines.py --text=train.en.gz --out=lines

Each line has words of a line of the text from a random one on, up to a random number of letters. It
is drawn at a random place, in random gray on light noise. `train.jsonl` and `test.jsonl` have rows
for the task `read_image`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from absl import app, flags
from PIL import Image, ImageDraw

from specjax.data.files import text_lines

TEXT = flags.DEFINE_string("text", None, "file of lines, plain or gzipped", required=True)
OUT = flags.DEFINE_string("out", None, "folder to write", required=True)
COUNT = flags.DEFINE_integer("count", 60_000, "lines for training", lower_bound=1)
TEST = flags.DEFINE_integer("test", 300, "lines held out", lower_bound=1)
LETTERS = flags.DEFINE_integer("letters", 24, "letters of a line, at most", lower_bound=1)
FEWEST = flags.DEFINE_integer("fewest", 4, "of the random numbers of letters", lower_bound=1)
SIZE = flags.DEFINE_list("size", ["16", "192"], "height and width of an image in pixels")
SEED = flags.DEFINE_integer("seed", 0, "of places and noise")


def cut(line: str, most: int) -> str:
    """The first words of a line that are at most so many letters."""
    return line if len(line) <= most else line[: most + 1].rpartition(" ")[0]


def texts(count: int, rng: np.random.Generator) -> Iterator[str]:
    """Different parts of lines, in the order of the text, which is read as often as needed."""
    seen: set[str] = set()
    found = -1
    while found < len(seen):
        found = len(seen)
        for line in text_lines("--text", TEXT.value):
            text = part(line.split(), rng)
            if text and text.isascii() and text not in seen:
                seen.add(text)
                yield text
            if len(seen) == count:
                return
    raise app.UsageError(f"{TEXT.value} has {len(seen):,} different parts; {count:,} are needed")


def part(words: list[str], rng: np.random.Generator) -> str:
    """The words from a random one on that are at most a random number of letters."""
    most = int(rng.integers(FEWEST.value, LETTERS.value + 1))
    return cut(" ".join(words[rng.integers(len(words)) :]), most)


def draw(text: str, size: tuple[int, int], rng: np.random.Generator) -> Image.Image:
    """An image of a text."""
    height, width = size
    image = Image.new("L", (width, height), 255)
    place = int(rng.integers(0, 5)), int(rng.integers(0, max(height - 12, 1)))
    ImageDraw.Draw(image).text(place, text, fill=int(rng.integers(0, 90)))
    noise = rng.normal(0.0, 12.0, (height, width))
    return Image.fromarray(np.clip(np.asarray(image) + noise, 0, 255).astype(np.uint8))


def main(_: list[str]) -> None:
    if FEWEST.value > LETTERS.value:
        raise app.UsageError(f"--fewest is {FEWEST.value}; it must be at most {LETTERS.value}")
    height, width = map(int, SIZE.value)
    folder, rng = Path(OUT.value), np.random.default_rng(SEED.value)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    rows = []
    for number, text in enumerate(texts(COUNT.value + TEST.value, rng)):
        name = f"images/{number:06d}.png"
        draw(text, (height, width), rng).save(folder / name)
        rows.append(json.dumps({"image": name, "text": text}))
    for file, part in (("test", rows[: TEST.value]), ("train", rows[TEST.value :])):
        (folder / f"{file}.jsonl").write_text("\n".join(part) + "\n", "utf-8")
    print(f"{len(rows):,} lines in {folder}")


if __name__ == "__main__":
    app.run(main)
