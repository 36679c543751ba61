"""Caches of recurrent layers: rewinding, trees and prompts in chunks, in rings and plain."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from long_texts import sizes

from specjax.models.base import Cache
from specjax.models.causal import Causal, CausalConfig
from specjax.models.gated_delta import GatedDelta
from specjax.models.mamba2 import Mamba2
from specjax.models.positions import Rope
from specjax.models.recurrent_caches import RecurrentCache, compute_state
from specjax.models.rg_lru import RgLru

V, AHEAD, CAPACITY = 12, 6, 48
HEADS = {"key_heads": 2, "value_heads": 4, "d_key": 5, "d_value": 7, "taps": 4}
CHANNELS = RgLru(key_heads=1, value_heads=4, d_key=1, d_value=1, blocks=2)
RECURRENCES = {"delta": GatedDelta(**HEADS), "mamba2": Mamba2(**HEADS), "rg_lru": CHANNELS}
REACH, LENGTHS = 3, (13, 1, 6, 9)
TOLERANCE = 1e-4


@pytest.fixture(
    params=["delta", *(pytest.param(k, marks=pytest.mark.slow) for k in ("mamba2", "rg_lru"))]
)
def model(request: pytest.FixtureRequest) -> Causal:
    kind = RECURRENCES[request.param]
    config = CausalConfig(
        "qwen3_5_text", V, d_model=16, d_ff=24, num_layers=3, num_heads=4, num_kv_heads=2, d_head=8,
        max_positions=64, rope=Rope(8), recurrences=(kind, None, kind), gated_attention=True,
    )  # fmt: skip
    return Causal(config)


@functools.cache
def params(model: Causal) -> Any:
    """Heads that forget slowly, so that a state depends on many tokens."""
    drawn = model.init(jax.random.key(3))
    for layer in (0, 2):
        drawn[f"layers_{layer}"]["recurrent"]["log_speed"] = jnp.array([-4.0, -2.0, -1.0, 0.0])
    return drawn


def texts(size: int, seed: int = 0) -> jax.Array:
    return jax.random.randint(jax.random.key(seed), (len(LENGTHS), size), 2, V)


def start_rows(model: Causal, ahead: int | None, size: int = max(LENGTHS)) -> tuple[Cache, Any]:
    start = functools.partial(model.start, capacity=CAPACITY, features=(1, 3), ahead=ahead)
    return jax.jit(start)(params(model), texts(size), jnp.array(LENGTHS))


def close(found: Any, expected: Any) -> None:
    def one(a: jax.Array, b: jax.Array) -> None:
        np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)

    jax.tree.map(one, found, expected)


def states(cache: Cache) -> list[jax.Array]:
    """The states of the recurrent layers under the pointers."""
    layers = [own for own in cache.data["own"] if isinstance(own, RecurrentCache)]
    return [compute_state(own, cache.length) for own in layers]


@pytest.mark.slow
def test_a_ring_holds_what_is_written_ahead_and_what_a_convolution_reads(model: Causal) -> None:
    rings, plain = start_rows(model, AHEAD)[0].data["own"], start_rows(model, None)[0].data["own"]
    assert [rings[layer].size for layer in (0, 2)] == [AHEAD + REACH] * 2
    assert plain[0].size == CAPACITY and plain[0].ahead is None
    assert rings[0].base.tolist() == [max(length - AHEAD, 0) for length in LENGTHS]


@pytest.mark.slow
def test_rejected_tokens_leave_no_trace_in_states(model: Causal) -> None:
    """Rows are at different places and go round their rings; plain caches keep every token."""
    (ring, _), (plain, _) = start_rows(model, AHEAD), start_rows(model, None)
    extend, rng = jax.jit(model.extend), np.random.default_rng(0)
    for number in range(10):
        tokens, before = texts(AHEAD, number), ring.length
        first = (1, AHEAD - 1)[number % 2]
        for fed in (tokens[:, :first], tokens[:, first:]):
            found, ring = extend(params(model), fed, ring)
            expected, plain = extend(params(model), fed, plain)
            close(found.logits, expected.logits)
        kept = np.roll([0, AHEAD, *rng.integers(0, AHEAD + 1, len(LENGTHS) - 2)], number)
        ring, plain = (one.replace(length=before + jnp.array(kept)) for one in (ring, plain))
        close(states(ring), states(plain))
    assert np.max(ring.length) > 2 * (AHEAD + REACH)


PARENTS = [-1, 0, 0, 1, 2, 2]
VISIBLE = np.array([[c == n or c in (0, *([] if n < 3 else [PARENTS[n]])) for c in range(6)]
                    for n in range(6)])  # fmt: skip
PATH = [0, 2, 5]


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [AHEAD, None], ids=["ring", "plain"])
def test_the_accepted_path_of_a_tree_leaves_the_state_of_a_chain(
    model: Causal, ahead: int | None
) -> None:
    """The tree is fed in two calls; then its path is kept, and fed as a chain to another cache."""
    (tree, _), (chain, _) = start_rows(model, ahead), start_rows(model, ahead)
    tokens, extend = texts(6, 4), jax.jit(model.extend)
    depth = jnp.array([0, 1, 1, 2, 2, 2])
    position = tree.length[:, None] + depth
    grown, found = tree, []
    for begin, end in ((0, 3), (3, 6)):
        visible = jnp.broadcast_to(VISIBLE[begin:end, :end], (len(LENGTHS), end - begin, end))
        where = {"position": position[:, :end], "visible": visible}
        output, grown = extend(params(model), tokens[:, begin:end], grown, **where)
        found.append(output.logits)
    kept = model.keep(
        grown.replace(length=tree.length), jnp.array([PATH] * len(LENGTHS)), jnp.full(4, 3)
    )
    expected, chain = extend(params(model), tokens[:, np.array(PATH)], chain)
    close(jnp.concatenate(found, axis=1)[:, np.array(PATH)], expected.logits)
    close(states(kept), states(chain))
    close(*(extend(params(model), texts(2, 9), one)[0].logits for one in (kept, chain)))


@pytest.mark.slow
@pytest.mark.parametrize(("chunk", "size"), [(4, 13), (16, 32)])
@pytest.mark.parametrize("ahead", [AHEAD, None], ids=["ring", "plain"])
def test_chunks_of_prompts_give_the_states_of_whole_prompts(
    model: Causal, ahead: int | None, chunk: int, size: int
) -> None:
    """Chunks shorter and longer than a ring, padding in the last, rows that end before it."""
    whole, expected = start_rows(model, ahead, size)
    with sizes(WHOLE_PROMPT=6, CHUNK=chunk):
        parts, found = start_rows(model, ahead, size)
    close(found.embedding, expected.embedding)
    close(states(parts), states(whole))
    close(*(model.extend(params(model), texts(4, 9), one)[0].logits for one in (parts, whole)))


@pytest.mark.slow
def test_propagated_states_add_what_their_layer_adds(model: Causal) -> None:
    cache, _ = start_rows(model, AHEAD)
    tokens = texts(3, 2)
    output, expected = model.extend(params(model), tokens, cache, features=(2,))
    part = model.extend(params(model), tokens, cache, exit=2)[1].replace(length=cache.length)
    found = model.propagate(params(model), output.features[0], part, (2, 3))
    close(states(found.replace(length=expected.length)), states(expected))


@pytest.mark.slow
def test_a_call_beyond_a_ring_is_refused(model: Causal) -> None:
    with pytest.raises(
        ValueError, match="7 tokens are fed at once; a ring of 9 slots has room for 6"
    ):
        model.extend(params(model), texts(AHEAD + 1), start_rows(model, AHEAD)[0])
