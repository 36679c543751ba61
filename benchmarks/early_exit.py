"""What verification costs on the states that an early exit left, beside the whole target.

    python benchmarks/early_exit.py --target=DIR_OR_HUB_ID --exits=1,2

Calls of several widths through all decoder layers, and through those above each exit on given
states, in jitted loops in turn; batch 1, greedy, float32. Figures are medians.
"""

from __future__ import annotations

import argparse

import numpy as np

import specjax
from specjax.contracts.spec import Call
from specjax.measuring.stopwatch import Stopwatch

TARGET = "target"


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--target", required=True, help="directory or hub id")
    parser.add_argument("--exits", type=numbers, default=(1, 2), help="layers that have run")
    parser.add_argument("--tokens", type=numbers, default=(4, 6, 8, 11), help="of a call")
    parser.add_argument("--trials", type=int, default=25)
    return parser.parse_args()


def main() -> None:
    args = parse()
    target = specjax.load(args.target)
    watch = Stopwatch({TARGET: target.model}, {TARGET: target.params})
    layers = (0, *args.exits)
    calls = [Call(TARGET, t, t, resume_from=e) for t in args.tokens for e in layers]
    timing = watch.timing([(call,) for call in calls])
    for _ in range(args.trials):
        timing.take()
    took = dict(zip(calls, np.median(timing.milliseconds(), axis=0), strict=True))
    for call in calls:
        whole = took[Call(TARGET, call.tokens, call.tokens)]
        print(
            f"{call.tokens:3d} tokens through the layers above {call.resume_from}:"
            f" {took[call]:6.2f} ms, {1 - took[call] / whole:4.0%} less"
        )


if __name__ == "__main__":
    main()
