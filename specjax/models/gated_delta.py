"""Gated delta networks: recurrent layers of hybrid models (Yang et al. 2025).

Queries, keys and values pass a short convolution; each head then runs the gated delta rule
(`models.recurrence`) on them, and its normed output is gated. G key heads of width E serve H value
heads of width F.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.layers import ACTIVATIONS, Dense, merge_heads, split_heads
from specjax.models.norms import RMSNorm
from specjax.models.recurrence import BLOCK, Inputs, Updates, run_chain, run_tree
from specjax.models.recurrent_caches import (
    Entries,
    RecurrentCache,
    append_chunk,
    append_tokens,
    compute_state,
    read_cache,
    take_entries,
    take_inputs,
)
from specjax.models.short_convolution import convolve_chain, convolve_tree

NORM_EPS = 1e-6
"""Added to the squared length of a query or key."""


@dataclasses.dataclass(frozen=True)
class GatedDelta:
    """Shape of a gated delta network."""

    key_heads: int  # G
    value_heads: int  # H
    d_key: int  # E
    d_value: int  # F
    taps: int = 4  # of the convolution

    def __post_init__(self) -> None:
        if self.value_heads % self.key_heads:
            raise ValueError(
                f"linear_num_key_heads is {self.key_heads}; it must divide the"
                f" {self.value_heads} value heads"
            )

    @property
    def reach(self) -> int:
        """Slots before a token that its convolution reads."""
        return self.taps - 1

    @property
    def widths(self) -> tuple[int, int, int]:
        """Channels of all queries, keys and values."""
        keys = self.key_heads * self.d_key
        return keys, keys, self.value_heads * self.d_value

    def make_entries(self, rows: int, dtype: Any) -> Entries:
        """Creates the entries of one slot, zeros."""
        shapes = (
            (self.key_heads, self.d_key, jnp.float32),
            (self.value_heads, self.d_value, jnp.float32),
            (self.value_heads, 1, jnp.float32),
            (1, sum(self.widths), dtype),
        )
        return Entries(*(jnp.zeros((rows, heads, 1, width), kind) for heads, width, kind in shapes))


class Projections(NamedTuple):
    """Projections of states [B, T, D]."""

    inputs: jax.Array  # [B, T, C]: of the convolution
    decays: jax.Array  # [B, H, T] float32, logarithms
    rates: jax.Array  # [B, H, T] float32


def draw_log_speeds(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Initializes logarithms of numbers from 0 to 16, but not too close to 0."""
    return jnp.log(jax.random.uniform(key, shape, dtype, 0.01, 16.0))


