"""Recurrent layers of hybrid models: projections, a short convolution, a linear recurrence.

What is common to gated delta networks (`models.gated_delta`), Mamba-2 (`models.mamba2`) and RG-LRU
(`models.rg_lru`). G key heads of width E serve H value heads of width F; C are the channels of the
convolution.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.layers import Dense
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


@dataclasses.dataclass(frozen=True)
class Recurrence:
    """Shape of a recurrent layer."""

    key_heads: int  # G
    value_heads: int  # H
    d_key: int  # E
    d_value: int  # F
    taps: int = 4  # of the convolution

    @property
    def reach(self) -> int:
        """Slots before a token that its convolution reads."""
        return self.taps - 1

    @property
    def widths(self) -> tuple[int, int, int]:
        """Channels of all queries, keys and values."""
        keys = self.key_heads * self.d_key
        return keys, keys, self.value_heads * self.d_value

    @property
    def channels(self) -> int:
        """C, the convolution's."""
        return sum(self.widths)

    def make_entries(self, rows: int, dtype: Any) -> Entries:
        """Creates the entries of one slot, zeros."""
        shapes = (
            (self.key_heads, self.d_key, jnp.float32),
            (self.value_heads, self.d_value, jnp.float32),
            (self.value_heads, 1, jnp.float32),
            (1, self.channels, dtype),
        )
        return Entries(*(jnp.zeros((rows, heads, 1, width), kind) for heads, width, kind in shapes))

    def make_layer(self, width: int, activation: str, eps: float, dtype: Any) -> RecurrentLayer:
        """Creates the layer for states of this width."""
        raise NotImplementedError


class Projections(NamedTuple):
    """Projections of states [B, T, D]."""

    inputs: jax.Array  # [B, T, C]: of the convolution
    decays: jax.Array | None = None  # [B, H, T] float32, logarithms; None: by convolved channels
    rates: jax.Array | None = None  # [B, H, T] float32: of the delta rule, or step sizes


def draw_log_speeds(key: jax.Array, shape: tuple[int, ...], dtype: Any) -> jax.Array:
    """Initializes logarithms of numbers from 0 to 16, but not too close to 0."""
    return jnp.log(jax.random.uniform(key, shape, dtype, 0.01, 16.0))


class RecurrentLayer(nn.Module):
    """Projections, convolution and recurrence over prompts, chains and trees."""

    shape: Any  # a kind of `Recurrence`
    width: int
    activation: str
    eps: float
    dtype: Any

    def project(self, x: jax.Array) -> Projections:
        """Computes what the layer needs of normed states x [B, T, D]."""
        raise NotImplementedError

    def project_prompt(self, x: jax.Array) -> Projections:
        """Computes the same of a prompt's tokens."""
        return self.project(x)

    def make_inputs(self, convolved: jax.Array, given: Projections, slots: jax.Array) -> Inputs:
        """Splits convolved channels [B, T, C] of `slots` [B, T] into the recurrence's heads."""
        raise NotImplementedError

    def add_skip(self, outputs: jax.Array, convolved: jax.Array) -> jax.Array:
        """Adds what goes past the recurrence, if anything does, to its outputs [B, H, T, F]."""
        return outputs

    def read_out(self, x: jax.Array, mixed: jax.Array) -> jax.Array:
        """Gates and projects outputs [B, H, T, F] of normed states x [B, T, D]."""
        raise NotImplementedError

    def make_parameters(self, bias: bool = False, taps_bias: bool = False) -> None:
        """Creates the parameters of kinds with queries; projections and taps may have a bias."""
        s = self.shape
        queries, keys, values = s.widths
        self.q, self.k, self.v, self.gate, self.decay = (
            Dense(n, self.dtype, bias=bias) for n in (queries, keys, values, values, s.value_heads)
        )
        self.o = Dense(self.width, self.dtype, bias=bias)
        self.make_taps(taps_bias)
        heads = (s.value_heads,)
        self.decay_bias = self.param("decay_bias", nn.initializers.ones, heads, jnp.float32)
        self.log_speed = self.param("log_speed", draw_log_speeds, heads, jnp.float32)

    def make_taps(self, bias: bool) -> None:
        """Creates the parameters of the convolution."""
        c = self.shape.channels
        taps = nn.initializers.variance_scaling(1.0, "fan_in", "normal", in_axis=2, out_axis=0)
        self.taps = self.param("taps", taps, (c, 1, self.shape.taps), jnp.float32)
        if bias:
            self.taps_bias = self.param("taps_bias", nn.initializers.zeros, (c,), jnp.float32)

    def compute_steps(self, x: jax.Array, least: float = 0.0) -> tuple[jax.Array, jax.Array]:
        """Computes float32 step sizes [B, T, H], at least `least`, and logarithms of decays."""
        speed = jnp.exp(self.log_speed.astype(jnp.float32))
        step = self.decay(x).astype(jnp.float32) + self.decay_bias.astype(jnp.float32)
        step = jax.nn.softplus(step)
        step = jnp.maximum(step, least) if least else step
        return step, -(speed * step)

    def __call__(self, x: jax.Array) -> tuple[jax.Array, Entries]:
        """Mixes normed states x [B, T, D] of whole rows; returns their entries too."""
        given, s = self.project_prompt(x), self.shape
        before = jnp.zeros((len(x), s.reach, given.inputs.shape[-1]), given.inputs.dtype)
        state = jnp.zeros((len(x), s.value_heads, s.d_key, s.d_value), jnp.float32)
        mixed, new = self._run_chain(given, before, state, jnp.zeros(len(x), jnp.int32))
        return self.read_out(x, mixed), new

    def read_on(
        self, x: jax.Array, own: RecurrentCache, start: jax.Array, length: jax.Array
    ) -> tuple[jax.Array, RecurrentCache]:
        """Mixes a chunk x [B, T, D] of prompts of `length` [B] at slots from `start` [B]."""
        mixed, new = self._run_after(self.project_prompt(x), own, start)
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

    def _run_after(
        self, given: Projections, own: RecurrentCache, start: jax.Array
    ) -> tuple[jax.Array, Entries]:
        """Runs a chain of any length after the slots before `start` [B]."""
        before = take_inputs(own, start, self.shape.reach)
        return self._run_chain(given, before, compute_state(own, start), start)

    def _run_chain(
        self, given: Projections, before: jax.Array, state: jax.Array, start: jax.Array
    ) -> tuple[jax.Array, Entries]:
        convolved = convolve_chain(before, given.inputs, self._get_taps())
        inputs = self.make_inputs(convolved, given, list_slots(convolved, start))
        outputs, updates = run_chain(inputs, state)
        return self.add_skip(outputs, convolved), _make_entries(updates, given)

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
        inputs = self.make_inputs(convolved, given, list_slots(convolved, start))

        def read(vectors: jax.Array) -> jax.Array:
            return read_cache(own, first, vectors)

        outputs, values = run_tree(inputs, earlier.updates, visible, read)
        updates = Updates(inputs.keys, values, inputs.decays)
        return self.add_skip(outputs, convolved), _make_entries(updates, given)

    def _get_taps(self) -> jax.Array:
        return self.taps[:, 0].astype(jnp.float32)


def list_slots(x: jax.Array, start: jax.Array) -> jax.Array:
    """Returns the slots [B, T] of states x [B, T, C] from `start` [B] on."""
    return start[:, None] + jnp.arange(x.shape[1])


def _make_entries(updates: Updates, given: Projections) -> Entries:
    decays = updates.decays[..., None]
    return Entries(updates.keys, updates.values, decays, given.inputs[:, None])
