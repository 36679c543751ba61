"""Rotary position embeddings and their scalings.

Su et al., "RoFormer" (2021). Scalings for contexts longer than the trained one: linear (positions
divided), dynamic (the base grows with the length, "NTK"), and Llama 3.1's (long waves stretched,
short ones kept).
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

KINDS = ("default", "linear", "dynamic", "llama3")


@dataclasses.dataclass(frozen=True)
class Rope:
    """Frequencies of the rotation; `original` is the context length the scaling starts from."""

    width: int  # of a head
    theta: float = 10_000.0
    kind: str = "default"
    factor: float = 1.0
    original: int = 0
    low: float = 1.0  # llama3: wavelengths above original / low are divided by factor
    high: float = 4.0  # llama3: wavelengths below original / high are kept

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"rope_type is {self.kind!r}; it must be one of {', '.join(KINDS)}")

    def frequencies(self) -> np.ndarray:
        """Radians per position [d / 2] at lengths within the trained context; float32."""
        exponent = np.arange(0, self.width, 2, dtype=np.float32) / np.float32(self.width)
        plain = np.float32(1.0) / np.float32(self.theta) ** exponent
        if self.kind == "linear":
            return plain / np.float32(self.factor)
        return self._stretched(plain) if self.kind == "llama3" else plain

    def _stretched(self, plain: np.ndarray) -> np.ndarray:
        turns = np.float32(self.original) * plain / np.float32(2.0 * math.pi)
        kept = np.clip((turns - self.low) / (self.high - self.low), 0.0, 1.0).astype(np.float32)
        return (1 - kept) * plain / np.float32(self.factor) + kept * plain

    def angles(self, position: jax.Array, length: jax.Array | int) -> jax.Array:
        """Rotation [..., d / 2] of each position; `length`, broadcast to it, counts the tokens
        that the row held when the position was rotated and matters to the dynamic kind only.
        """
        turned = position[..., None].astype(jnp.float32)
        if self.kind != "dynamic":
            return turned * self.frequencies()
        longer = jnp.maximum(jnp.asarray(length, jnp.float32), self.original)
        growth = self.factor * longer / self.original - (self.factor - 1.0)
        base = self.theta * growth ** (self.width / (self.width - 2))
        exponent = np.arange(0, self.width, 2, dtype=np.float32) / np.float32(self.width)
        return turned * base[..., None] ** -exponent


def rotate(x: jax.Array, angles: jax.Array) -> jax.Array:
    """Rotates x [B, H, T, d] by angles [B, T, d / 2]; the halves of d are the pairs' two sides."""
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = (first * cos - second * sin, second * cos + first * sin)
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)
