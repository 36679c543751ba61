"""Bytes of recurrent caches by draft, and the time of a round of a hybrid and of attention alone.

    python benchmarks/recurrent.py [--rounds=40] [--repeats=7]

Bytes are those of a row of a model in the shape of Qwen3.5 27B, in bfloat16, without computing
anything. Times are of random models of 27M parameters, whose three of four layers are recurrent, or
none; each repeat times both, one after the other.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import statistics
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.contracts.catching_up import CHUNK
from specjax.contracts.tree import make_ancestor_mask
from specjax.models.base import Cache
from specjax.models.causal import Causal, CausalConfig
from specjax.models.gated_delta import GatedDelta
from specjax.models.positions import Rope
from specjax.models.recurrent_caches import RecurrentCache
from specjax.models.shapes import get_parameter_shapes

PUBLISHED = CausalConfig(
    "qwen3_5_text", vocab_size=248_320, d_model=5120, d_ff=17_408, num_layers=64, num_heads=24,
    num_kv_heads=4, d_head=256, max_positions=262_144, rope=Rope(64), dtype=jnp.bfloat16,
    recurrences=(*[GatedDelta(16, 48, 128, 128)] * 3, None) * 16, gated_attention=True,
    qk_norm=True, unit_offset=True,
)  # fmt: skip
SMALL = CausalConfig(
    "qwen3_5_text", vocab_size=8000, d_model=512, d_ff=1536, num_layers=8, num_heads=8,
    num_kv_heads=2, d_head=64, max_positions=4096, rope=Rope(64), gated_attention=True,
    recurrences=(*[GatedDelta(4, 8, 64, 64)] * 3, None) * 2, tied=True,
)  # fmt: skip
TEXT = 512
PARENTS = (-1, -1, -1, 0, 0, 1, 1, 2, 3, 3, 4, 5, 7, 8, 9)
CALLS: dict[str, tuple[int, tuple[int, ...]]] = {
    "1 token": (1, ()), "4 tokens": (4, ()), "8 tokens": (8, ()), "tree of 16": (16, PARENTS),
}  # fmt: skip


def count_bytes(drafted: int) -> tuple[int, int, int]:
    """Bytes of a row's states, of what is stored to rewind them, and of a state per position."""
    ahead = drafted + 1 + CHUNK + drafted + 1  # as `decoding.state.count_ahead`
    model = Causal(PUBLISHED)
    start = functools.partial(model.start, capacity=8192, ahead=ahead)
    tokens = jax.ShapeDtypeStruct((1, 16), jnp.int32), jax.ShapeDtypeStruct((1,), jnp.int32)
    cache, _ = jax.eval_shape(start, get_parameter_shapes(model), *tokens)
    layers = [own for own in cache.data["own"] if isinstance(own, RecurrentCache)]

    def count(trees: Sequence[Any]) -> int:
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(trees))

    states = count([own.state for own in layers])
    windows = sum(
        own.entries.inputs.dtype.itemsize * own.entries.inputs.shape[-1] * 3 for own in layers
    )
    return states, count([own.entries for own in layers]), drafted * (states + windows)


@functools.partial(jax.jit, static_argnames=("model", "fed", "parents", "rounds"))
def run_rounds(
    model: Causal, params: Any, cache: Cache, fed: int, parents: tuple[int, ...], rounds: int
) -> Cache:
    """The cache after rounds that each accept half of the tokens they feed."""
    tokens = jnp.ones((1, fed), jnp.int32)
    visible = make_ancestor_mask(jnp.array([parents])) if parents else None

    def one(_: jax.Array, cache: Cache) -> Cache:
        depth = None if visible is None else jnp.sum(visible, axis=-1) - 1
        position = None if depth is None else cache.length[:, None] + depth
        output, new = model.extend(params, tokens, cache, position=position, visible=visible)
        kept = jnp.where(jnp.isfinite(output.logits[0, 0, 0]), (fed + 1) // 2, 1)
        return new.replace(length=cache.length + kept)

    return jax.lax.fori_loop(0, rounds, one, cache)


def time_rounds(rounds: int, repeats: int) -> None:
    """Prints seconds of a round and the ratio of both models, with the least and the largest."""
    models = {
        "hybrid": Causal(SMALL),
        "attention": Causal(dataclasses.replace(SMALL, recurrences=())),
    }
    drawn = {name: model.init(jax.random.key(0)) for name, model in models.items()}
    for name, params in drawn.items():
        print(f"{name}: {sum(x.size for x in jax.tree.leaves(params)):,} parameters")
    prompt, length = jnp.ones((1, TEXT), jnp.int32), jnp.array([TEXT])
    for call, (fed, parents) in CALLS.items():
        seconds: dict[str, list[float]] = {name: [] for name in models}
        room = {"capacity": TEXT + (rounds + 1) * fed, "ahead": fed + CHUNK + fed}
        caches = {
            name: jax.jit(functools.partial(model.start, **room))(drawn[name], prompt, length)[0]
            for name, model in models.items()
        }
        for repeat in range(repeats + 1):
            for name, model in models.items():
                begin = time.perf_counter()
                made = run_rounds(model, drawn[name], caches[name], fed, parents, rounds)
                jax.block_until_ready(made)
                if repeat:  # the first compiles
                    seconds[name].append((time.perf_counter() - begin) / rounds)
        hybrid, attention = map(np.array, seconds.values())
        ratios = hybrid / attention
        medians = ", ".join(f"{1000 * statistics.median(s):.2f} ms" for s in seconds.values())
        bounds = f"{ratios.min():.2f} to {ratios.max():.2f}"
        print(f"{call}: {medians}; ratio {np.median(ratios):.2f} ({bounds})")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    for drafted in (4, 8, 16):
        numbers = ", ".join(f"{count / 2**20:.1f}" for count in count_bytes(drafted))
        print(f"{drafted} drafted: MiB of states, stored updates, a state per position: {numbers}")
    time_rounds(args.rounds, args.repeats)


if __name__ == "__main__":
    main()
