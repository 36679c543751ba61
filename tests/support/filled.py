"""Decodes of many prompts in few slots, by the programs of `decoding.filling` alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from specjax.batching.outputs import gather_rows
from specjax.batching.requests import Entry, ListFeed
from specjax.batching.slots import Slots
from specjax.decoding.filling import Rows
from specjax.decoding.loop import generate
from specjax.decoding.state import Decoder, Generation


def begin_rows(prompts, limits, options, size: int, width: int, index=None) -> Rows:
    """Rows of prompts padded to `size` rows of `width` tokens."""
    tokens, length = np.zeros((size, width), np.int32), np.ones(size, np.int32)
    for row, prompt in enumerate(prompts):
        tokens[row, : len(prompt)], length[row] = prompt, len(prompt)
    places = np.zeros(size, np.int32)
    places[: len(prompts)] = range(len(prompts)) if index is None else index
    keys = jax.vmap(lambda i: jax.random.fold_in(jax.random.key(5), i))(jnp.asarray(places))
    limit = np.array([*limits, *[0] * (size - len(prompts))], np.int32)
    return Rows(jnp.asarray(tokens), jnp.asarray(length), keys, jnp.asarray(limit), options)


def decode_together(made: Decoder, params, prompts, limits, options, width: int) -> Generation:
    """All prompts in one batch."""
    rows = begin_rows(prompts, limits, options, len(prompts), width)
    return jax.device_get(
        generate(made, params, rows.prompt, rows.length, rows.keys, rows.limit, options)
    )


def decode_in_slots(
    made: Decoder, params, prompts, limits, options, width: int, slots: int, **how
) -> Generation:
    """All prompts in `slots` slots, in the order of the prompts."""

    def make_rows(entries, size):
        places = [entry.place for entry in entries]
        ids, most = [entry.ids for entry in entries], [entry.limit for entry in entries]
        return begin_rows(ids, most, options, size, width, places), None

    entries = [
        Entry(place, ids, limit, 0, place)
        for place, (ids, limit) in enumerate(zip(prompts, limits, strict=True))
    ]
    ended = Slots(made, params, make_rows, slots, **how).run(ListFeed(entries))
    return gather_rows(list(ended), len(prompts))


def check_same_rows(one: Generation, other: Generation) -> None:
    """Tokens and the whole record of every row are equal."""
    for name in ("begin", "length"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for row, (begin, length) in enumerate(zip(one.begin, one.length, strict=True)):
        assert one.tokens[row, begin:length].tolist() == other.tokens[row, begin:length].tolist()
        np.testing.assert_array_equal(one.trace.written_by[row], other.trace.written_by[row])
    np.testing.assert_array_equal(one.trace.numbers, other.trace.numbers)
    np.testing.assert_allclose(one.trace.overlap, other.trace.overlap, atol=1e-5)
    used = np.arange(one.trace.drafts.shape[-1]) < one.trace.drafted[..., None]
    np.testing.assert_array_equal(one.trace.proposed * used, other.trace.proposed * used)
