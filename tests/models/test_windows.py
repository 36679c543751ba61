"""Rings, the caches of sliding windows, give what caches of every position give."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from long_texts import sizes

from specjax.models.base import Cache
from specjax.models.caches import NEVER, Ring, get_held_slots
from specjax.models.causal import Causal, CausalConfig
from specjax.models.layers import make_causal_mask, make_tree_mask
from specjax.models.positions import Rope

V, WINDOW, AHEAD, CAPACITY = 12, 5, 4, 48
R = WINDOW + AHEAD
TOLERANCE = 1e-5
CONFIG = CausalConfig(
    "mistral", V, d_model=16, d_ff=24, num_layers=3, num_heads=4, num_kv_heads=2, d_head=8,
    max_positions=64, rope=Rope(8), windows=(WINDOW, 0, 3),
)  # fmt: skip
MODEL = Causal(CONFIG)
CHUNKED = Causal(dataclasses.replace(CONFIG, chunked_windows=True))
BOTH = pytest.mark.parametrize(
    "model", [MODEL, pytest.param(CHUNKED, marks=pytest.mark.slow)], ids=["sliding", "chunked"]
)
LENGTHS = (13, 1, 6, 9)
BLOCKS = {"WHOLE_SCORES": 24, "LONG_CACHE": 4, "KEYS": 3}
"""Under these a ring of some slots is a long cache, attended to in blocks."""


@functools.cache
def params() -> Any:
    return jax.tree.map(lambda x: x * 1.3, MODEL.init(jax.random.key(3)))


def texts(size: int, seed: int = 0) -> jax.Array:
    return jax.random.randint(jax.random.key(seed), (len(LENGTHS), size), 2, V)


def start_prompts(
    ahead: int | None, size: int = max(LENGTHS), model: Causal = MODEL
) -> tuple[Cache, Any]:
    """Prompts of all `LENGTHS`, shorter and longer than the windows."""
    start = functools.partial(model.start, capacity=CAPACITY, features=(1, 3), ahead=ahead)
    return jax.jit(start)(params(), texts(size), jnp.array(LENGTHS))


def close(found: Any, expected: Any) -> None:
    def one(a: jax.Array, b: jax.Array) -> None:
        np.testing.assert_allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE)

    jax.tree.map(one, found, expected)


def walk(ring: Cache, plain: Cache, rounds: int, model: Causal = MODEL) -> None:
    """Feeds tokens of which rows keep some, as far ahead as may be; all logits must agree.

    Each round is two calls, so that the second begins behind what the first has left: of one
    token and of as many as may be, in turn.
    """
    extend, rng = jax.jit(model.extend), np.random.default_rng(0)
    for number in range(rounds):
        tokens, before = texts(AHEAD + 1, number), ring.length
        first = (1, AHEAD)[number % 2]
        for fed in (tokens[:, :first], tokens[:, first:]):
            found, ring = extend(params(), fed, ring)
            expected, plain = extend(params(), fed, plain)
            close(found.logits, expected.logits)
        kept = np.array([0, AHEAD + 1, *rng.integers(0, AHEAD + 2, len(LENGTHS) - 2)])
        length = before + jnp.array(np.roll(kept, number))
        ring, plain = ring.replace(length=length), plain.replace(length=length)


@pytest.mark.slow
def test_a_layer_with_a_window_holds_the_window_and_what_is_written_ahead() -> None:
    slots = [own[0].shape[2] for own in start_prompts(AHEAD)[0].data["own"]]
    assert slots == [WINDOW + AHEAD, CAPACITY, 3 + AHEAD]
    kinds = [isinstance(own, Ring) for own in start_prompts(AHEAD)[0].data["own"]]
    assert kinds == [True, False, True]


@pytest.mark.parametrize("ahead", [None, CAPACITY - WINDOW])
def test_a_cache_is_plain_where_a_ring_is_not_smaller_or_not_known_to_do(ahead: int | None) -> None:
    own = start_prompts(ahead)[0].data["own"]
    assert type(own[0]) is tuple and own[0][0].shape[2] == CAPACITY


@BOTH
def test_rejected_tokens_leave_a_ring_as_they_leave_a_plain_cache(model: Causal) -> None:
    """Rows are at different places and go round their rings several times."""
    ring, plain = start_prompts(AHEAD, model=model)[0], start_prompts(None, model=model)[0]
    walk(ring, plain, 12, model)


@pytest.mark.slow
@BOTH
def test_long_rings_in_blocks_give_the_same(model: Causal) -> None:
    with sizes(**BLOCKS):
        walk(start_prompts(AHEAD, model=model)[0], start_prompts(None, model=model)[0], 4, model)


@pytest.mark.parametrize("slots", [[0, 1, 2, 3, 4, 5], [4, 5, 2, 3, 0, 1]])
def test_a_token_attends_to_the_earlier_ones_of_its_chunk(slots: list[int]) -> None:
    """Or of its window, if that slides; the last are a tree's: 4, and 5 twice after it."""
    at = np.array(slots)
    seen = {
        True: ["0", "01", "012", "3", "34", "345"],
        False: ["0", "01", "012", "123", "234", "345"],
    }
    position, held = jnp.arange(6)[None], jnp.array([slots])
    tree = jnp.array([[4, 5, 5]]), jnp.array([[[1, 0, 0], [1, 1, 0], [1, 0, 1]]], bool)
    for chunked, rows in seen.items():
        mask = make_causal_mask(position, held, 3, chunked)[0, 0]
        for row, keys in zip(mask, rows, strict=True):
            assert "".join(map(str, sorted(at[np.asarray(row) == 0]))) == keys
        mask = make_tree_mask(tree, jnp.array([4]), jnp.arange(7)[None], 3, chunked)[0, 0]
        found = [np.flatnonzero(np.asarray(row) == 0).tolist() for row in mask]
        assert found == (
            [[3, 4], [3, 4, 5], [3, 4, 6]] if chunked else [[2, 3, 4], [3, 4, 5], [3, 4, 6]]
        )


