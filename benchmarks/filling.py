"""Is a batch that never drains faster than static batches, with the same tokens?

    python benchmarks/filling.py --target=llama-gsm8k-target --drafter=llama-gsm8k-drafter \\
      --source_file=test.jsonl.gz --source_field=question --template='Q: {}\\nA:' \\
      --batch_size=32 --max_new_tokens=256 --examples=192 \\
      --strategy='{}' --strategy='{"drafter": "neural", "length": 3}'

Every strategy decodes the prompts as static batches and in slots that are refilled, in alternation,
after one run of each that compiles. Printed are tokens a second, the ratio of each pair of runs,
the share of slots that were active in a round (of all rounds, and of those before the last prompt
began), and with `--alone` how many rows differ from the same prompt decoded alone. Exit code 1 if
any row differs. `--stream=10000` only streams so many prompts and prints what memory is in use.
`--cost` measures what slots cost where nothing is refilled: one static batch against as many
prompts in slots, in alternation, as a share of the batch's time. Slots read `--together` prompts at
a time; as many as there are slots make one call of it, as a static batch does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from flags import add_prompt_flags, read_prompts

import specjax
from specjax.batching.requests import Entry, ListFeed
from specjax.batching.rows import find_width
from specjax.batching.slots import EndedRows
from specjax.metrics.occupancy import occupancy
from specjax.runtime.errors import UserError
from specjax.runtime.progress import progress


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_prompt_flags(parser)
    parser.add_argument("--strategy", action="append", type=json.loads, help="its fields as JSON")
    parser.add_argument("--examples", type=int, default=192)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--together", type=int, default=0, help="prompts read at a time; 0: few")
    parser.add_argument("--max_new_tokens", type=int, default=256)
    parser.add_argument("--max_prompt_tokens", type=int, default=2048, help="width of streams")
    parser.add_argument(
        "--least_new_tokens", type=int, default=0, help="limits are drawn from here"
    )
    parser.add_argument("--bucket", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--invariant", type=int, default=0)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--weights", default="", help="of the target, as int8")
    parser.add_argument("--alone", action="store_true", help="compare with each prompt alone")
    parser.add_argument("--cost", action="store_true", help="only compare batches of one filling")
    parser.add_argument("--stream", type=int, default=0, help="only stream so many prompts")
    return parser.parse_args()


class Job:
    """The prompts, and how one strategy decodes them."""

    def __init__(self, args: argparse.Namespace, target: Any, drafters: Any, fields: Any) -> None:
        strategy = specjax.strategy(**fields, temperature=args.temperature)
        self.args = args
        self.generator = specjax.Generator(
            target,
            drafters,
            strategy,
            max_new_tokens=args.max_new_tokens,
            max_prompt_tokens=args.max_prompt_tokens,
            bucket=args.bucket,
            invariant=args.invariant,
        )
        count = args.batch_size if args.cost else args.examples
        self.ids = self.generator.encode(read_prompts(args, count))
        draw = np.random.default_rng(0)
        least = args.least_new_tokens or args.max_new_tokens
        self.limits = draw.integers(least, args.max_new_tokens + 1, len(self.ids)).astype(np.int32)

    def static(self) -> tuple[list[list[int]], float]:
        """Rows of static batches, and seconds."""
        size, tokens, start = self.args.batch_size, [], time.perf_counter()
        for first in range(0, len(self.ids), size):
            tokens += self.batch(first, size)
        return tokens, time.perf_counter() - start

    def batch(self, first: int, size: int) -> list[list[int]]:
        """The rows of a static batch."""
        made = self.generator
        ids = self.ids[first : first + size]
        batch = made.batch(ids, size, first)
        limit = np.zeros(size, np.int32)
        limit[: len(ids)] = self.limits[first : first + size]
        return made.rows(made.run(batch, made.keys(batch, 0), limit))[: len(ids)]

    def filled(self) -> tuple[list[list[int]], float, list[EndedRows]]:
        """The same rows from slots, seconds, and the rows as they ended."""
        made, start = self.generator, time.perf_counter()
        limits = map(int, self.limits)
        entries = [
            Entry(n, ids, limit, 0, n)
            for n, (ids, limit) in enumerate(zip(self.ids, limits, strict=True))
        ]
        width = find_width(made.prompts, self.ids)
        slots = made.slots(self.args.batch_size, width, together=self.args.together)
        ended = [one for one in slots.run(ListFeed(entries)) if isinstance(one, EndedRows)]
        tokens: list[list[int]] = [[] for _ in entries]
        for one in ended:
            for entry, row in zip(one.entries, made.rows(one.generation), strict=True):
                tokens[entry.place] = row
        return tokens, time.perf_counter() - start, ended

    def alone(self) -> list[list[int]]:
        """Every prompt in a batch of its own."""
        return [self.batch(n, 1)[0] for n in progress(range(len(self.ids)), desc="alone")]


CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


def measure_cost(job: Job, name: str) -> int:
    """Measures a batch and slots that are filled once; returns how many rows differ."""
    ways = {"static": lambda: job.static()[0], "slots": lambda: job.filled()[0]}
    tokens = {way: decode() for way, decode in ways.items()}
    seconds: dict[str, list[list[float]]] = {way: [] for way in ways}
    for repeat in range(job.args.repeats):
        for way in sorted(ways, reverse=repeat % 2 == 0):  # either is the first one in turn
            start = [clock() for clock in CLOCKS.values()]
            ways[way]()
            ends = [clock() for clock in CLOCKS.values()]
            seconds[way].append([end - begin for begin, end in zip(start, ends, strict=True)])
    for number, clock in enumerate(CLOCKS):
        static, slots = ([took[number] for took in seconds[way]] for way in ways)
        shares = sorted(b / a - 1 for a, b in zip(static, slots, strict=True))
        print(
            f"{name}: {len(job.ids)} rows, {clock} time: static {statistics.median(static):.3f} s,"
            f" slots {statistics.median(slots):.3f} s; slots cost {statistics.median(shares):+.1%}"
            f" ({shares[0]:+.1%} to {shares[-1]:+.1%}) of the batch",
            flush=True,
        )
    return sum(a != b for a, b in zip(tokens["static"], tokens["slots"], strict=True))


def find_occupancy(ended: Sequence[EndedRows], slots: int) -> tuple[float, float, int]:
    """The figures of `metrics.occupancy` of the rows."""
    first = np.concatenate([one.first_rounds for one in ended])
    ran = np.concatenate([(one.generation.trace.committed > 0).sum(axis=1) for one in ended])
    return occupancy(first, ran, slots)


def compare(job: Job, name: str) -> int:
    """Measures both ways; returns how many rows differ."""
    plain, _ = job.static()
    tokens, first_seconds, _ = job.filled()
    count, pairs = sum(map(len, tokens)), []
    for _ in range(job.args.repeats):
        plain, apart = job.static()
        tokens, together, ended = job.filled()
        pairs.append((apart, together))
    differing = sum(a != b for a, b in zip(plain, tokens, strict=True))
    rates = [f"{count / statistics.median(times):,.0f}" for times in zip(*pairs, strict=True)]
    ratios = sorted(apart / together for apart, together in pairs)
    whole, full, rounds = find_occupancy(ended, job.args.batch_size)
    print(
        f"{name}: {len(tokens)} rows, {count:,} tokens; static {rates[0]}, filled {rates[1]} tokens"
        f" a second; {statistics.median(ratios):.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f});"
        f" first run {first_seconds:.1f} s; {rounds} rounds, {whole:.3f} of slots active,"
        f" {full:.3f} before the tail; {differing} rows differ from static",
        flush=True,
    )
    if job.args.alone:
        other = sum(a != b for a, b in zip(job.alone(), tokens, strict=True))
        print(
            f"{name}: {other} of {len(tokens)} rows differ from the same prompt alone", flush=True
        )
        differing += other
    return differing


def stream(job: Job, count: int) -> None:
    """Streams `count` prompts, the same ones again and again; prints what memory is in use."""
    start, prompts = time.perf_counter(), itertools.islice(itertools.cycle(job.ids), count)
    rows = job.generator.stream_many(prompts, batch_size=job.args.batch_size)
    for done, _ in enumerate(rows, 1):
        if done % max(count // 10, 1) == 0:
            held = sum(array.nbytes for array in jax.live_arrays())
            print(
                f"{done:,} rows in {time.perf_counter() - start:.0f} s: process"
                f" {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:,.0f} MiB at most,"
                f" arrays on the device"
                f" {held / 2**20:,.1f} MiB",
                flush=True,
            )


def main() -> int:
    args = parse()
    try:
        how = {"dtype": args.dtype, **({"weights": args.weights} if args.weights else {})}
        target = specjax.load(args.target, **how)
        drafters = {"drafter": specjax.load(args.drafter, dtype=args.dtype)} if args.drafter else {}
        found = 0
        for fields in args.strategy or [{}]:
            job = Job(args, target, drafters, fields)
            if args.stream:
                stream(job, args.stream)
            elif args.cost:
                found += measure_cost(job, json.dumps(fields))
            else:
                found += compare(job, json.dumps(fields))
        return int(found > 0)
    except UserError as error:
        print(f"filling: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