class GatedDeltaNet(nn.Module):
    """Projections, convolution, gated delta rule, gated norm."""

    shape: GatedDelta
    width: int
    activation: str
    eps: float
    dtype: Any

    def setup(self) -> None:
        s = self.shape
        queries, keys, values = s.widths
        self.q, self.k, self.v = (Dense(n, self.dtype) for n in (queries, keys, values))
        self.gate = Dense(values, self.dtype)
        self.rate, self.decay = (Dense(s.value_heads, self.dtype) for _ in range(2))
        taps = nn.initializers.variance_scaling(1.0, "fan_in", "normal", in_axis=2, out_axis=0)
        self.taps = self.param("taps", taps, (sum(s.widths), 1, s.taps), jnp.float32)
        heads = (s.value_heads,)
        self.decay_bias = self.param("decay_bias", nn.initializers.ones, heads, jnp.float32)
        self.log_speed = self.param("log_speed", draw_log_speeds, heads, jnp.float32)
        self.norm = RMSNorm(self.eps)
        self.o = Dense(self.width, self.dtype)

    def __call__(self, x: jax.Array) -> tuple[jax.Array, Entries]:
        """Mixes normed states x [B, T, D] of whole rows; returns their entries too."""
        given, s = self.project(x), self.shape
        before = jnp.zeros((len(x), s.reach, given.inputs.shape[-1]), given.inputs.dtype)
        state = jnp.zeros((len(x), s.value_heads, s.d_key, s.d_value), jnp.float32)
        mixed, new = self._run_chain(given, before, state)
        return self.read_out(x, mixed), new

    def read_on(
        self, x: jax.Array, own: RecurrentCache, start: jax.Array, length: jax.Array
    ) -> tuple[jax.Array, RecurrentCache]:
        """Mixes a chunk x [B, T, D] of prompts of `length` [B] at slots from `start` [B]."""
        mixed, new = self._run_after(self.project(x), own, start)
        return self.read_out(x, mixed), append_chunk(own, new, start, length)

    def extend(
        self,
        x: jax.Array,
        own: RecurrentCache,
        start: jax.Array,
        visible: jax.Array | None = None,
    ) -> tuple[jax.Array, RecurrentCache]:
        """Mixes fed tokens x [B, T, D] at slots from `start` [B].

        `visible` [B, T, N] are their paths among the last N slots of a tree; None: a chain.
        """
        given = self.project(x)
        if visible is None and x.shape[1] > BLOCK:
            mixed, new = self._run_after(given, own, start)
        else:
            mixed, new = self._run_tree(given, own, start, visible)
        return self.read_out(x, mixed), append_tokens(own, new, start)

    def project(self, x: jax.Array) -> Projections:
        """Computes what the layer needs of normed states x [B, T, D]."""
        inputs = jnp.concatenate([self.q(x), self.k(x), self.v(x)], axis=-1)
        speed = jnp.exp(self.log_speed.astype(jnp.float32))
        step = self.decay(x).astype(jnp.float32) + self.decay_bias.astype(jnp.float32)
        rates = jax.nn.sigmoid(self.rate(x)).astype(jnp.float32)
        return Projections(
            inputs, -(speed * jax.nn.softplus(step)).swapaxes(1, 2), rates.swapaxes(1, 2)
        )

    def _run_after(
        self, given: Projections, own: RecurrentCache, start: jax.Array
    ) -> tuple[jax.Array, Entries]:
        """Runs a chain of any length after the slots before `start` [B]."""
        before = take_inputs(own, start, self.shape.reach)
        return self._run_chain(given, before, compute_state(own, start))

    def _run_chain(
        self, given: Projections, before: jax.Array, state: jax.Array
    ) -> tuple[jax.Array, Entries]:
        convolved = convolve_chain(before, given.inputs, self._get_taps())
        outputs, updates = run_chain(self.make_inputs(convolved, given), state)
        return outputs, _make_entries(updates, given)

    def _run_tree(
        self,
        given: Projections,
        own: RecurrentCache,
        start: jax.Array,
        visible: jax.Array | None,
    ) -> tuple[jax.Array, Entries]:
        """Runs the last nodes of a tree, or a short chain, at slots from `start` [B]."""
        fed, is_chain = given.inputs.shape[1], visible is None
        if visible is None:
            visible = jnp.broadcast_to(jnp.tril(jnp.ones((fed, fed), bool)), (len(start), fed, fed))
        first = start - (visible.shape[2] - fed)
        slots = first[:, None] + jnp.arange(visible.shape[2] - fed)
        earlier = take_entries(own, slots)
        # The first slots of a beam search's tree may be before the text.
        visible &= (first[:, None] + jnp.arange(visible.shape[2]) >= 0)[:, None]
        before = take_inputs(own, first, self.shape.reach)
        if is_chain:
            convolved = convolve_chain(before, given.inputs, self._get_taps())
        else:
            nodes = jnp.concatenate([earlier.inputs[:, 0], given.inputs], axis=1)
            convolved = convolve_tree(before, nodes, self._get_taps(), visible)
        inputs = self.make_inputs(convolved, given)

        def read(vectors: jax.Array) -> jax.Array:
            return read_cache(own, first, vectors)

        outputs, values = run_tree(inputs, earlier.updates, visible, read)
        return outputs, _make_entries(Updates(inputs.keys, values, inputs.decays), given)

    def make_inputs(self, convolved: jax.Array, given: Projections) -> Inputs:
        """Splits convolved channels [B, T, C] into heads; queries and keys have length 1."""
        s = self.shape
        active = ACTIVATIONS[self.activation](convolved)
        q, k, v = jnp.split(active, (s.widths[0], 2 * s.widths[0]), axis=-1)
        q, k = (_normalize(split_heads(x, s.key_heads)) for x in (q, k))
        values = split_heads(v, s.value_heads)
        return Inputs(q * s.d_key**-0.5, k, values, given.decays, given.rates)

    def read_out(self, x: jax.Array, mixed: jax.Array) -> jax.Array:
        """Gates and projects outputs [B, H, T, F] of normed states x [B, T, D]."""
        gate = split_heads(self.gate(x), self.shape.value_heads).astype(jnp.float32)
        normed = self.norm(mixed.astype(self.dtype)).astype(jnp.float32)
        return self.o(merge_heads((normed * jax.nn.silu(gate)).astype(self.dtype)))

    def _get_taps(self) -> jax.Array:
        return self.taps[:, 0].astype(jnp.float32)


def _normalize(x: jax.Array) -> jax.Array:
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + NORM_EPS)


def _make_entries(updates: Updates, given: Projections) -> Entries:
    decays = updates.decays[..., None]
    return Entries(updates.keys, updates.values, decays, given.inputs[:, None])