@pytest.mark.slow
@pytest.mark.parametrize(("chunk", "size"), [(4, 13), (4, 15), (8, 16)])
@BOTH
def test_chunks_of_prompts_fill_a_ring_with_its_rows_own_tokens(
    model: Causal, chunk: int, size: int
) -> None:
    """Chunks smaller and larger than a ring, padding in the last, rows that end before it."""
    with sizes(WHOLE_PROMPT=6, CHUNK=chunk, KEYS=5):
        ring, found = start_prompts(AHEAD, size, model)
        plain, expected = start_prompts(None, size, model)
        close(found.embedding, expected.embedding)
        inside = (np.arange(size) < np.array(LENGTHS)[:, None])[..., None]
        close([x * inside for x in found.features], [x * inside for x in expected.features])
        walk(ring, plain, 3, model)


def test_what_a_ring_holds_follows_from_what_was_fed() -> None:
    own = Ring(jnp.zeros((3, 1, 4, 2)), jnp.zeros((3, 1, 4, 2)))
    found = get_held_slots(own, jnp.array([0, 3, 10]))
    np.testing.assert_array_equal(found, [[NEVER] * 4, [0, 1, 2, NEVER], [8, 9, 6, 7]])


@pytest.mark.slow
@BOTH
def test_a_tree_on_a_ring_is_kept_as_on_a_plain_cache(model: Causal) -> None:
    """Three times: two children of a node and a child of one of them; the longer path stays."""
    extend, keep = jax.jit(model.extend), jax.jit(model.keep)
    ring, plain = start_prompts(AHEAD, model=model)[0], start_prompts(None, model=model)[0]
    seen = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]
    visible = jnp.broadcast_to(jnp.array(seen, bool), (len(LENGTHS), 4, 4))
    path = jnp.broadcast_to(jnp.array([0, 2, 3, 0]), (len(LENGTHS), 4))
    for number in range(3):
        tokens, before = texts(4, number), ring.length
        how = {"position": before[:, None] + jnp.array([0, 1, 1, 2]), "visible": visible}
        found, ring = extend(params(), tokens, ring, **how)
        expected, plain = extend(params(), tokens, plain, **how)
        close(found.logits, expected.logits)
        count = jnp.array([3, 2, 1, 0])
        ring = keep(ring.replace(length=before), path, count)
        plain = keep(plain.replace(length=before), path, count)
    close(extend(params(), texts(5), ring)[0].logits, extend(params(), texts(5), plain)[0].logits)


@pytest.mark.slow
def test_layers_that_run_one_by_one_share_the_rings_pointer() -> None:
    """As early exits and confident adaptive language modeling call them."""
    ring, plain = start_prompts(AHEAD)[0], start_prompts(None)[0]
    found = []
    for cache in (ring, plain):
        for tokens in (texts(2, 1), texts(3, 2)):
            start = cache.length
            output, cache = MODEL.extend(params(), tokens, cache, exit=1)
            cache = cache.replace(length=start)
            cache = MODEL.propagate(params(), output.hidden, cache, (1, 3))
        output, _ = MODEL.extend(params(), texts(2, 3), cache.replace(length=start + 3))
        found.append(output.logits)
    close(*found)


def test_more_tokens_than_a_ring_has_room_for_are_refused() -> None:
    """The window of 3 and `AHEAD` have room for one token more than `AHEAD`."""
    cache = start_prompts(AHEAD)[0]
    with pytest.raises(ValueError, match=f"6 tokens are fed at once; a ring of {R} slots"):
        MODEL.extend(params(), texts(AHEAD + 2), cache)


@pytest.mark.slow
def test_dynamic_rotation_and_learned_positions_wrap_too() -> None:
    for rope in (None, Rope(8, kind="dynamic", factor=2.0, original=5)):
        model = Causal(dataclasses.replace(CONFIG, rope=rope, num_layers=1, windows=(WINDOW,)))
        weights, found = model.init(jax.random.key(1)), []
        for ahead in (AHEAD, None):
            begin = jax.jit(functools.partial(model.start, capacity=CAPACITY, ahead=ahead))
            cache, _ = begin(weights, texts(13), jnp.array(LENGTHS))
            for number in range(3):
                output, cache = jax.jit(model.extend)(weights, texts(5, number), cache)
            found.append(output.logits)
        close(*found)
