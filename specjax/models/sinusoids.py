"""Positions as waves of falling frequency, which nothing is learned of.

Vaswani et al., "Attention Is All You Need" (2017), section 3.5; but sines fill the first half of
the width and cosines the second, as in published code.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

BASE = 10_000.0


@dataclasses.dataclass(frozen=True)
class Sinusoids:
    """Position embeddings of some width.

    The slowest wave of the paper is short of `BASE` times as long as the fastest by one step;
    tensor2tensor's (`to_base`), which fairseq took over, reaches it, and leaves the last column of
    an odd width zero.
    """

    width: int
    to_base: bool = False

    def __post_init__(self) -> None:
        least = 4 if self.to_base else 1
        if self.width < least:
            raise ValueError(f"d_model is {self.width}; these positions need {least} at least")

    @property
    def _waves(self) -> tuple[np.ndarray, np.ndarray]:
        """Radians per position of the sines and of the cosines; float32."""
        sines = self.width // 2 if self.to_base else -(-self.width // 2)
        step = 1.0 / (self.width // 2 - 1) if self.to_base else 2.0 / self.width
        waves = (BASE ** -(np.arange(sines) * step)).astype(np.float32)
        return waves, waves[: self.width // 2]

    def __call__(self, position: jax.Array) -> jax.Array:
        """Embeddings [..., D] float32 of positions [...]."""
        sines, cosines = (position[..., None] * waves for waves in self._waves)
        made = jnp.concatenate([jnp.sin(sines), jnp.cos(cosines)], axis=-1)
        room = [(0, 0)] * (made.ndim - 1) + [(0, self.width - made.shape[-1])]
        return jnp.pad(made, room)
