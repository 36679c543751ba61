"""What a Max-Gram draft costs at a long context, beside decoder steps of a 91M-parameter model.

    python benchmarks/max_gram.py --context=4032

Batch 1, drafts of 10 tokens, bigrams behind the search. Two texts: the repetitions of a Zipf law,
and one that repeats itself every 200 tokens, where every match is as long as it can be. The model
has random weights and 12 layers of width 768; its steps are timed with a cache for as long a
context and with one for SHORT tokens, where they are cheapest. Drafts and steps are timed in jitted
loops in turn; figures are medians.
"""

from __future__ import annotations

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

from specjax.contracts.context import Context, Options
from specjax.contracts.env import Env
from specjax.contracts.spec import Call
from specjax.drafting.copying import MaxGram
from specjax.measuring.stopwatch import Stopwatch, Timing
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.sampling import make_sampling
from specjax.training import ngram

VOCABULARY, PERIOD, DRAFTS = 8192, 200, 100
SHORT = 96
KEY = jax.random.key(0)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--context", type=int, default=4032, help="tokens of the text")
    parser.add_argument("--length", type=int, default=10, help="tokens of a draft")
    parser.add_argument("--trials", type=int, default=15)
    return parser.parse_args()


def texts(size: int) -> dict[str, np.ndarray]:
    """Token ids [size] by what they are like."""
    zipf = np.random.default_rng(0).zipf(1.2, 2 * size) % VOCABULARY
    return {"Zipf": zipf[:size], f"repeats every {PERIOD}": np.resize(zipf[:PERIOD], size)}


@functools.partial(jax.jit, static_argnames="drafter")
def draft_often(drafter: MaxGram, table: dict, tokens: jax.Array, length: jax.Array) -> jax.Array:
    """DRAFTS drafts, each from a text whose last token the one before decides."""

    def again(_, last: jax.Array) -> jax.Array:
        seen = tokens.at[0, length[0] - 1].add(jnp.where(last[0] < 0, 1, 0))  # never: ids are >= 0
        context = Context(
            encoder_tokens=jnp.zeros((1, 0), jnp.int32),
            encoder_length=jnp.zeros(1, jnp.int32),
            tokens=seen,
            length=length,
            begin=jnp.ones(1, jnp.int32),
            limit=length + drafter.length,
            most=jnp.full(1, drafter.length, jnp.int32),
            active=jnp.ones(1, bool),
            options=Options(make_sampling(0.0), {}),
        )
        env = Env({"ngram": table}, ())
        draft, *_ = drafter.propose(env, {}, (), context, jax.random.split(KEY, 1))
        return draft.tokens[:, -1]

    return jax.lax.fori_loop(0, DRAFTS, again, jnp.zeros(1, jnp.int32))


def time_steps(positions: int) -> Timing:
    """One-token steps of the model that drafts are compared with."""
    model = Causal(
        CausalConfig(
            family="llama", vocab_size=VOCABULARY, d_model=768, d_ff=3072, num_layers=12,
            num_heads=12, num_kv_heads=12, d_head=64, max_positions=1 << 16, rope=Rope(64),
            gated=False, tied=True, eos=(1,),
        )
    )  # fmt: skip
    watch = Stopwatch({"target": model}, {"target": model.init(KEY)}, capacity=positions)
    return watch.timing([(Call("target", 1, 1),)])


def main() -> None:
    flags = parse()
    drafter = MaxGram(flags.length)
    table = ngram.fit([text.tolist() for text in texts(4 * flags.context).values()], VOCABULARY)
    steps = {size: time_steps(size) for size in (flags.context + 64, SHORT)}
    padded = {
        name: jnp.asarray(np.pad(text, (0, 64))[None], jnp.int32)
        for name, text in texts(flags.context).items()
    }
    took: dict[str, list[float]] = {name: [] for name in padded}
    for trial in range(flags.trials + 1):
        for each in steps.values():
            each.take()
        for name, tokens in padded.items():
            start = time.perf_counter()
            draft_often(drafter, table, tokens, jnp.array([flags.context])).block_until_ready()
            if trial:  # the first compiles
                took[name].append((time.perf_counter() - start) / DRAFTS * 1e3)
    medians = {size: float(np.median(each.milliseconds())) for size, each in steps.items()}
    for size, ms in medians.items():
        print(f"step with a cache of {size} tokens: {ms:.2f} ms")
    for name, each in took.items():
        ms = float(np.median(each))
        shares = " and ".join(f"{100 * ms / step:.2f}%" for step in medians.values())
        print(f"draft of {flags.length} tokens, {name}: {ms:.4f} ms, {shares} of these")


if __name__ == "__main__":
    main()
