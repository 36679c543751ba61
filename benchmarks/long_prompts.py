"""Long prompts: seconds and memory of reading them, and of a decoded token behind them.

    python benchmarks/long_prompts.py --prompts 512 2048 8192 32768
    python benchmarks/long_prompts.py --prompts 512 --slots=32768 --whole
    python benchmarks/long_prompts.py --window=1024 --prompts 512 2048 --slots=32768

One row. By default a model with random weights: 2 layers of width 128 and 4 heads, of which a
Llama's keys and values have 2; `--checkpoint` times one's own. `--whole` keeps all scores in one
array and reads prompts at once, as short texts are. `--window` gives all layers a sliding window,
and times steps on rings and on caches of every position in turn. Temporaries are what the compiler
reserves beside weights, caches and results; a program that needs more than `--most` GiB of them is
compiled and not run. Figures are medians; docs/how_to/long_prompts.md has some.
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.accelerators.program import measure_memory
from specjax.hf import huggingface
from specjax.models import attention, causal
from specjax.models.base import Cache, LanguageModel, Params
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config

WIDTH, HEADS, LAYERS, VOCABULARY = 128, 4, 2, 4096
MIB, GIB = 1 << 20, 1 << 30
KEY = jax.random.key(0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--family", choices=("llama", "t5"), default="llama", help="random model")
    parser.add_argument("--checkpoint", help="directory of a model instead")
    parser.add_argument("--prompts", type=int, nargs="+", default=[512, 2048, 8192, 32768])
    parser.add_argument("--slots", type=int, default=0, help="least slots of the decoder's cache")
    parser.add_argument("--new", type=int, default=32, help="tokens decoded behind a prompt")
    parser.add_argument("--trials", type=int, default=3, help="runs after the first, timed")
    parser.add_argument("--most", type=float, default=8.0, help="GiB of temporaries to run with")
    parser.add_argument("--whole", action="store_true", help="without blocks and chunks")
    parser.add_argument("--window", type=int, default=0, help="keys seen by all layers; 0: all")
    parser.add_argument("--ahead", type=int, default=16, help="slots of a ring beyond its window")
    return parser.parse_args()


def model_of(flags: argparse.Namespace) -> tuple[LanguageModel, Params]:
    """The model and its weights."""
    if flags.checkpoint:
        checkpoint = huggingface.load(flags.checkpoint)
        return checkpoint.model, checkpoint.params
    shape = {"vocab_size": VOCABULARY, "d_model": WIDTH, "d_ff": 3 * WIDTH, "num_heads": HEADS}
    if flags.family == "t5":
        config = T5Config(
            **shape, d_kv=WIDTH // HEADS, num_layers=LAYERS, num_decoder_layers=LAYERS
        )
        model: Any = T5(config)
    else:
        model = Causal(
            CausalConfig(
                family="llama", **shape, num_layers=LAYERS, num_kv_heads=HEADS // 2,
                d_head=WIDTH // HEADS, max_positions=1 << 20, rope=Rope(WIDTH // HEADS), eos=(1,),
                windows=(flags.window,) * LAYERS if flags.window else (),
            )
        )  # fmt: skip
    return model, model.init(KEY)


def decode(model: LanguageModel, new: int, params: Params, cache: Cache) -> tuple[jax.Array, Cache]:
    """The last of `new` greedy tokens, one call each, and the cache behind them."""

    def step(_: int, found: tuple[jax.Array, Cache]) -> tuple[jax.Array, Cache]:
        token, cache = found
        output, cache = model.extend(params, token[:, None], cache)
        return jnp.argmax(output.logits[:, 0], axis=-1).astype(jnp.int32), cache

    first = jnp.full(cache.length.shape, 2, jnp.int32)
    return jax.lax.fori_loop(0, new, step, (first, cache))


def time_program(compiled: Any, trials: int, *args: Any) -> tuple[float, Any]:
    """Median seconds of a program, and its result."""
    took, result = [], jax.block_until_ready(compiled(*args))
    for _ in range(trials):
        begin = time.perf_counter()
        result = jax.block_until_ready(compiled(*args))
        took.append(time.perf_counter() - begin)
    return float(np.median(took)), result


def show(model: LanguageModel, params: Params, size: int, flags: argparse.Namespace) -> None:
    """Prints the figures of a prompt of `size` tokens."""
    held = flags.new + (size if model.info.start_token is None else 0)
    capacity = max(held, flags.slots)
    prompt = jax.random.randint(
        KEY, (1, size), 2, min(VOCABULARY, model.info.vocab_size), jnp.int32
    )
    read = functools.partial(model.start, capacity=capacity)
    start = jax.jit(lambda *args: read(*args)[0]).lower(params, prompt, jnp.array([size])).compile()
    taken = measure_memory(start).temporaries
    words = f"{size:6} tokens, {capacity:6} slots: prompt {taken / MIB:8.1f} MiB"
    if taken > flags.most * GIB:
        print(words, "(not run)", flush=True)
        return
    seconds, cache = time_program(start, flags.trials, params, prompt, jnp.array([size]))
    last = jax.jit(lambda *args: decode(model, flags.new, *args)[0])
    step = last.lower(params, cache).compile()
    token, _ = time_program(step, flags.trials, params, cache)
    print(
        f"{words} {seconds:8.3f} s, decode {measure_memory(step).temporaries / MIB:6.1f} MiB"
        f" {token / flags.new * 1e3:7.2f} ms a token",
        flush=True,
    )


def compare(model: LanguageModel, params: Params, size: int, flags: argparse.Namespace) -> None:
    """Prints bytes of both kinds of caches, and times of steps behind a prompt of `size` tokens."""
    capacity = max(flags.new * (flags.trials + 1) + size, flags.slots)
    prompt = jax.random.randint(
        KEY, (1, size), 2, min(VOCABULARY, model.info.vocab_size), jnp.int32
    )
    programs, caches = [], []
    for ahead in (flags.ahead, None):
        start = jax.jit(functools.partial(model.start, capacity=capacity, ahead=ahead))
        caches.append(jax.block_until_ready(start(params, prompt, jnp.array([size]))[0]))
        step = jax.jit(functools.partial(decode, model, flags.new), donate_argnums=1)
        programs.append(step.lower(params, caches[-1]).compile())
    held = [sum(x.nbytes for x in jax.tree.leaves(cache.data)) / MIB for cache in caches]
    took = np.zeros((flags.trials + 1, 2))  # the first counts for nothing
    for trial, kind in np.ndindex(took.shape):
        begin = time.perf_counter()
        _, caches[kind] = jax.block_until_ready(programs[kind](params, caches[kind]))
        took[trial, kind] = time.perf_counter() - begin
    ring, plain = np.median(took[1:], axis=0) / flags.new * 1e3
    ratio = np.median(took[1:, 1] / took[1:, 0])
    print(
        f"{size:6} tokens, {capacity:6} slots: ring {held[0]:6.1f} MiB {ring:6.2f} ms a token,"
        f" plain {held[1]:6.1f} MiB {plain:6.2f} ms, {ratio:.2f} times",
        flush=True,
    )


def main() -> None:
    flags = parse()
    if flags.whole:
        attention.WHOLE_SCORES = attention.LONG_CACHE = causal.WHOLE_PROMPT = 1 << 62
    model, params = model_of(flags)
    for size in flags.prompts:
        (compare if flags.window else show)(model, params, size, flags)


if __name__ == "__main__":
    main()
