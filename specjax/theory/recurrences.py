"""Weights and operations of recurrent layers, whose states do not grow with the text."""

from __future__ import annotations

import dataclasses

from specjax.theory.checks import count


@dataclasses.dataclass(frozen=True)
class RecurrenceShape:
    """A recurrent layer: a short convolution, and one state for each value head.

    Under the delta rule a token also reads the state by its key, and has a rate for each head.
    """

    key_heads: int
    value_heads: int
    d_key: int
    d_value: int
    taps: int
    corrected: bool  # by the delta rule

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            count(field.name, getattr(self, field.name), least=int(field.name != "corrected"))

    @property
    def width(self) -> int:
        """Width of all value heads, of their gates, and of the output."""
        return self.value_heads * self.d_value

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys and values."""
        return 2 * self.key_heads * self.d_key + self.width

    @property
    def state(self) -> int:
        """Elements of all heads' states."""
        return self.width * self.d_key

    @property
    def update(self) -> int:
        """Elements that a token adds to the cache: a key, values, decays and channels."""
        return self.key_heads * self.d_key + self.width + self.value_heads + self.channels

    @property
    def flops(self) -> int:
        """FLOPs of a token besides those of weights: its update is added, and the state read."""
        return (6 if self.corrected else 4) * self.state

    def count_cache_weights(self, d_model: int) -> int:
        """Weights of a layer that make a token's update."""
        heads = self.value_heads * (2 if self.corrected else 1)
        return d_model * (self.channels + heads) + self.channels * self.taps

    def count_weights(self, d_model: int) -> int:
        """Weights of a layer: those of updates, the gate and the output."""
        return self.count_cache_weights(d_model) + 2 * d_model * self.width
