"""Weights and operations of recurrent layers, whose states do not grow with the text."""

from __future__ import annotations

import dataclasses

from specjax.theory.checks import count


@dataclasses.dataclass(frozen=True)
class RecurrenceShape:
    """A recurrent layer: a short convolution, and one state for each value head."""

    channels: int  # of the convolution
    width: int  # of all value heads, of their gates, and of the output
    taps: int
    state: int  # elements of all heads' states
    update: int  # elements that a token adds to the cache
    rates: int  # weights that make decays, and what else scales an update
    reads: int = 1  # of the state by a token: by its query, under the delta rule by its key too

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            count(field.name, getattr(self, field.name), least=1)

    @property
    def flops(self) -> int:
        """FLOPs of a token besides those of weights: its update is added, and the state read."""
        return 2 * (1 + self.reads) * self.state

    def count_cache_weights(self, d_model: int) -> int:
        """Weights of a layer that make a token's update."""
        return d_model * self.channels + self.channels * self.taps + self.rates

    def count_weights(self, d_model: int) -> int:
        """Weights of a layer: those of updates, the gate and the output."""
        return self.count_cache_weights(d_model) + 2 * d_model * self.width
