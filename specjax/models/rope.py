"""Rotary position embeddings and their scalings.

Su et al., "RoFormer" (2021). Scalings for contexts longer than the trained one: linear (positions
divided), dynamic (the base grows with the length, "NTK"), Llama 3.1's (long waves stretched, short
ones kept), YaRN's (Peng et al. 2023: the same by numbers of turns, and sharper attention) and
LongRoPE's (Ding et al. 2024: each wave by its own factor, of two sets by the length).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

KINDS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope")


@dataclasses.dataclass(frozen=True)
class Rope:
    """Frequencies of the rotation; `original` is the context length the scaling starts from."""

    width: int  # of what is rotated of a head
    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    original: int = 0
    low: float = 1.0  # llama3: wavelengths above original / low are divided by factor
    high: float = 4.0  # llama3: wavelengths below original / high are kept
    attention: float = 1.0  # yarn, longrope: rotated queries and keys are multiplied by it
    fast: float = 32.0  # yarn: waves of more turns within `original` are kept
    slow: float = 1.0  # yarn: waves of fewer turns are divided by factor
    truncate: bool = True  # yarn: these bounds are rounded outwards to whole waves
    short: tuple[float, ...] = ()  # longrope: divisors of the waves [d / 2] up to `original`
    long: tuple[float, ...] = ()  # longrope: beyond it

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"rope_type is {self.kind!r}; it must be one of {', '.join(KINDS)}")

    def frequencies(self) -> np.ndarray:
        """Radians per position [d / 2] at lengths within the trained context; float32."""
        plain = np.float32(1.0) / np.float32(self.theta) ** self._exponent
        match self.kind:
            case "linear":
                return plain / np.float32(self.factor)
            case "llama3":
                return self._mixed(plain, self._kept_by_wavelength(plain))
            case "yarn":
                return self._mixed(plain, self._kept_by_turns())
            case "longrope":
                return self._divided(self.short)
        return plain

    @property
    def _exponent(self) -> np.ndarray:
        return np.arange(0, self.width, 2, dtype=np.float32) / np.float32(self.width)

    def _divided(self, by: tuple[float, ...]) -> np.ndarray:
        return np.float32(1.0) / (
            np.asarray(by, np.float32) * np.float32(self.theta) ** self._exponent
        )

    def _mixed(self, plain: np.ndarray, kept: np.ndarray) -> np.ndarray:
        """The share `kept` [d / 2] of each wave as it is, the rest stretched by the factor."""
        return (1 - kept) * plain / np.float32(self.factor) + kept * plain

    def _kept_by_wavelength(self, plain: np.ndarray) -> np.ndarray:
        turns = np.float32(self.original) * plain / np.float32(2.0 * math.pi)
        return np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0).astype(np.float32)

    def _kept_by_turns(self) -> np.ndarray:
        first, last = self._wave_of(self.fast), self._wave_of(self.slow)
        if self.truncate:
            first, last = math.floor(first), math.ceil(last)
        first, last = max(first, 0), min(last, self.width - 1)
        if first == last:
            last += 1e-3
        wave = np.arange(self.width // 2, dtype=np.float32)
        return 1 - np.clip((wave - first) / (last - first), 0.0, 1.0).astype(np.float32)

    def _wave_of(self, turns: float) -> float:
        """The (fractional) number of the wave that turns so often within `original`."""
        ratio = self.original / (turns * 2.0 * math.pi)
        return self.width * math.log(ratio) / (2.0 * math.log(self.theta))

    def angles(self, position: jax.Array, length: jax.Array | int) -> jax.Array:
        """Rotation [..., d / 2] of each position; `length`, broadcast to it, counts the tokens
        that the row held when the position was rotated and matters to the dynamic and longrope
        kinds only.
        """
        turned = position[..., None].astype(jnp.float32)
        if self.kind == "longrope":
            beyond = jnp.asarray(length)[..., None] > self.original
            return turned * jnp.where(beyond, self._divided(self.long), self.frequencies())
        if self.kind != "dynamic":
            return turned * self.frequencies()
        longer = jnp.maximum(jnp.asarray(length, jnp.float32), self.original)
        growth = self.factor * longer / self.original - (self.factor - 1.0)
        base = self.theta * growth ** (self.width / (self.width - 2))
        return turned * base[..., None] ** -self._exponent


def angles_of(
    ropes: Sequence[Rope | None], position: jax.Array, length: jax.Array | int
) -> list[jax.Array | None]:
    """`Rope.angles` of each layer, made once for all that rotate alike; None: not rotated."""
    made: dict[Rope | None, jax.Array] = {
        rope: rope.angles(position, length) for rope in dict.fromkeys(ropes) if rope
    }
    return [made.get(rope) for rope in ropes]


def rotate(x: jax.Array, angles: jax.Array, scale: float = 1.0) -> jax.Array:
    """Rotates x [B, H, T, d] by angles [B, T, r / 2], times `scale`.

    Of each head the first r numbers are rotated, whose halves are the pairs' two sides; what is
    behind them, with partial rotation, stays as it is.
    """
    cos, sin = scale * jnp.cos(angles)[:, None], scale * jnp.sin(angles)[:, None]
    pairs = angles.shape[-1]
    rotated, kept = x[..., : 2 * pairs], x[..., 2 * pairs :]
    first, second = jnp.split(rotated.astype(jnp.float32), 2, axis=-1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    made = jnp.concatenate(turned, axis=-1).astype(x.dtype)
    return jnp.concatenate([made, kept], axis=-1) if kept.shape[-1] else made
