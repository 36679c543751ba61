"""Position encodings: rotary and sinusoidal embeddings, T5's relative bias.

Rotary embeddings: Su et al., "RoFormer" (2021). Scalings for contexts longer than the trained one:
linear (positions divided), dynamic (the base grows with the length, "NTK"), Llama 3.1's (long waves
stretched, short ones unchanged), YaRN's (Peng et al. 2023: the same by number of rotations, with
scaled attention) and LongRoPE's (Ding et al. 2024: a factor per wave, from one of two sets by
length). Sinusoids: Vaswani et al., "Attention Is All You Need" (2017), section 3.5; but sines fill
the first half of the width and cosines the second, as in published code.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Float32, Int, Int32

from specjax.models.layers import MASKED, Tree, locate_tree_slots, make_key_mask, make_tree_mask

KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")


@dataclasses.dataclass(frozen=True)
class Rope:
    """Rotary embedding; `original` is the context length before scaling."""

    width: int  # rotated numbers of each head
    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    original: int = 0
    low: float = 1.0  # llama3: wavelengths above original / low are divided by factor
    high: float = 4.0  # llama3: wavelengths below original / high are unchanged
    attention: float = 1.0  # yarn, longrope: factor of rotated queries and keys
    fast: float = 32.0  # yarn: waves of more rotations within `original` are unchanged
    slow: float = 1.0  # yarn: waves of fewer rotations are divided by factor
    truncate: bool = True  # yarn: round these bounds outwards to whole waves
    short: tuple[float, ...] = ()  # longrope: divisors of the waves [d / 2] up to `original`
    long: tuple[float, ...] = ()  # longrope: above `original`
    pairs: int = 0  # proportional: turned pairs of a head; the slower ones are not turned
    interleaved: bool = False  # numbers 2 i and 2 i + 1 form a pair (GPT-J, GLM, Command R)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"rope_type is {self.kind!r}; it must be one of {', '.join(KINDS)}")

    def compute_frequencies(self) -> np.ndarray:
        """Returns radians per position [d / 2] float32, for lengths up to `original`."""
        plain = np.float32(1.0) / np.float32(self.theta) ** self._exponent
        match self.kind:
            case "linear":
                return plain / np.float32(self.factor)
            case "llama3":
                return self._interpolate(plain, self._keep_by_wavelength(plain))
            case "yarn":
                return self._interpolate(plain, self._keep_by_turns())
            case "longrope":
                return self._divide_waves(self.short)
            case "proportional":
                turned = np.arange(self.width // 2) < self.pairs
                return np.where(turned, plain, np.float32(0.0)) / np.float32(self.factor)
        return plain

    @property
    def _exponent(self) -> np.ndarray:
        return np.arange(0, self.width, 2, dtype=np.float32) / np.float32(self.width)

    def _divide_waves(self, by: tuple[float, ...]) -> np.ndarray:
        return np.float32(1.0) / (
            np.asarray(by, np.float32) * np.float32(self.theta) ** self._exponent
        )

    def _interpolate(self, plain: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """Interpolates between unchanged waves, by `kept` [d / 2], and stretched ones."""
        return (1 - kept) * plain / np.float32(self.factor) + kept * plain

    def _keep_by_wavelength(self, plain: np.ndarray) -> np.ndarray:
        turns = np.float32(self.original) * plain / np.float32(2.0 * math.pi)
        if self.high == self.low:
            return (turns > self.low).astype(np.float32)
        return np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0).astype(np.float32)

    def _keep_by_turns(self) -> np.ndarray:
        first, last = self._find_wave(self.fast), self._find_wave(self.slow)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, self.width - 1)
        if first == last:
            last += 1e-3
        wave = np.arange(self.width // 2, dtype=np.float32)
        return 1 - np.clip((wave - first) / (last - first), 0.0, 1.0).astype(np.float32)

    def _find_wave(self, turns: float) -> float:
        """Returns the (fractional) index of the wave with `turns` rotations in `original`."""
        ratio = self.original / (turns * 2.0 * math.pi)
        return self.width * math.log(ratio) / (2.0 * math.log(self.theta))

    def angles(
        self, position: Int[Array, " ..."], length: Int[Array, " ..."] | int
    ) -> Float32[Array, "... R"]:
        """Computes rotation angles [..., d / 2] of each position.

        `length`, broadcast to `position`, is the row's length when the token was fed; only the
        dynamic and longrope kinds use it.
        """
        turned = position[..., None].astype(jnp.float32)
        if self.kind == "longrope":
            beyond = jnp.asarray(length)[..., None] > self.original
            return turned * jnp.where(
                beyond, self._divide_waves(self.long), self.compute_frequencies()
            )
        if self.kind != "dynamic":
            return turned * self.compute_frequencies()
        longer = jnp.maximum(jnp.asarray(length, jnp.float32), self.original)
        growth = self.factor * longer / self.original - (self.factor - 1.0)
        base = self.theta * growth ** (self.width / (self.width - 2))
        return turned * base[..., None] ** -self._exponent


@dataclasses.dataclass(frozen=True)
class Temperature:
    """Attention that sharpens with the position: queries grow by a logarithm of whole spans.

    Meta, Llama 4 (2025), after Nakanishi, "Scalable-Softmax Is Superior for Attention" (2025).
    """

    scale: float
    span: int  # positions
    first: int = 0  # number of the first position
    unrotated: bool = False  # only in layers that do not rotate

    def compute_factor(self, position: Int[Array, " ..."]) -> Float32[Array, " ..."]:
        """Computes the factor of queries at each position."""
        position = position + self.first if self.first else position
        spans = jnp.floor(position.astype(jnp.float32) / self.span)
        return 1.0 + self.scale * jnp.log1p(spans)


class Turn(NamedTuple):
    """What positions do to queries and keys of a layer, and to queries alone."""

    angles: Float32[Array, "B T R"] | None
    factor: Float32[Array, "B T"]


def compute_angles(
    ropes: Sequence[Rope | None],
    position: Int[Array, " ..."],
    length: Int[Array, " ..."] | int,
) -> list[Float32[Array, "... R"] | None]:
    """Computes each layer's `Rope.angles`, once per distinct rope; None: not rotated."""
    made: dict[Rope | None, jax.Array] = {
        rope: rope.angles(position, length) for rope in dict.fromkeys(ropes) if rope
    }
    return [made.get(rope) for rope in ropes]


