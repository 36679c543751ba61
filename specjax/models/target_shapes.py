"""Shapes of drafters on the target's features, and what they have from a target.

A published checkpoint may leave layers that are read, tables and the end of a text to its target.
"""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np

from specjax.models import t5
from specjax.models.base import LanguageModel, Params
from specjax.models.causal_config import CausalConfig

FROM_TARGET = {"embedding": "embedding", "head": "head", "target_norm": "final_norm"}
"""Parameters that a checkpoint may leave to the target, and their names there."""

USUAL = 3
"""Layers that a published drafter reads which does not say."""


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
    headed: bool = True  # False: it has no output layer of its own, but the target's
    tied: bool = False  # the output layer is the embedding table
    normed: bool = False  # it reads the target's states behind their final norm
    target_eps: float | None = None  # of that norm; None: the drafter's
    logit_multiplier: float = 1.0
    logit_limit: float = 0.0  # logits are soft-capped at it; 0: they are not

    @property
    def read(self) -> int:
        """F, known before the layers are."""
        return len(self.features) or USUAL

    @property
    def embedding_size(self) -> int:
        """Numbers of a token's embedding."""
        return self.embedding_width or self.target_width

    @property
    def tied_head(self) -> bool:
        """Whether its output layer is the embedding, as that of such a target is."""
        return self.tied and not self.headed


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnT5Config(OnTarget, t5.T5Config):
    """Shape of a drafter for a target with an encoder: layers like T5's."""

    @property
    def ff_bias(self) -> bool:
        """Whether feed-forward networks have biases; T5's have none, nor has its attention."""
        return False

    @property
    def of_cross(self) -> OnT5Config:
        """The shape of its cross-attention, which reads the target's heads."""
        return dataclasses.replace(self, num_heads=self.cross_heads, d_kv=self.cross_width)

    @property
    def layers(self) -> int:
        return self.num_decoder_layers


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnCausalConfig(OnTarget, CausalConfig):
    """Shape of a drafter for a decoder-only target."""

    start_token: int | None = None
    target_name: str = ""  # where the target lies, in the word of who published the drafter

    @property
    def layers(self) -> int:
        return self.num_layers


Shape = OnT5Config | OnCausalConfig


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


def adapt_shape(shape: Shape, target: LanguageModel) -> Shape:
    """A drafter's shape with what its checkpoint leaves to the target that it meets.

    Raises:
      ValueError: when this target has no such thing.
    """
    features = shape.features or usual_layers(target.info.depth)
    found = {"features": features, "eos": shape.eos or target.info.eos}
    if not shape.embedded:
        found["vocab_size"] = target.config.vocab_size
    if not shape.headed:
        found["tied"] = target.config.tied
    return dataclasses.replace(shape, **found)


def complete_params(shape: Shape, params: Params, target: Params) -> Params:
    """A drafter's parameters with those that its checkpoint leaves to the target.

    Raises:
      ValueError: when it drafts ids that the target does not have.
    """
    params = {"ids": jnp.arange(shape.draft_vocab, dtype=jnp.int32)} | params
    drafted = np.asarray(params["ids"])
    if drafted.min() < 0 or drafted.max() >= shape.vocab_size:
        wrong = drafted.min() if drafted.min() < 0 else drafted.max()
        raise ValueError(f"it drafts the id {wrong}; ids must be from 0 to {shape.vocab_size - 1}")
    return params | {name: target[FROM_TARGET[name]] for name in list_target_params(shape)}


def list_target_params(shape: Shape) -> tuple[str, ...]:
    """Names of parameters that a drafter's checkpoint leaves to the target."""
    left = {
        "embedding": not shape.embedded,
        "head": not (shape.headed or shape.tied),
        "target_norm": shape.normed,
    }
    return tuple(name for name, is_left in left.items() if is_left)
