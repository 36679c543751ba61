"""How many experts a call touches: what verification costs in mixtures of experts.

Of E experts a token has k. Where routing is uniform and tokens are routed independently, an expert
is left alone by n tokens with probability (1 - k / E)^n. So a call on more tokens reads more
weights, and its cost v rises with the draft even where memory is the bound; a dense model's does
not. Tokens that go together, as those of a text do, share more experts: the count is an upper bound
in expectation, by Jensen's inequality also where some experts are more popular than others.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from specjax.theory.checks import count


@dataclasses.dataclass(frozen=True)
class ExpertsShape:
    """The experts of a layer; their feed-forward networks have as many matrices as dense ones."""

    experts: int
    chosen: int  # for each token
    d_ff: int  # of each expert

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            count(field.name, getattr(self, field.name), least=1)
        if self.chosen > self.experts:
            raise ValueError(
                f"chosen is {self.chosen}; it must be at most the {self.experts} experts"
            )


def distinct_experts(experts: ArrayLike, chosen: ArrayLike, tokens: ArrayLike) -> np.ndarray:
    """Expected experts [...] that some of `tokens` tokens have: E (1 - (1 - k / E)^n)."""
    all_of_them = count("experts", experts, least=1)
    share = count("chosen", chosen) / all_of_them
    return all_of_them * (1.0 - (1.0 - share) ** count("tokens", tokens))
