"""What the code of trees costs a chain: one child everywhere, beside the same chain as a chain.

    python benchmarks/chain_as_tree.py --target=t5-ende-target --drafter=t5-ende-drafter \\
      --source_file=test.en.gz --prefix='translate English to German: ' --lengths=3,5

`neural` drafts K tokens, with `widths` a tree of K levels of one node; both commit the same tokens
in the same rounds and end where the text does: the drafter's calls are counted. One text after
another, batch 1, the two in turn and each first every second time. The figure is the median over
texts and trials of the tree's time over the chain's, with its quartiles: in wall time, and in CPU
time, which other processes of a machine disturb less. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

import specjax
from specjax.data.text import read_examples
from specjax.decoding.state import Generation
from specjax.runtime.errors import UserError

CLOCKS = {"wall": time.perf_counter, "CPU": time.process_time}


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(each) for each in text.split(","))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--target", required=True, help="directory or hub id")
    parser.add_argument("--drafter", required=True, help="directory or hub id")
    parser.add_argument("--source_file", required=True)
    parser.add_argument("--prefix", default="", help="put before every source")
    parser.add_argument("--lengths", type=numbers, default=(3, 5), help="tokens of a draft")
    parser.add_argument("--examples", type=int, default=20)
    parser.add_argument("--max_new_tokens", type=int, default=48)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--trials", type=int, default=10)
    return parser.parse_args()


class Side:
    """One way to draft, with the batches of one text each."""

    def __init__(
        self,
        args: argparse.Namespace,
        models: Sequence[specjax.LoadedModel],
        prompts: list[str],
        **drafter: Any,
    ) -> None:
        strategy = specjax.strategy(**drafter, temperature=args.temperature)
        target, small = models
        self.generator = specjax.Generator(
            target,
            {"drafter": small},
            strategy,
            max_new_tokens=args.max_new_tokens,
            bucket=32,
        )
        ids = self.generator.encode(prompts)
        self.batches = [self.generator.batch([row], 1, first=i) for i, row in enumerate(ids)]

    def decode(self, index: int) -> Generation:
        batch = self.batches[index]
        return jax.block_until_ready(self.generator.run(batch, self.generator.keys(batch, 0)))

    def seconds(self, index: int) -> list[float]:
        """By every clock."""
        start = [clock() for clock in CLOCKS.values()]
        self.decode(index)
        return [clock() - begun for clock, begun in zip(CLOCKS.values(), start, strict=True)]


def check_alike(chain: Side, tree: Side, greedy: bool) -> np.ndarray:
    """Refuses to compare decodes of other tokens or rounds; the first ones also compile.

    Returns how often the drafter was called by each side.
    """
    calls = np.zeros(2, int)
    for index in range(len(chain.batches)):
        one, other = chain.decode(index), tree.decode(index)
        calls += [int(made.trace.calls["drafter"].sum()) for made in (one, other)]
        if greedy and not np.array_equal(one.tokens, other.tokens):
            raise UserError(f"prompt {index} has other tokens as a tree")
        if greedy and int(one.trace.rounds) != int(other.trace.rounds):
            raise UserError(f"prompt {index} takes other rounds as a tree")
    return calls


def ratios(chain: Side, tree: Side, trials: int) -> np.ndarray:
    """The tree's time over the chain's, [trials * texts, clocks]."""
    found = []
    for trial in range(trials):
        for index in range(len(chain.batches)):
            sides = (chain, tree) if (trial + index) % 2 else (tree, chain)
            took = {side: side.seconds(index) for side in sides}
            found.append(np.divide(took[tree], took[chain]))
    return np.array(found)


def main() -> int:
    args = parse()
    try:
        models = [specjax.load(place) for place in (args.target, args.drafter)]
        examples = read_examples(args.source_file)[: args.examples]
        prompts = [args.prefix + example.source for example in examples]
        for length in args.lengths:
            chain = Side(args, models, prompts, drafter="neural", length=length)
            tree = Side(args, models, prompts, drafter="neural", widths=(1,) * length)
            calls = check_alike(chain, tree, args.temperature == 0.0)
            print(f"K={length}: {calls[1]} calls of the drafter as a tree, {calls[0]} as a chain")
            found = ratios(chain, tree, args.trials)
            for clock, (low, middle, high) in zip(
                CLOCKS, np.quantile(found, (0.25, 0.5, 0.75), axis=0).T, strict=True
            ):
                print(f"K={length}: {clock} time {middle:.3f} ({low:.3f} to {high:.3f})")
    except UserError as error:
        print(f"chain_as_tree: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
