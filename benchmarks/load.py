"""Is a draft length by load as fast as the better of drafting and not drafting, at any batch size?

    python benchmarks/load.py --target=llama-gsm8k-target --drafter=llama-gsm8k-drafter \\
      --source_file=test.jsonl.gz --source_field=question --template='Q: {}\\nA:' \\
      --batch_sizes=1,4,16,32,64 --max_new_tokens=128 --length=3

At every batch size `specjax.measure_load` measures the rounds; then the load's strategy, the target
alone and drafts of a fixed length decode the same prompts in alternation, in slots that are
refilled, after one run of each that compiles. Printed are the measured numbers, which a config can
have as fields; tokens a second, and a second of the processors, which other work on the machine
changes less; the median ratios of the repeats with their spread; drafted tokens a round. Exit code
1 if a row differs from the target's own.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from typing import Any

from flags import add_prompt_flags, read_prompts

import specjax
from specjax.runtime.errors import UserError

LOAD, ALONE, FIXED = "load", "alone", "fixed"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_prompt_flags(parser, drafter_required=True)
    parser.add_argument("--batch_sizes", default="1,4,16,32,64", help="with commas between them")
    parser.add_argument("--share", type=float, default=1.5, help="prompts for each row of a batch")
    parser.add_argument("--least", type=int, default=4, help="fewest prompts")
    parser.add_argument("--length", type=int, default=3, help="of fixed drafts, and the longest")
    parser.add_argument("--max_new_tokens", type=int, default=128)
    parser.add_argument("--bucket", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--passes", type=int, default=6, help="of the measurement of rounds")
    return parser.parse_args()


class Comparison:
    """The three strategies at one batch size."""

    def __init__(self, args: argparse.Namespace, target: Any, drafter: Any, size: int) -> None:
        self.size, self.drafter = size, drafter
        self.made = {"max_new_tokens": args.max_new_tokens, "bucket": args.bucket}
        self.prompts = read_prompts(args, max(args.least, round(args.share * size)))
        drafted = {"drafter": "neural", "length": args.length}
        load = self.generator(target, specjax.strategy(**drafted, adapt="load"))
        self.strategy = specjax.measure_load(
            load, self.prompts[:size], batch_size=size, passes=args.passes
        )
        self.generators = {
            LOAD: self.generator(target, self.strategy),
            ALONE: self.generator(target, specjax.autoregressive()),
            FIXED: self.generator(target, specjax.strategy(**drafted)),
        }

    def generator(self, target: Any, strategy: Any) -> Any:
        return specjax.Generator(target, {"drafter": self.drafter}, strategy, **self.made)

    def decode(self, name: str) -> tuple[tuple[float, float], Any]:
        """Tokens of all prompts a second, and a second of the processors, and their result."""
        start = time.perf_counter(), time.process_time()
        result = self.generators[name](self.prompts, batch_size=self.size)
        took = time.perf_counter() - start[0], time.process_time() - start[1]
        count = sum(map(len, result.tokens))
        return (count / took[0], count / took[1]), result

    def run(self, repeats: int) -> int:
        """Prints the figures; returns how many rows differ from the target's own."""
        results = {name: self.decode(name)[1] for name in self.generators}  # compiles
        rates: dict[str, list[tuple[float, float]]] = {name: [] for name in self.generators}
        for repeat in range(repeats):
            for name in list(rates)[:: 1 if repeat % 2 == 0 else -1]:
                rates[name].append(self.decode(name)[0])
        numbers = {name: _round_values(value) for name, value in self.strategy.numbers}
        shown = results[LOAD].statistics
        print(f"batch {self.size}: {len(self.prompts)} prompts, {json.dumps(numbers)}")
        for clock, words in enumerate(("a second", "a second of the processors")):
            show({name: [pair[clock] for pair in pairs] for name, pairs in rates.items()}, words)
        print(f"  drafted {shown.drafted / max(shown.rounds, 1):.2f} tokens a round", flush=True)
        expected = results[ALONE].tokens
        return sum(
            a != b for n in results for a, b in zip(results[n].tokens, expected, strict=True)
        )


def _round_values(value: Any) -> Any:
    return [round(x, 3) for x in value] if isinstance(value, tuple) else round(value, 3)


def show(rates: dict[str, list[float]], words: str) -> None:
    """Prints the median rates, and the ratios of each repeat."""
    others = {ALONE: rates[ALONE], FIXED: rates[FIXED]}
    others["better"] = [max(pair) for pair in zip(rates[ALONE], rates[FIXED], strict=True)]
    ratios = {
        name: [a / b for a, b in zip(rates[LOAD], rate, strict=True)]
        for name, rate in others.items()
    }
    medians = ", ".join(f"{name} {statistics.median(rate):.0f}" for name, rate in rates.items())
    print(f"  tokens {words}: {medians}")
    print("    " + "; ".join(f"load/{name} {_spread(ratio)}" for name, ratio in ratios.items()))


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def main() -> int:
    args = parse()
    try:
        target, drafter = specjax.load(args.target), specjax.load(args.drafter)
        sizes = [int(size) for size in args.batch_sizes.split(",")]
        differing = sum(Comparison(args, target, drafter, size).run(args.repeats) for size in sizes)
        print(f"{differing} rows differ from the target's own")
        return int(differing > 0)
    except UserError as error:
        print(f"load: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
