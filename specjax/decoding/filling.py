"""A batch that never drains: the slot of a row that has ended takes the next prompt.

Four programs work on the state of B slots: `make_slots` begins them empty, `fill` reads prompts
into free slots while the other rows stay as they are, `advance_until` runs rounds until rows have
ended, and `take` copies these out. No shape depends on a prompt, so any mixture of prompts runs the
same programs. A row has the tokens that it has alone in these slots: its keys come from its
prompt's index, and no draft or verdict depends on other rows, but for draft lengths by load
(`drafting.by_load`). Another number of slots rounds otherwise.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts.context import Options
from specjax.decoding.loop import advance, begin, place
from specjax.decoding.parts import Parts
from specjax.decoding.state import Decoder, Generation, State
from specjax.models.base import Prompts


def _twice(x: jax.Array) -> jax.Array:
    return jnp.concatenate([x, x])


class Rows(struct.PyTreeNode):
    """Prompts that begin together, as the arguments of `loop.begin`.

    Of `options` the numbers, the prompts in other ids, the previous texts and the stop strings are
    those of the rows.
    """

    prompt: Prompts
    length: jax.Array  # [N] int32
    keys: jax.Array  # [N] typed PRNG keys
    limit: jax.Array  # [N] int32: new tokens; 0: no prompt
    options: Options

    def double(self) -> Rows:
        """The rows, each of them twice."""
        own = self.options
        by_row = (
            self.prompt,
            self.length,
            self.keys,
            self.limit,
            own.rows,
            own.prompts,
            own.previous,
        )
        prompt, length, keys, limit, rows, prompts, previous = jax.tree.map(_twice, by_row)
        stops = own.stops and own.stops.map_rows(_twice)
        options = own.replace(rows=rows, prompts=prompts, previous=previous, stops=stops)
        return Rows(prompt, length, keys, limit, options)

    def begin(
        self,
        decoder: Decoder,
        params: dict[str, Any],
        longest: int | None = None,
        parts: Parts | None = None,
    ) -> State:
        """Their state before the first round (`loop.begin`)."""
        read = self.prompt, self.length, self.keys, self.limit, self.options
        return begin(decoder, params, *read, longest, parts)


@functools.partial(jax.jit, static_argnames=("decoder", "slots"))
def make_slots(decoder: Decoder, params: dict[str, Any], rows: Rows, slots: int) -> State:
    """A state of `slots` rows that hold nothing, in the shapes of such prompts.

    Arrays that all rows share are those of `rows`, which are not read otherwise.
    """
    state = rows.begin(decoder, params)

    def make(is_by_row: bool, leaf: jax.Array) -> jax.Array:
        if not is_by_row:
            return leaf
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.broadcast_to(leaf[:1], (slots,))
        return jnp.zeros((slots, *leaf.shape[1:]), leaf.dtype)

    return place(decoder, jax.tree.map(make, find_row_leaves(decoder, params, rows), state))


@functools.partial(jax.jit, static_argnames=("decoder", "longest"), donate_argnames="state")
def fill(
    decoder: Decoder,
    params: dict[str, Any],
    state: State,
    rows: Rows,
    slots: jax.Array,
    longest: int | None = None,
    parts: Parts | None = None,
) -> State:
    """Begins `rows` in the slots `slots` [N] of a state; a slot beyond them takes none.

    Donates the state. `longest` bounds the prompts' lengths (`LanguageModel.start`); `parts` are
    the prompts, if they were read before.
    """
    new = rows.begin(decoder, params, longest, parts)

    def put(is_by_row: bool, old: jax.Array, new: jax.Array) -> jax.Array:
        return old.at[slots].set(new, mode="drop") if is_by_row else old

    by_row = find_row_leaves(decoder, params, rows)
    return place(decoder, jax.tree.map(put, by_row, state, new))


def find_row_leaves(decoder: Decoder, params: dict[str, Any], rows: Rows) -> Any:
    """Which leaves of a state have the row axis, as a state of truth values.

    They are those that become twice as long for twice the rows. Others are the same for all prompts
    (`contracts.drafter`): tables of the parameters, settings, counts of rounds.

    Raises:
      ValueError: when a leaf depends on the number of rows in another way.
    """

    def begin(rows: Rows) -> State:
        return rows.begin(decoder, params)

    once, twice = jax.eval_shape(begin, rows), jax.eval_shape(lambda r: begin(r.double()), rows)

    def is_by_row(one: jax.ShapeDtypeStruct, two: jax.ShapeDtypeStruct) -> bool:
        if one.shape == two.shape:
            return False
        if two.shape != (2 * len(rows.length), *one.shape[1:]):
            raise ValueError(f"a leaf of the state has the shape {one.shape}, not [B, ...]")
        return True

    return jax.tree.map(is_by_row, once, twice)


@functools.partial(jax.jit, static_argnames="decoder", donate_argnames="state")
def advance_until(
    decoder: Decoder, params: dict[str, Any], state: State, ends: jax.Array, rounds: jax.Array
) -> State:
    """Runs rounds until `ends` [] rows have ended, but at most `rounds` []; donates the state."""
    return advance(decoder, params, state, rounds, ends)


@functools.partial(jax.jit, static_argnames="decoder")
def take(decoder: Decoder, state: State, slots: jax.Array) -> Generation:
    """Copies the rows in `slots` [N], with the counts of rounds of the whole state."""
    context, trace = state.context, state.trace
    taken = Generation(
        context.tokens[slots],
        context.begin[slots],
        context.length[slots],
        trace.replace(
            numbers=trace.numbers[slots],
            overlap=trace.overlap[slots],
            drafts=trace.drafts[slots],
            written_by=trace.written_by[slots],
            logprobs=None if trace.logprobs is None else trace.logprobs[slots],
        ),
    )
    return decoder.layout.replicate(taken) if decoder.layout else taken
