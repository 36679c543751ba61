"""What HBM bandwidth says of trees on a TPU, each beside the chain of equal cost.

    python benchmarks/trees_on_chips.py --chip=v5e --target=t5-ende-target --drafter=t5-ende-drafter
    python benchmarks/trees_on_chips.py --chip=v5e --ways=8 --target=google/t5-v1_1-xxl \\
      --drafter=google/t5-v1_1-small --source=256 --new=128

The best trees of 4, 8, 16 and 32 nodes by the acceptance of `configs/trees.py`, at batch 1 in
bfloat16. The chain has as many tokens as the tree has levels: the drafter is called as often. Last
comes the fastest chain. Every call reads all weights that it uses and its whole cache, or takes as
long as its arithmetic; the target is split over `--ways` chips, the drafter whole on each. From
shapes alone; nothing is compiled, downloaded or run: speedups are bounds from above
(docs/lab_book/accelerators.md, "How a round is priced").
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping

import jax.numpy as jnp

from specjax.accelerators.chips import CHIPS, Chip
from specjax.accelerators.predict import Share, build_round
from specjax.accelerators.program import WeightReads
from specjax.contracts.drafter import Drafter
from specjax.contracts.spec import Call
from specjax.contracts.tree import compute_depths_and_ranks
from specjax.drafting.neural import Neural
from specjax.experiments.recipes.trees import ACCEPTANCE, SIZES, repeat_last_level
from specjax.hf.descriptions import describe
from specjax.measuring.roofline import step_bytes
from specjax.runtime.errors import UserError
from specjax.theory.trees import best, expected_tokens


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", required=True, help="directory or hub id")
    parser.add_argument("--drafter", required=True, help="directory or hub id")
    parser.add_argument("--chip", choices=CHIPS, default="v5e")
    parser.add_argument("--ways", type=int, default=1, help="chips that share the target")
    parser.add_argument("--source", type=int, default=32, help="tokens of a prompt")
    parser.add_argument("--new", type=int, default=32, help="tokens in the caches")
    return parser.parse_args()


def share(args: argparse.Namespace, name: str, ways: int) -> Share:
    """What one chip has of a model."""
    model = describe(getattr(args, name), jnp.bfloat16)
    weights = step_bytes(model, 1, 0, 0) / ways
    cache = step_bytes(model, 1, args.new, args.source) / ways - weights
    return Share(model, WeightReads(int(weights), int(weights)), int(cache), ways=ways, rows=1)


def seconds(
    args: argparse.Namespace, shares: Mapping[str, Share], drafts: tuple[Call, ...], nodes: int
) -> float:
    """The least time of a round that drafts so and reads so many nodes."""
    chip: Chip = CHIPS[args.chip]
    calls = (*drafts, Call("target", nodes + 1, nodes + 1))
    return build_round(calls, shares, args.new, args.source).seconds(chip)


def chain(length: int) -> tuple[int, ...]:
    """Parents of a tree without branches."""
    return tuple(range(-1, length - 1))


def main() -> int:
    """Prints the table."""
    args = parse()
    try:
        shares = {"target": share(args, "target", args.ways), "drafter": share(args, "drafter", 1)}
    except UserError as error:
        print(f"trees_on_chips: {error}", file=sys.stderr)
        return 2
    baseline, table = seconds(args, shares, (), 0), repeat_last_level(ACCEPTANCE)
    print(f"autoregressive: {baseline * 1e3:.4f} ms a token at least")

    def line(parents: tuple[int, ...], drafter: Drafter) -> tuple[float, str]:
        took = seconds(args, shares, drafter.spec.calls, len(parents))
        tokens = expected_tokens(table, parents)
        faster = tokens * baseline / took
        return faster, f"{tokens:.2f} tokens in {took * 1e3:.4f} ms at least: {faster:.2f} times"

    chains = {n: line(chain(n), Neural(n)) for n in range(1, len(table) + 1)}
    for nodes in SIZES:
        tree = best(table, nodes)
        levels = max(compute_depths_and_ranks(tree)[0]) + 1
        print(f"tree of {nodes} nodes: {line(tree, Neural(parents=tree))[1]}")
        print(f"  chain of {levels} tokens: {chains[levels][1]}")
    fastest = max(chains, key=chains.get)
    print(f"fastest chain, {fastest} tokens: {chains[fastest][1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
