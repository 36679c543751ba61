"""What HBM bandwidth says of the rounds of a config on a TPU or an H100, from shapes alone.

    python benchmarks/rounds_on_chips.py --config=configs/qwen35_mtp.py --chip=v6e

For every strategy: what a round reads on each of `mesh.model` chips, of that experts, caches and
states of recurrent layers, the least time, and how many steps it costs, which is the number of
tokens a round must give. Every call reads all weights that it uses and its whole cache, or takes as
long as its arithmetic. Nothing is compiled, downloaded or run
(docs/lab_book/accelerators.md, "How a round is priced").
"""

from __future__ import annotations

import argparse
import dataclasses
import sys

import jax
from ml_collections import ConfigDict

from specjax.accelerators.chips import CHIPS, GIB, GPU_BANDWIDTHS, Chip
from specjax.accelerators.predict import Round, Share, build_round, free_tokens
from specjax.accelerators.program import WeightReads
from specjax.contracts.fields import HEADS
from specjax.contracts.spec import Call
from specjax.decoding.state import count_ahead
from specjax.decoding.strategy import Strategy
from specjax.experiments.config.fields import checkpoint_dtype, heads_file
from specjax.experiments.config.file import read_config
from specjax.experiments.config.footprint import cache_bytes, expert_itemsize
from specjax.experiments.config.placement import get_ways
from specjax.experiments.decode.strategies import load_strategies
from specjax.experiments.pairs import describe_pair
from specjax.hf import heads
from specjax.loading import LoadedModel
from specjax.models.quantized_weights import EXPERTS, count_stored_bytes, to_key_path
from specjax.parallel.mesh import MODEL
from specjax.parallel.sharding import split_spec
from specjax.runtime.errors import UserError

MB = 1e6
PRICED = CHIPS | {
    "h100": Chip(80 * GIB, GPU_BANDWIDTHS["NVIDIA H100 80GB HBM3"], 989e12, axes=0, pod=1)
}
"""TPUs, and a GPU with the bfloat16 arithmetic of its data sheet (without sparsity)."""


def count_dense_bytes(entry: LoadedModel, ways: int) -> int:
    """Bytes on one chip that every call reads: all but experts, and embeddings if looked up."""
    idle = EXPERTS if entry.model.config.tied else (*EXPERTS, "embedding")

    def on_chip(path: tuple, leaf: jax.ShapeDtypeStruct) -> int:
        where = to_key_path(path)
        if where[-1] in idle:
            return 0
        split = MODEL in split_spec(where, leaf.shape, entry.model, ways)
        return count_stored_bytes(leaf) // (ways if split else 1)

    return sum(jax.tree.leaves(jax.tree_util.tree_map_with_path(on_chip, entry.params)))


def make_shares(
    config: ConfigDict, models: dict[str, LoadedModel], strategies: dict[str, Strategy]
) -> dict[str, Share]:
    """What one chip has of each model."""
    capacity = config.max_new_tokens + max(s.drafter.spec.width for s in strategies.values()) + 2
    ahead = max(count_ahead(s.drafter, s.reader) for s in strategies.values())
    shares = {}
    for name, entry in models.items():
        ways = get_ways(config, name)
        dense = WeightReads(0, count_dense_bytes(entry, ways))
        cache = cache_bytes(entry, config, 1, ways, capacity, ahead)
        itemsize = expert_itemsize(entry.params, checkpoint_dtype(config))
        shares[name] = Share(entry.model, dense, cache, ways, config.batch_size, itemsize)
    return shares


def count_head_bytes(config: ConfigDict) -> int:
    """Bytes of heads on the target's states, which every draft reads whole."""
    shapes = heads.shapes(heads_file(config), checkpoint_dtype(config))
    return sum(map(count_stored_bytes, jax.tree.leaves(shapes)))


@dataclasses.dataclass(frozen=True)
class PricedRound:
    """What one chip does in a round of a strategy."""

    work: Round
    experts: float  # bytes of experts, of the bytes read
    caches: int  # bytes of caches and states, likewise
    seconds: float  # the least time
    steps: float  # the same in autoregressive steps


@dataclasses.dataclass(frozen=True)
class Prices:
    """The rounds of a config's strategies on a chip."""

    rounds: dict[str, PricedRound]  # by strategy
    free_tokens: int  # of a call of the target


def price_rounds(config: ConfigDict, chip: Chip) -> Prices:
    """Prices the rounds of all strategies.

    Raises:
      UserError: when the config is invalid.
    """
    strategies, pair = load_strategies(config), describe_pair(config)
    shares = make_shares(config, dict(pair.members), dict(strategies))
    source, cached = config.max_prompt_tokens, config.max_prompt_tokens + config.max_new_tokens
    step = build_round([Call("target", 1, 1)], shares, cached, source).seconds(chip)
    rounds = {}
    for name, strategy in strategies.items():
        spec = strategy.drafter.spec
        calls = (*spec.calls, Call("target", spec.width + 1, spec.width + 1))
        work = build_round(calls, shares, cached, source)
        if HEADS in spec.resources:
            work = Round(work.bytes + count_head_bytes(config), work.operations)
        experts = sum(shares[call.model].expert_bytes(call) for call in calls)
        caches = sum(shares[call.model].cache for call in calls)
        took = work.seconds(chip)
        rounds[name] = PricedRound(work, experts, caches, took, took / step)
    return Prices(rounds, free_tokens(shares["target"], "target", chip, cached, source))


def main() -> int:
    """Prints a line for each strategy, and the free tokens of a call of the target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--config", required=True, help="decode config")
    parser.add_argument("--chip", choices=PRICED, default="v5e")
    args = parser.parse_args()
    try:
        prices = price_rounds(read_config(args.config), PRICED[args.chip])
    except UserError as error:
        print(f"rounds_on_chips: {error}", file=sys.stderr)
        return 2
    for name, priced in prices.rounds.items():
        print(
            f"{name}: {priced.work.bytes / MB:,.0f} MB, {priced.experts / MB:,.0f} of experts and"
            f" {priced.caches / MB:,.0f} of caches and states; {priced.seconds * 1e3:.2f} ms,"
            f" {priced.steps:.2f} steps"
        )
    print(f"free tokens of a call of the target: {prices.free_tokens}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
