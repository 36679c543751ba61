"""Swin transformers: attention inside of windows, on grids that shrink from stage to stage.

Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows" (2021),
section 3. Donut's encoder (Kim et al. 2022) has no norm after the last stage. Grids are
[B, H, W, D].
"""

from __future__ import annotations

import dataclasses
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from specjax.models.layers import (
    Dense,
    FeedForward,
    attend,
    merge_heads,
    rematerialize,
    split_heads,
)
from specjax.models.norms import LayerNorm
from specjax.models.vision import PatchProjection, VisionConfig

SHRINK = 2
"""How many patches of a side become one in the next stage."""

EPS = 1e-5
"""Of the norms of patches, which have no field."""

APART = -100.0
"""Bias of pairs in a window whose places are not neighbors in the image (Liu et al.'s code)."""


@dataclasses.dataclass(frozen=True)
class SwinConfig(VisionConfig):
    """Shape of a Swin transformer; a stage is twice as wide as the one before."""

    first_width: int = dataclasses.field(kw_only=True)
    depths: tuple[int, ...] = dataclasses.field(kw_only=True)  # layers of each stage
    stage_heads: tuple[int, ...] = dataclasses.field(kw_only=True)
    window: int = dataclasses.field(kw_only=True)
    ff_ratio: float = 4.0

    def __post_init__(self) -> None:
        for stage, heads in enumerate(self.stage_heads):
            if self.get_width(stage) % heads:
                raise ValueError(
                    f"num_heads is {list(self.stage_heads)}; stage {stage} has a width of"
                    f" {self.get_width(stage)}, which {heads} must divide"
                )
            if min(self.get_grid(stage)) < self.window:
                raise ValueError(
                    f"window_size is {self.window}; it must be at most the sides of the smallest"
                    f" grid, which are {self.get_grid(len(self.depths) - 1)}"
                )

    @property
    def width(self) -> int:
        return self.get_width(len(self.depths) - 1)

    @property
    def num_heads(self) -> int:
        return math.gcd(*self.stage_heads)

    @property
    def d_ff(self) -> int:
        return math.gcd(*map(self.get_ff, range(len(self.depths))))

    def get_width(self, stage: int) -> int:
        """Width of a stage's states."""
        return self.first_width * SHRINK**stage

    def get_ff(self, stage: int) -> int:
        """Width inside of a stage's feed-forward networks."""
        return int(self.ff_ratio * self.get_width(stage))

    def get_grid(self, stage: int) -> tuple[int, int]:
        """Rows and columns of a stage."""
        shrunk = SHRINK**stage
        return -(-self.patches.rows // shrunk), -(-self.patches.columns // shrunk)

    def make_module(self) -> nn.Module:
        return Swin(self)


class Swin(nn.Module):
    """Patches, then stages."""

    config: SwinConfig

    @nn.compact
    def __call__(self, pixels: jax.Array, deterministic: bool = True) -> jax.Array:
        """Computes states [B, S, D] of patches [B, P, M]: those of the last grid, row by row."""
        c = self.config

        x = PatchProjection(c.patches, c.first_width, c.dtype, name="patches")(pixels)
        x = nn.Dropout(c.dropout)(LayerNorm(EPS, name="norm")(x), deterministic=deterministic)
        x = x.reshape(len(x), *c.get_grid(0), c.first_width)
        for stage in range(len(c.depths)):
            x = Stage(c, stage, name=f"stages_{stage}")(x, deterministic)
        return x.reshape(len(x), -1, x.shape[-1])


class Stage(nn.Module):
    """Layers on one grid, which shrinks after them unless the stage is the last one."""

    config: SwinConfig
    stage: int

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
        c, stage = self.config, self.stage

        def one(layer: SwinLayer, x: jax.Array) -> jax.Array:
            return layer(x, deterministic)

        for number in range(c.depths[stage]):
            layer = SwinLayer(c, stage, number % 2 == 1, name=f"layers_{number}")
            x = rematerialize(one, c.remat)(layer, x)
        is_last = stage + 1 == len(c.depths)
        return x if is_last else Shrink(c, c.get_width(stage + 1), name="shrink")(x)


class Shrink(nn.Module):
    """Makes one state of four neighbors (Liu et al., "patch merging")."""

    config: SwinConfig
    features: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        rows, columns = x.shape[1:3]
        x = jnp.pad(x, ((0, 0), (0, rows % SHRINK), (0, columns % SHRINK), (0, 0)))
        places = [(row, column) for column in range(SHRINK) for row in range(SHRINK)]
        x = jnp.concatenate([x[:, row::SHRINK, column::SHRINK] for row, column in places], axis=-1)
        x = LayerNorm(EPS, name="norm")(x)
        return Dense(self.features, self.config.dtype, name="reduction")(x)


class WindowAttention(nn.Module):
    """Self-attention in windows, with a learned bias for each distance (Liu et al., equation 4)."""

    config: SwinConfig
    stage: int

    @nn.compact
    def __call__(self, x: jax.Array, mask: np.ndarray | None) -> jax.Array:
        """x [N, w * w, D] are windows, those of one image in a row; `mask` [n, w * w, w * w]."""
        c, heads = self.config, self.config.stage_heads[self.stage]
        width, side = x.shape[-1], 2 * self.config.window - 1
        q, k, v = (
            split_heads(Dense(width, c.dtype, bias=c.qkv_bias, name=name)(x), heads)
            for name in "qkv"
        )
        init, shape = nn.initializers.normal(0.02), (side * side, heads)
        table = self.param("distance_bias", init, shape, jnp.float32)
        bias = jnp.moveaxis(table[_count_distances(c.window)], -1, 0)[None]
        if mask is not None:
            bias = jnp.tile(bias + mask[:, None], (len(x) // len(mask), 1, 1, 1))
        made = attend(q * (width // heads) ** -0.5, k, v, bias)
        return Dense(width, c.dtype, bias=True, name="o")(merge_heads(made))


class SwinLayer(nn.Module):
    """Attention in windows, which every second layer shifts by half, and a feed-forward network."""

    config: SwinConfig
    stage: int
    shifts: bool

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool) -> jax.Array:
        c, drop = self.config, nn.Dropout(self.config.dropout)
        h = LayerNorm(c.eps, name="self_norm")(x)
        x = x + self._attend(h)
        h = LayerNorm(c.eps, name="ff_norm")(x)
        ff = FeedForward(c.get_ff(self.stage), c.activation, False, c.dtype, 0.0, True, name="ff")
        return x + drop(ff(h, deterministic), deterministic=deterministic)

    def _attend(self, x: jax.Array) -> jax.Array:
        """Applies attention to a grid, padded to whole windows."""
        window, (rows, columns) = self.config.window, x.shape[1:3]
        # A grid of one window's side is not shifted.
        shift = window // 2 if self.shifts and min(rows, columns) > window else 0
        x = jnp.pad(x, ((0, 0), (0, -rows % window), (0, -columns % window), (0, 0)))
        grid = x.shape[1], x.shape[2]
        x = jnp.roll(x, (-shift, -shift), axis=(1, 2))
        mask = _mask_neighbors(grid, window, shift) if shift else None
        attention = WindowAttention(self.config, self.stage, name="self_attention")
        x = _join_windows(attention(_cut_windows(x, window), mask), grid, window)
        return jnp.roll(x, (shift, shift), axis=(1, 2))[:, :rows, :columns]


def _cut_windows(x: jax.Array, window: int) -> jax.Array:
    """Cuts grids [B, H, W, D] into windows [N, w * w, D]."""
    batch, rows, columns, width = x.shape
    x = x.reshape(batch, rows // window, window, columns // window, window, width)
    return x.swapaxes(2, 3).reshape(-1, window * window, width)


def _join_windows(x: jax.Array, grid: tuple[int, int], window: int) -> jax.Array:
    """Joins windows [N, w * w, D] to grids [B, H, W, D]."""
    rows, columns = (size // window for size in grid)
    x = x.reshape(-1, rows, columns, window, window, x.shape[-1])
    return x.swapaxes(2, 3).reshape(-1, *grid, x.shape[-1])


def _count_distances(window: int) -> np.ndarray:
    """The index [w * w, w * w] of the distance between two places of a window."""
    places = np.stack(np.meshgrid(*[np.arange(window)] * 2, indexing="ij")).reshape(2, -1)
    rows, columns = places[:, :, None] - places[:, None, :] + window - 1
    return rows * (2 * window - 1) + columns


def _mask_neighbors(grid: tuple[int, int], window: int, shift: int) -> np.ndarray:
    """The bias [n, w * w, w * w] in shifted windows: `APART` for pairs that were not close."""
    parts = [
        (np.arange(size) >= size - window).astype(int) + (np.arange(size) >= size - shift)
        for size in grid
    ]
    part = parts[0][:, None] * 3 + parts[1]
    rows, columns = (size // window for size in grid)
    part = part.reshape(rows, window, columns, window).swapaxes(1, 2).reshape(-1, window * window)
    return np.where(part[:, :, None] != part[:, None, :], APART, 0.0).astype(np.float32)
