"""Linear recurrences with rank-one updates, over chains and trees of tokens.

The state S [E, F] of a head decays with every token and gains an outer product,

    S_t = exp(a_t) S_{t-1} + k_t u_t^T,    o_t = S_t^T q_t,

where u_t = b_t (v_t - exp(a_t) S_{t-1}^T k_t) under the gated delta rule (Yang et al. 2025, "Gated
Delta Networks", equation 10), and u_t = v_t without rates b (Dao and Gu 2024, "Transformers are
SSMs", section 3). Given all u, the state after any path of tokens is a sum,

    S = exp(sum_i a_i) S_0 + sum_j exp(sum of a_i after j) k_j u_j^T,

so tokens that are not on the path leave no trace. The u of tokens fed together solve a unit lower
triangular system (Yang et al. 2024, "Parallelizing Linear Transformers with the Delta Rule",
section 3.2), in which the mask of a tree's ancestors takes the place of the causal mask.

G key heads serve H / G value heads each; E is the width of a key, F of a value. N are the slots of
a tree, the T fed tokens last; parents come before children. All arithmetic is in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float32

BLOCK = 64
"""Tokens of a chain whose updates are solved for together."""


class Updates(NamedTuple):
    """What tokens add to the state."""

    keys: Float32[Array, "B G N E"]
    values: Float32[Array, "B H N F"]  # u
    decays: Float32[Array, "B H N"]  # a, logarithms


class Inputs(NamedTuple):
    """Inputs of the recurrence for fed tokens."""

    queries: Float32[Array, "B G T E"]
    keys: Float32[Array, "B G T E"]
    values: Float32[Array, "B H T F"]  # v
    decays: Float32[Array, "B H T"]  # a
    rates: Float32[Array, "B H T"] | None  # b; None: u = v


State = Float32[Array, "B H E F"]


def run_chain(inputs: Inputs, state: State) -> tuple[Float32[Array, "B H T F"], Updates]:
    """Runs a chain of tokens from a state; returns outputs and updates.

    Blocks of tokens are prepared in parallel, so that the scan over them only multiplies matrices.
    Heads of width 1, the channels of a diagonal recurrence, have no matrices: their decays and
    updates are summed by a parallel scan.
    """
    fed = inputs.keys.shape[2]
    if inputs.rates is None and state.shape[2:] == (1, 1):
        return _run_channels(inputs, state)
    size = min(BLOCK, fed)
    blocks = jax.tree.map(lambda x: _split_blocks(x, size), inputs)

    def step(
        state: jax.Array, block: tuple[Inputs, _Block]
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
        inputs, made = block
        values = made.values
        if made.corrections is not None:
            values = values - _multiply(made.corrections, state)
        queries = _repeat(inputs.queries, values.shape[1])
        outputs = made.decay[..., None] * _multiply(queries, state)
        outputs += _multiply(made.scores, values)
        new = _outer_sum(inputs.keys, values * made.weights[..., None])
        return made.decay[..., -1, None, None] * state + new, (outputs, values)

    _, made = jax.lax.scan(step, state, (blocks, jax.vmap(_prepare)(blocks)))
    outputs, values = (_join_blocks(x)[:, :, :fed] for x in made)
    return outputs, Updates(inputs.keys, values, inputs.decays)


def _run_channels(inputs: Inputs, state: State) -> tuple[Float32[Array, "B H T 1"], Updates]:
    """Runs heads of width 1 (Martin and Cundy 2018, "Parallelizing Linear Recurrent Neural Nets").

    Sums of logarithms of decays do not cancel, because all of them are at most 0.
    """

    def join(
        first: tuple[jax.Array, jax.Array], second: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        return first[0] + second[0], jnp.exp(second[0]) * first[1] + second[1]

    heads = inputs.values.shape[1]
    added = _repeat(inputs.keys, heads)[..., 0] * inputs.values[..., 0]
    decays, sums = jax.lax.associative_scan(join, (inputs.decays, added), axis=2)
    states = jnp.exp(decays) * state[:, :, 0] + sums
    outputs = _repeat(inputs.queries, heads) * states[..., None]
    return outputs, Updates(inputs.keys, inputs.values, inputs.decays)


class _Block(NamedTuple):
    """What does not depend on the state before a block of C tokens."""

    values: jax.Array  # [B, H, C, F]: u from a state of zeros
    corrections: jax.Array | None  # [B, H, C, E]: u is less by their product with the state
    scores: jax.Array  # [B, H, C, C]: of queries and decayed keys
    decay: jax.Array  # [B, H, C]: of the state before the block
    weights: jax.Array  # [B, H, C]: decays of the tokens' updates until the block's end


def _prepare(inputs: Inputs) -> _Block:
    heads, size = inputs.values.shape[1:3]
    visible = jnp.tril(jnp.ones((1, size, size), bool))
    weights, decay = compute_decays(inputs.decays, visible)
    scores = _repeat(_score(inputs.queries, inputs.keys), heads) * weights
    made = _Block(inputs.values, None, scores, decay, weights[..., -1, :])
    if inputs.rates is None:
        return made
    rates = inputs.rates[..., None]
    system = rates * _repeat(_score(inputs.keys, inputs.keys), heads) * weights
    decayed = _repeat(inputs.keys, heads) * decay[..., None]
    right = rates * jnp.concatenate([inputs.values, decayed], axis=-1)
    values, corrections = jnp.split(_solve(system, right), [inputs.values.shape[-1]], axis=-1)
    return made._replace(values=values, corrections=corrections)


def run_tree(
    inputs: Inputs,
    earlier: Updates,
    visible: Bool[Array, "#B T N"],
    read: Callable[[jax.Array], jax.Array],
) -> tuple[Float32[Array, "B H T F"], Float32[Array, "B H T F"]]:
    """Runs the fed nodes of a tree; returns outputs and u.

    `earlier` are the updates of its first N - T nodes, `visible` masks each token's path, its own
    slot too, and `read` multiplies the state before the tree by vectors [B, G, M, E].
    """
    heads, fed = inputs.values.shape[1:3]
    before = earlier.decays.shape[2]
    decays = jnp.concatenate([earlier.decays, inputs.decays], axis=2)
    weights, decay = compute_decays(decays, visible)
    keys = jnp.concatenate([earlier.keys, inputs.keys], axis=2)
    both = jnp.concatenate([inputs.queries, inputs.keys], axis=2)
    read_queries, read_keys = jnp.split(read(both), 2, axis=2)
    query_scores, key_scores = jnp.split(_repeat(_score(both, keys), heads), 2, axis=2)
    values = inputs.values
    if inputs.rates is not None:
        rates, key_scores = inputs.rates[..., None], key_scores * weights
        known = decay[..., None] * read_keys
        known += _multiply(key_scores[..., :before], earlier.values)
        values = _solve(rates * key_scores[..., before:], rates * (values - known))
    outputs = decay[..., None] * read_queries
    on_path = jnp.concatenate([earlier.values, values], axis=2)
    return outputs + _multiply(query_scores * weights, on_path), values


def compute_decays(
    decays: Float32[Array, "B H N"], visible: Bool[Array, "#B T N"]
) -> tuple[Float32[Array, "B H T N"], Float32[Array, "B H T"]]:
    """Computes the decay from each slot to each token, and of the state before all slots.

    Those of slots that are not `visible` are 0. Sums of suffixes do not cancel, as differences of
    cumulative sums would.
    """
    on_path = jnp.where(visible[:, None], decays[:, :, None], 0.0)
    sums = jax.lax.cumsum(on_path, axis=3, reverse=True)
    after = jnp.pad(sums[..., 1:], ((0, 0), (0, 0), (0, 0), (0, 1)))
    return jnp.exp(jnp.where(visible[:, None], after, -jnp.inf)), jnp.exp(sums[..., 0])


def compute_chain_decays(
    decays: Float32[Array, "B H N"], counted: Bool[Array, "B N"]
) -> tuple[Float32[Array, "B H N"], Float32[Array, "B H"]]:
    """Computes the decay from each `counted` slot to the end, and of the state before all slots."""
    weights, decay = compute_decays(decays, counted[:, None])
    return weights[:, :, 0], decay[:, :, 0]


def add_updates(
    state: State,
    updates: Updates,
    weights: Float32[Array, "B H N"],
    decay: Float32[Array, "B H"],
) -> State:
    """Returns the decayed state with updates of these weights added."""
    new = _outer_sum(updates.keys, updates.values * weights[..., None])
    return decay[..., None, None] * state + new


def read_state(
    state: State,
    updates: Updates,
    weights: Float32[Array, "B H N"],
    decay: Float32[Array, "B H"],
    vectors: Float32[Array, "B G M E"],
) -> Float32[Array, "B H M F"]:
    """Multiplies the state of `add_updates` by vectors [B, G, M, E] without computing it.

    With few vectors this costs less.
    """
    heads = state.shape[1]
    scores = _repeat(_score(vectors, updates.keys), heads) * weights[:, :, None]
    made = decay[..., None, None] * _multiply(_repeat(vectors, heads), state)
    return made + _multiply(scores, updates.values)


def _solve(system: jax.Array, right: jax.Array) -> jax.Array:
    """Solves (I + L) x = right [..., T, F]; L is `system` [..., T, T] below its diagonal.

    Inverts blocks of twice the size at each step by products of matrices. On CPUs XLA calls LAPACK
    for 16 equations and more, whose threads wait for each other.
    """
    fed = system.shape[-1]
    size = 1 << (fed - 1).bit_length()
    room = ((0, size - fed),) * 2
    lower = jnp.pad(system, ((0, 0),) * (system.ndim - 2) + room)
    inverse = jnp.ones((*lower.shape[:-2], size, 1, 1), lower.dtype)
    for half in (1 << step for step in range(fed.bit_length()) if 1 << step < size):
        blocks = lower.reshape(*lower.shape[:-2], -1, 2 * half, size // (2 * half), 2 * half)
        blocks = jnp.moveaxis(jnp.diagonal(blocks, axis1=-4, axis2=-2), -1, -3)
        first, second = inverse[..., ::2, :, :], inverse[..., 1::2, :, :]
        corner = -_multiply(second, _multiply(blocks[..., half:, :half], first))
        upper = jnp.concatenate([first, jnp.zeros_like(first)], axis=-1)
        inverse = jnp.concatenate([upper, jnp.concatenate([corner, second], axis=-1)], axis=-2)
    return _multiply(inverse[..., 0, :fed, :fed], right)


def _multiply(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.matmul(x, y, precision=jax.lax.Precision.HIGHEST)


def _score(x: jax.Array, keys: jax.Array) -> jax.Array:
    """Products [B, G, M, N] of vectors x [B, G, M, E] with keys [B, G, N, E]."""
    return _multiply(x, keys.swapaxes(2, 3))


def _outer_sum(keys: jax.Array, values: jax.Array) -> jax.Array:
    """Sums of outer products [B, H, E, F] of keys [B, G, N, E] and values [B, H, N, F]."""
    return _multiply(_repeat(keys, values.shape[1]).swapaxes(2, 3), values)


def _repeat(x: jax.Array, heads: int) -> jax.Array:
    """Repeats x [B, G, ...] for each key head's value heads."""
    return jnp.repeat(x, heads // x.shape[1], axis=1)


def _split_blocks(x: jax.Array, size: int) -> jax.Array:
    """Splits x [B, H, T, ...] into [blocks, B, H, size, ...]; padding leaves the state as it is."""
    room = [(0, 0)] * x.ndim
    room[2] = (0, -x.shape[2] % size)
    x = jnp.pad(x, room)
    return jnp.moveaxis(x.reshape(*x.shape[:2], -1, size, *x.shape[3:]), 2, 0)


def _join_blocks(x: jax.Array) -> jax.Array:
    x = jnp.moveaxis(x, 0, 2)
    return x.reshape(*x.shape[:2], -1, *x.shape[4:])