def rotate(
    x: Float[Array, "B H T d"],
    angles: Float32[Array, "#B T R"],
    scale: float = 1.0,
    interleaved: bool = False,
) -> Float[Array, "B H T d"]:
    """Rotates x [B, H, T, d] by angles [B, T, r / 2], times `scale`.

    The first r numbers of each head are rotated; number i and number i + r / 2 form a pair. With
    partial rotation, the other numbers are unchanged. Pairs that are `interleaved`, numbers 2 i and
    2 i + 1, are at i and i + r / 2 afterwards: products of queries with keys are the same.
    """
    cos, sin = scale * jnp.cos(angles)[:, None], scale * jnp.sin(angles)[:, None]
    pairs = angles.shape[-1]
    rotated, kept = x[..., : 2 * pairs], x[..., 2 * pairs :]
    rotated = rotated.astype(jnp.float32)
    if interleaved:
        first, second = rotated[..., 0::2], rotated[..., 1::2]
    else:
        first, second = jnp.split(rotated, 2, axis=-1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    made = jnp.concatenate(turned, axis=-1).astype(x.dtype)
    return jnp.concatenate([made, kept], axis=-1) if kept.shape[-1] else made


BASE = 10_000.0


@dataclasses.dataclass(frozen=True)
class Sinusoids:
    """Sinusoidal position embeddings.

    In the paper, wavelengths reach up to one step below `BASE` times the shortest. With `to_base`,
    as in tensor2tensor and fairseq, they reach `BASE`, and the last column of an odd width is 0.
    All are multiplied by `scale`.
    """

    width: int
    to_base: bool = False
    scale: float = 1.0

    def __post_init__(self) -> None:
        least = 4 if self.to_base else 1
        if self.width < least:
            raise ValueError(
                f"d_model is {self.width}; sinusoidal positions require at least {least}"
            )

    @property
    def _waves(self) -> tuple[np.ndarray, np.ndarray]:
        """Radians per position of the sines and of the cosines; float32."""
        sines = self.width // 2 if self.to_base else -(-self.width // 2)
        step = 1.0 / (self.width // 2 - 1) if self.to_base else 2.0 / self.width
        waves = (BASE ** -(np.arange(sines) * step)).astype(np.float32)
        return waves, waves[: self.width // 2]

    def __call__(self, position: Int[Array, " ..."]) -> Float32[Array, "... D"]:
        """Computes embeddings [..., D] float32 of positions [...]."""
        sines, cosines = (position[..., None] * waves for waves in self._waves)
        made = jnp.concatenate([jnp.sin(sines), jnp.cos(cosines)], axis=-1)
        room = [(0, 0)] * (made.ndim - 1) + [(0, self.width - made.shape[-1])]
        made = jnp.pad(made, room)
        return made if self.scale == 1.0 else self.scale * made


def compute_relative_bucket(
    distance: np.ndarray, bidirectional: bool, buckets: int, max_distance: int
) -> np.ndarray:
    """Returns the bucket of each relative position `key - query` (Raffel et al., section 2.1).

    Half of the buckets hold exact small distances, the rest grow logarithmically up to
    `max_distance`; a bidirectional stack has separate buckets for keys after the query. Computed on
    the host in float32, as for the training of published checkpoints.
    """
    base = np.zeros_like(distance)
    if bidirectional:
        buckets //= 2
        base = np.where(distance > 0, buckets, 0)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = buckets // 2
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    scale = np.float32(np.log(max_distance / exact))
    large = exact + (ratio / scale * np.float32(buckets - exact)).astype(np.int32)
    return base + np.where(distance < exact, distance, np.minimum(large, buckets - 1))


class RelativeBias(nn.Module):
    """The learned bias of each (bucket, head), shared by the layers of one stack."""

    heads: int
    buckets: int
    max_distance: int
    bidirectional: bool

    def setup(self) -> None:
        shape = (self.buckets, self.heads)
        self.table = self.param("table", nn.initializers.normal(0.1), shape, jnp.float32)

    def __call__(self, distance: np.ndarray) -> Float[Array, "H ..."]:
        """Returns the bias [H, *distance.shape] of static relative positions `key - query`."""
        bucket = compute_relative_bucket(
            distance, self.bidirectional, self.buckets, self.max_distance
        )
        return jnp.moveaxis(self.table[bucket], -1, 0)


FEW = 16
"""Maximum queries whose rows are sliced from one band on a TPU."""


def compute_bias_rows(
    table: Float[Array, "H W"], start: Int[Array, " B"], count: int, keys: int | None = None
) -> Float[Array, "B H {count} C"]:
    """Computes the bias [B, H, T, C] of queries at `start + t` over C slots, or `keys`.

    `table[:, C - 1 + distance]` is the bias (or mask) of relative position `key - query`; the row
    of a query at position p is therefore the contiguous slice from `C - 1 - p` on: one slice per
    row instead of a gather of single numbers. A TPU runs several such slices as a loop with the
    overhead of a kernel per iteration, so few rows are sliced from one wider slice there.
    """
    by_row = functools.partial(_slice_rows, count=count, keys=keys)
    if not 1 < count <= FEW:
        return by_row(table, start)
    from_band = functools.partial(_slice_band, count=count, keys=keys)
    return jax.lax.platform_dependent(table, start, tpu=from_band, default=by_row)


def _slice_rows(
    table: Float[Array, "H W"], start: Int[Array, " B"], count: int, keys: int | None
) -> Float[Array, "B H {count} C"]:
    capacity = table.shape[1] // 2
    position = start[:, None] + jnp.arange(count)

    def row(p: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(table, capacity - 1 - p, keys or capacity, axis=1)

    return jax.vmap(jax.vmap(row, out_axes=1))(position)


def _slice_band(
    table: Float[Array, "H W"], start: Int[Array, " B"], count: int, keys: int | None
) -> Float[Array, "B H {count} C"]:
    """Slices one band for all queries of a text, and each row from it, shifted by one."""
    capacity, more = table.shape[1] // 2, count - 1
    keys = keys or capacity
    table = jnp.pad(table, ((0, 0), (more, 0)))  # padding that no query within C reads

    def band(p: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(table, capacity - 1 - p, keys + more, axis=1)

    bands = jax.vmap(band)(start)
    rows = [bands[:, :, more - t : more - t + keys] for t in range(count)]
    return jnp.stack(rows, axis=2)


def make_slope_table(slopes: Sequence[float], capacity: int) -> Float32[Array, "H W"]:
    """Computes ALiBi's biases by distance, `slopes` times relative positions.

    It is a table of `compute_bias_rows`, where keys after the query are masked. Press et al. 2022,
    "Train Short, Test Long", section 3.
    """
    distance = jnp.arange(-(capacity - 1), capacity + 1)
    sloped = jnp.asarray(slopes, jnp.float32)[:, None] * distance
    return jnp.where(distance > 0, MASKED, sloped)


class RelativeBiasOf(struct.PyTreeNode):
    """The bias of `compute_bias_rows`, per block of queries and keys (`attention.Bias`)."""

    table: Float[Array, "H 2*C"]
    start: Int32[Array, "#B"]  # position of the first query
    length: Int32[Array, " B"] | None = None  # visible keys; None: by the table

    def tile(
        self, query: Int[Array, ""] | int, queries: int, key: Int[Array, ""] | int, keys: int
    ) -> Float32[Array, "B H T C"]:
        bias = compute_bias_rows(self.table, self.start + (query - key), queries, keys)
        return bias if self.length is None else bias + make_key_mask(self.length - key, keys)


def compute_tree_bias(
    table: Float[Array, "H W"], tree: Tree, start: Int[Array, " B"]
) -> Float[Array, "B H T C"]:
    """Computes the bias [B, H, T, C] of a tree's fed tokens over all C slots.

    T5's relative bias depends on positions, not slots: a gather from the same `table`, whose entry
    `C - 1` has distance 0.
    """
    capacity = table.shape[1] // 2
    slots = jnp.arange(capacity)
    at, _ = locate_tree_slots(tree, start, slots)
    fed = tree[0][:, -tree[1].shape[1] :]
    distance = jnp.minimum(at[:, None] - fed[..., None], 0)
    bias = jnp.moveaxis(table[:, capacity - 1 + distance], 0, 1)
    return bias + make_tree_mask(tree, start, slots)
