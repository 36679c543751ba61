"""What the search for the likeliest tokens costs, beside XLA's top-k, which sorts on CPUs.

    python benchmarks/likeliest_child.py --entries=8000 --rows=32 --count=8

A model that drafts a tree searches so for the children of its nodes. Loops in one program, each
turn on other numbers; microseconds of a turn, the least of some trials in turn, in CPU time. The
same loop without a search is taken off.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

from specjax.sampling import find_largest

Search = Callable[..., jax.Array]

SEARCHES: dict[str, Search] = {
    "nothing": lambda logits, count: logits[:, :count].astype(jnp.int32),
    "search": find_largest,
    "top-k": lambda logits, count: jax.lax.top_k(logits, count)[1],
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--entries", type=int, default=8000, help="of the vocabulary")
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--count", type=int, default=1, help="of the likeliest tokens of a row")
    parser.add_argument("--turns", type=int, default=2000, help="of a loop")
    parser.add_argument("--trials", type=int, default=12)
    return parser.parse_args()


def loop(find: Search, turns: int) -> Callable[..., jax.Array]:
    """A program of many searches, each on logits that depend on the one before."""

    def turn(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        logits, total = carry
        found = find(logits)
        logits = logits.at[:, 0].add(1e-6 * found[:, 0])
        return logits, total + jnp.sum(found)

    return jax.jit(lambda x: jax.lax.fori_loop(0, turns, turn, (x, jnp.int32(0)))[1])


def main() -> None:
    args = parse()
    logits = jax.random.normal(jax.random.key(0), (args.rows, args.entries))
    loops = {
        name: loop(functools.partial(find, count=args.count), args.turns)
        for name, find in SEARCHES.items()
    }
    least = dict.fromkeys(loops, float("inf"))
    for trial in range(args.trials + 1):
        for name, run in loops.items():
            begun = time.process_time()
            jax.block_until_ready(run(logits))
            took = time.process_time() - begun
            if trial:  # the first one compiles
                least[name] = min(least[name], took)
    for name in ("search", "top-k"):
        each = (least[name] - least["nothing"]) / args.turns * 1e6
        print(f"{name}: {each:.1f} us of {args.entries:,} entries, {args.rows} rows")


if __name__ == "__main__":
    main()
