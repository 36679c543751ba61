"""What a feature drafter's shape says of its target, and what it leaves to it.

`models.eagle` computes with these; letters as there.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from specjax.models import causal, t5
from specjax.models.base import LanguageModel, Params

USUAL = 3
"""Layers that a published drafter reads which does not say."""


def usual_layers(depth: int) -> tuple[int, ...]:
    """Those of a target with so many layers: published drafters that name none read these.

    Li et al. (EAGLE-3) keep the states that enter the target's layers 2, n // 2 and n - 3, counted
    from 0: those after so many layers.

    Raises:
      ValueError: where they are not three.
    """
    layers = 2, depth // 2, depth - 3
    if not layers[0] < layers[1] < layers[2]:
        raise ValueError(
            f"the drafter does not say which layers of the target it reads; 2, n/2 and n-3 are"
            f" three of at least 7, and this one has {depth}"
        )
    return layers


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnTarget:
    """What a drafter's shape says of the target."""

    target_width: int  # E
    features: tuple[int, ...]  # target layers (1-based) whose states it reads; (): `usual_layers`
    draft_vocab: int  # U; `vocab_size` is the target's
    cross: int = 0  # target layer (1-based) whose cross-attention cache it reads; 0: there is none
    cross_heads: int = 0  # of the target
    cross_width: int = 0  # of each of these heads
    embedding_width: int | None = None  # None: the target's
    embedded: bool = True  # False: its checkpoint has no embedding, and it reads the target's
    reads_first: bool = True  # False: nothing sees the text's first token, which has no state
    feature_norms: int = 0  # norms over as many equal parts of the target's states side by side
    normed_residual: bool = False  # the residual stream begins behind the norm of the state
    normed_states: bool = False  # what it hands on has gone through its final norm (EAGLE 3.1)

    @property
    def read(self) -> int:
        """F, known before the layers are."""
        return len(self.features) or USUAL


@dataclasses.dataclass(frozen=True, kw_only=True)
class EagleT5Config(OnTarget, t5.T5Config):
    """Shape of a drafter for a T5-like target."""

    @property
    def of_cross(self) -> EagleT5Config:
        """The shape of its cross-attention, which reads the target's heads."""
        return dataclasses.replace(self, num_heads=self.cross_heads, d_kv=self.cross_width)


@dataclasses.dataclass(frozen=True, kw_only=True)
class EagleCausalConfig(OnTarget, causal.CausalConfig):
    """Shape of a drafter for a decoder-only target."""

    start_token: int | None = None
    target_name: str = ""  # where the target lies, in the word of who published the drafter


Shape = EagleT5Config | EagleCausalConfig


def beside(shape: Shape, target: LanguageModel) -> Shape:
    """A drafter's shape with what its checkpoint leaves to the target that it meets.

    Raises:
      ValueError: when this target has no such thing.
    """
    found = {"features": shape.features or usual_layers(target.depth)}
    found["eos"] = shape.eos or target.eos
    if not shape.embedded:
        found["vocab_size"] = target.config.vocab_size
    return dataclasses.replace(shape, **found)


def completed(shape: Shape, params: Params, target: Params) -> Params:
    """A drafter's parameters with those that its checkpoint leaves to the target.

    Raises:
      ValueError: when it drafts ids that the target does not have.
    """
    params = {"ids": jnp.arange(shape.draft_vocab, dtype=jnp.int32)} | params
    drafted = np.asarray(params["ids"])
    if drafted.min() < 0 or drafted.max() >= shape.vocab_size:
        wrong = drafted.min() if drafted.min() < 0 else drafted.max()
        raise ValueError(f"it drafts the id {wrong}; ids must be from 0 to {shape.vocab_size - 1}")
    return params if shape.embedded else params | {"embedding": target["embedding"]}
