"""One width for all calls of the target: the same greedy tokens to the bit in bfloat16 too."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import inputs, texts
from feature_drafters import on_t5, without_encoder

from specjax.decoding.loop import generate
from specjax.decoding.state import Decoder
from specjax.decoding.strategy import Strategy, autoregressive, speculative, strategy
from specjax.drafting.copying import PromptLookup
from specjax.drafting.ngram import Bigram
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config

LIMIT, WIDTH, ROWS, V = 24, 7, 6, 512
MODELS = {  # wide enough for the kernels of one token and of seven to add in different orders
    "llama": Causal(
        CausalConfig(
            "llama", V, d_model=128, d_ff=256, num_layers=3, num_heads=4, num_kv_heads=2,
            d_head=32, max_positions=64, rope=Rope(32), eos=(1,), dtype=jnp.bfloat16,
        )
    ),
    "t5": T5(
        T5Config(
            vocab_size=V, d_model=256, d_kv=64, d_ff=512, num_heads=4, num_layers=1,
            num_decoder_layers=3, max_distance=12, eos=(1,), dtype=jnp.bfloat16,
        )
    ),
}  # fmt: skip


@functools.cache
def make_params(kind: str):
    drawn = jax.jit(MODELS[kind].init)(jax.random.key(5))
    return jax.tree.map(lambda x: (x * 1.3).astype(jnp.bfloat16), drawn)


@functools.cache
def feature_drafter(kind: str, drives: type):
    """One of the target's three layers, in bfloat16 as the target is."""
    target, read, ids = MODELS[kind].config, (1, 2, 3), tuple(range(V))
    if kind == "t5":
        model, params = on_t5(target, read, ids, drives)
    else:
        model, params = without_encoder(V, target.d_model, read, ids, None, kind=drives)
    half = dataclasses.replace(model, config=dataclasses.replace(model.config, dtype=jnp.bfloat16))
    return half, jax.tree.map(
        lambda x: x.astype(jnp.bfloat16) if x.dtype.kind == "f" else x, params
    )


def prompts(rows: int = 2 * ROWS) -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [rng.integers(2, V, 8).tolist() for _ in range(rows)]


def decode(kind: str, used: Strategy, rows: list[list[int]], width: int = WIDTH):
    """Generated tokens of rows, in batches of `ROWS` filled up with rows that decode nothing."""
    target, params = MODELS[kind], make_params(kind)
    trees = {"target": params, "ngram": {"best": jnp.arange(V) % 5 + 2}}
    if drives := getattr(used.drafter, "drives", None):
        drafter, trees["drafter"] = feature_drafter(kind, drives)
    else:
        drafter, trees["drafter"] = target, jax.tree.map(lambda x: x * 1.1, params)
    models = (("target", target), ("drafter", drafter))
    made = used.decoder(models, LIMIT, invariant=width)
    found = []
    for first in range(0, len(rows), ROWS):
        own = rows[first : first + ROWS]
        prompt, length, keys, limit = inputs([*own, *[[2] * 8] * (ROWS - len(own))], LIMIT)
        limit = jnp.where(jnp.arange(ROWS) < len(own), limit, 0)
        kept = {name: trees[name] for name in made.inputs}
        made_here = generate(made, kept, prompt, length, keys, limit, used.options())
        found += texts(made_here)[: len(own)]
    return found


STRATEGIES = {
    "speculative": speculative(4),
    "fitting": strategy(drafter="neural", length=4, reader="fitted"),
    "bigram": Strategy(Bigram(2)),
    "prompt_lookup": Strategy(PromptLookup(6)),
    "early_exit": strategy(drafter="early_exit", exit=1, length=3),
    "eagle": strategy(drafter="eagle", length=3),
    "dflash": strategy(drafter="dflash", length=3),
    "bild": strategy(  # what is not the target's argmax is dropped
        drafter="bild", fallback=0.3, rollback=0.0, length=5, verify_eos=True
    ),
}


@pytest.fixture(scope="module")
def alone():
    """What the target decodes alone, by family, at one width."""
    return functools.cache(lambda kind: decode(kind, autoregressive(), prompts()))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), list(itertools.product(MODELS, STRATEGIES)))
def test_greedy_lossless_strategies_decode_the_baseline_s_tokens(alone, kind, name):
    assert decode(kind, STRATEGIES[name], prompts()) == alone(kind)


@pytest.mark.slow
def test_without_one_width_the_width_of_calls_changes_tokens(alone):
    """Else the other tests would show nothing."""
    assert decode("llama", autoregressive(), prompts(), width=0) != alone("llama")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_a_row_alone_in_a_filled_batch_keeps_its_tokens(alone, kind):
    for index in (1, ROWS + 2):
        assert decode(kind, autoregressive(), prompts()[index : index + 1]) == [alone(kind)[index]]


def make_generator(used: Strategy, **more) -> Decoder:
    models = (("target", MODELS["llama"]), ("drafter", MODELS["llama"]))
    return used.decoder(models, LIMIT, **more)


def test_a_width_that_cannot_hold_a_draft_is_refused():
    with pytest.raises(ValueError, match="invariant is 4; it must be 0 .off. or at least 5"):
        make_generator(speculative(4), invariant=4)
    assert make_generator(speculative(4), invariant=5).buffer(8) == make_generator(
        autoregressive(), invariant=5
    ).buffer(8)


def test_calm_is_refused():
    with pytest.raises(ValueError, match="invariant is 4; it must be 0 .off. under CALM"):
        make_generator(strategy(reader="calm", threshold=0.5), invariant=4)
