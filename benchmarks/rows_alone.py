"""Do refilled slots write what each prompt gets alone, however many slots there are?

    python benchmarks/rows_alone.py --target=llama-gsm8k-target \\
      --drafters=small=llama-gsm8k-drafter,head=runs/eagle/model \\
      --source_file=test.jsonl.gz --source_field=question --template='Q: {}\\nA:' \\
      --examples=1000 --slots=1:300,7:300,32 --temperatures=0,1 \\
      --strategy='{"drafter": "neural", "model": "small", "length": 3}'

Every prompt is decoded in a batch of its own; then all of them, or so many as follow the colon, in
slots that are refilled. Limits of new tokens differ from row to row. Printed is how many rows
differ, and the share of slots that were active before the last prompt began. A batch of one row
rounds otherwise than one of many, which may change a drawn token, so rows that differ are decoded
once more, alone in as many slots: exit code 1 if any differs then, too. A strategy's `"weights":
"int8"` are those of the target; with `"corpus": true` suffixes are also looked up in texts that the
target writes to the last prompts of the file.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from typing import Any

import jax
import numpy as np
from filling import find_occupancy
from flags import add_prompt_flags, read_prompts

import specjax
from specjax.batching.requests import Entry, ListFeed
from specjax.batching.rows import find_width
from specjax.batching.slots import EndedRows
from specjax.data.corpus import Corpus
from specjax.runtime.errors import UserError
from specjax.runtime.progress import progress

CORPUS_TEXTS = 64


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_prompt_flags(parser)
    parser.add_argument("--drafters", default="", help="name=directory, with commas between")
    parser.add_argument("--strategy", action="append", type=json.loads, help="its fields as JSON")
    parser.add_argument("--examples", type=int, default=1000)
    parser.add_argument("--slots", default="1:300,7:300,32", help="with commas between")
    parser.add_argument("--temperatures", default="0,1", help="with commas between")
    parser.add_argument("--max_new_tokens", type=int, default=32)
    parser.add_argument("--least_new_tokens", type=int, default=4, help="limits begin here")
    parser.add_argument("--bucket", type=int, default=64)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--invariant", type=int, default=0, help="as of a generator")
    return parser.parse_args()


class Pair:
    """The target, drafters and prompts of all strategies."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.target = specjax.load(args.target, dtype=args.dtype)
        parts = (part.partition("=") for part in args.drafters.split(",") if part)
        self.drafters = {name: specjax.load(at, dtype=args.dtype) for name, _, at in parts}
        prompts = read_prompts(args, args.examples + CORPUS_TEXTS)
        self.prompts, self.others = prompts[: args.examples], prompts[-CORPUS_TEXTS:]
        draw = np.random.default_rng(0)
        least, most = args.least_new_tokens, args.max_new_tokens
        self.limits = [int(one) for one in draw.integers(least, most + 1, len(prompts))]

    def make_generator(self, fields: dict[str, Any], temperature: float) -> specjax.Generator:
        """The generator of a strategy."""
        fields = dict(fields)
        target, weights = self.target, fields.pop("weights", None)
        if weights:
            target = specjax.load(self.args.target, dtype=self.args.dtype, weights=weights)
        return specjax.Generator(
            target,
            self.drafters,
            specjax.strategy(**fields, temperature=temperature),
            max_new_tokens=self.args.max_new_tokens,
            max_prompt_tokens=2048,
            bucket=self.args.bucket,
            invariant=self.args.invariant,
            tables={"corpus": self.corpus()} if fields.get("corpus") else {},
        )

    def corpus(self) -> Any:
        """The target's texts to the prompts that are not decoded."""
        made = specjax.Generator(self.target, max_new_tokens=32, bucket=self.args.bucket)
        texts = Corpus(self.target.model)
        texts.add(made(self.others, batch_size=CORPUS_TEXTS).tokens)
        return texts.table()


def decode_alone(made: specjax.Generator, ids: list[Any], limits: list[int]) -> list[list[int]]:
    """Every prompt in a batch of its own."""
    rows = []
    for place, prompt in enumerate(progress(ids, desc="alone")):
        batch = made.batch([prompt], 1, place)
        limit = np.asarray(limits[place : place + 1], np.int32)
        rows += made.rows(made.run(batch, made.keys(batch, 0), limit))[:1]
    return rows


def decode_in_slots(
    made: specjax.Generator, entries: list[Entry], slots: int, width: int
) -> tuple[dict[int, list[int]], float]:
    """The rows of prompts by place from slots, and the share of active slots before the tail."""
    rows: dict[int, list[int]] = {}
    filled = made.slots(slots, width)
    ended = [one for one in filled.run(ListFeed(entries)) if isinstance(one, EndedRows)]
    for one in ended:
        found = made.rows(one.generation)
        rows |= {entry.place: row for entry, row in zip(one.entries, found, strict=True)}
    return rows, find_occupancy(ended, slots)[1]


def compare(pair: Pair, fields: dict[str, Any], temperature: float) -> int:
    """Compares one strategy at one temperature; returns how many rows differ."""
    start, made, found = time.perf_counter(), pair.make_generator(fields, temperature), 0
    ids = made.encode(pair.prompts)
    alone, said = decode_alone(made, ids, pair.limits), []
    width = find_width(made.prompts, ids)
    entries = [Entry(place, ids[place], pair.limits[place], 0, place) for place in range(len(ids))]
    for part in pair.args.slots.split(","):
        slots, _, count = part.partition(":")
        some = entries[: int(count or len(ids))]
        rows, active = decode_in_slots(made, some, int(slots), width)
        others = [entry for entry in some if rows[entry.place] != alone[entry.place]]
        again = [decode_in_slots(made, [entry], int(slots), width)[0] for entry in others]
        still = sum(rows[place] != row for one in again for place, row in one.items())
        said.append(
            f"{slots} slots {len(others)} of {len(some)} differ, {still} from the same slots"
            f" ({active:.3f} active)"
        )
        found += still
    print(
        f"{json.dumps(fields)} at {temperature:g}: {sum(map(len, alone)):,} tokens; "
        f"{'; '.join(said)}; {time.perf_counter() - start:.0f} s",
        flush=True,
    )
    jax.clear_caches()
    return found


def main() -> int:
    args = parse()
    try:
        pair = Pair(args)
        temperatures = map(float, args.temperatures.split(","))
        runs = itertools.product(args.strategy or [{}], temperatures)
        return int(sum(compare(pair, *run) for run in runs) > 0)
    except UserError as error:
        print(f"rows_alone: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
