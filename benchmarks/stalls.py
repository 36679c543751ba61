"""How long do the rows of a batch wait while a long prompt is read?

    python benchmarks/stalls.py --target=llama-gsm8k-target --drafter=llama-gsm8k-drafter \\
      --source_file=test.jsonl.gz --source_field=question --template='Q: {}\\nA:' --long=4000

Short prompts fill the slots; after some of them comes a prompt of `--long` tokens. Printed is the
longest time between two looks at the rows, in rounds of the median time, with the long prompt read
at once and in parts.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from typing import Any

from flags import add_prompt_flags, read_prompts

import specjax
from specjax.batching.requests import Entry, ListFeed
from specjax.batching.rows import find_width
from specjax.batching.slots import Slots
from specjax.decoding.parts import PART
from specjax.runtime.errors import UserError


class Watched(Slots):
    """Slots that note when they looked at their rows."""

    looks: list[tuple[float, int]]

    def _take_ended(self) -> Any:
        taken = super()._take_ended()
        self.looks.append((time.perf_counter(), self._rounds))
        return taken


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_prompt_flags(parser)
    parser.add_argument("--long", type=int, default=4000, help="tokens of the long prompt")
    parser.add_argument("--examples", type=int, default=32)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--max_new_tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


def longest_wait(generator: specjax.Generator, ids: list[list[int]], size: int, part: int) -> Any:
    """The longest time between two looks, the median time of a round, and all rows' tokens."""
    most, width = generator.decoder.max_new_tokens, find_width(generator.prompts, ids)
    slots = generator.slots(size, width, eager=True, part=part)
    slots.__class__, slots.looks = Watched, []
    entries = [Entry(place, row, most, 0, place) for place, row in enumerate(ids)]
    tokens = {}
    for one in slots.run(ListFeed(entries)):
        rows = generator.rows(one.generation)
        tokens |= {entry.place: row for entry, row in zip(one.entries, rows, strict=True)}
    gaps = [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(slots.looks)]
    per_round = statistics.median(gap / rounds for gap, rounds in gaps if rounds)
    return max(gap for gap, _ in gaps), per_round, tokens


def main() -> int:
    args = parse()
    try:
        target = specjax.load(args.target)
        drafters = {"drafter": specjax.load(args.drafter)} if args.drafter else {}
        strategy = specjax.speculative(3) if args.drafter else specjax.autoregressive()
        generator = specjax.Generator(
            target,
            drafters,
            strategy,
            max_new_tokens=args.max_new_tokens,
            max_prompt_tokens=args.long,
            bucket=64,
        )
        ids = generator.encode(read_prompts(args, args.examples))
    except UserError as error:
        print(f"stalls: {error}", file=sys.stderr)
        return 2
    text = list(itertools.chain.from_iterable(ids))
    ids.insert(args.batch_size + 4, (text * (1 + args.long // len(text)))[: args.long])
    ways = {"at once": 0, f"in parts of {PART}": PART}
    found: dict[str, list[Any]] = {name: [] for name in ways}
    for turn in range(args.repeats + 1):
        for name, part in ways.items():
            one = longest_wait(generator, ids, args.batch_size, part)
            if turn:  # the first turn compiles
                found[name].append(one)
    for name, runs in found.items():
        waits = sorted(wait for wait, _, _ in runs)
        rounds = sorted(wait / per_round for wait, per_round, _ in runs)
        print(
            f"{name}: longest wait {statistics.median(waits):.2f} s ({waits[0]:.2f} to"
            f" {waits[-1]:.2f}), {statistics.median(rounds):.0f} rounds"
        )
    same = found["at once"][0][2] == found[f"in parts of {PART}"][0][2]
    print("the same tokens" if same else "OTHER TOKENS")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
