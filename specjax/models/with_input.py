"""Encoder-decoder models that read audio or images, whose encoder a drafter may borrow.

A drafter with the encoder of its target needs only the decoder: it reads the states that the target
has computed (`ModelInfo.borrows_encoder`). In training such a decoder reads stored states as its
prompts.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Hashable
from typing import Any, ClassVar, Generic, Self, TypeVar

import jax
import jax.numpy as jnp

from specjax.models.base import Params
from specjax.models.encoder_decoder import EncoderDecoder, EncoderDecoderModule
from specjax.models.info import EncoderStates, ForcedToken, Input, ModelInfo
from specjax.models.layers import apply

OWN, BORROWED, NONE = "own", "borrowed", "none"
"""Encoders of a model: one of its own, its target's, or none: its prompts are encoder states."""

PREFIX = "encoder"
"""Prefix of the names of encoder parameters, which a drafter may borrow."""


@dataclasses.dataclass(frozen=True)
class InputConfig:
    """Shape of a model that reads audio or images; its decoder's is another base class."""

    d_model: int
    dtype: Any = jnp.float32  # of the arithmetic
    encoder_use: str = dataclasses.field(default=OWN, kw_only=True)
    # Tokens after the start token: languages, a task, no timestamps.
    forced: tuple[ForcedToken, ...] = dataclasses.field(default=(), kw_only=True)

    @property
    def input(self) -> Input:
        """Shape of the prompts."""
        raise NotImplementedError

    @property
    def encoder_shape(self) -> Hashable:
        """All that the encoder's states depend on but its weights."""
        raise NotImplementedError

    @property
    def encoder_width(self) -> int:
        """Width of the encoder's states."""
        return self.d_model

    @property
    def encoder_states(self) -> EncoderStates:
        """Shape of the encoder's states as prompts."""
        given = self.input
        fewest = given.count_states(given.fewest)
        return EncoderStates(given.states, self.encoder_width, fewest)


def check_has_encoder(config: InputConfig) -> None:
    """Refuses to export a model without its encoder.

    Raises:
      ValueError: saying why.
    """
    if config.encoder_use != OWN:
        raise ValueError("the model borrows its target's encoder; it cannot be saved without")


Config = TypeVar("Config", bound=InputConfig)


class InputModule(EncoderDecoderModule, Generic[Config]):
    """An encoder of audio or images; `InputModel` implements the model interface.

    A subclass has a decoder from another base class. It implements `read_input`, and sets up an
    encoder where the model has its own.
    """

    config: Config

    def count_states(self, length: jax.Array) -> jax.Array:
        has_none = self.config.encoder_use == NONE
        return length if has_none else self.config.input.count_states(length)

    def encode(self, source: jax.Array, length: jax.Array, deterministic: bool = True) -> jax.Array:
        if self.config.encoder_use == OWN:
            return self.read_input(source, length, deterministic)
        return source.astype(self.config.dtype)  # encoder states


@dataclasses.dataclass(frozen=True)
class InputModel(EncoderDecoder):
    """A model that reads audio or images (`models.base`); its decoder is of another base class."""

    config: Any
    module_class: ClassVar[type[InputModule]]

    @property
    def module(self) -> InputModule:
        return self.module_class(self.config)

    @property
    def info(self) -> ModelInfo:
        c = self.config
        return dataclasses.replace(
            super().info,
            input=c.encoder_states if c.encoder_use == NONE else c.input,
            borrows_encoder=c.encoder_use == BORROWED,
            forced=c.forced,
        )

    def init(self, key: jax.Array) -> Params:
        """Initializes float32 parameters."""
        given = self.config.input
        prompt = jax.ShapeDtypeStruct((1, given.count, given.width), jnp.float32)
        ids = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((1,), (1, 1)))
        params = self.with_encoder(OWN).module.lazy_init(key, prompt, *ids)["params"]
        return params if self.config.encoder_use == OWN else drop_encoder(params)

    def with_encoder(self, use: str) -> Self:
        """The model with its own encoder, its target's, or none (`OWN`, `BORROWED`, `NONE`)."""
        return dataclasses.replace(self, config=dataclasses.replace(self.config, encoder_use=use))


@functools.partial(jax.jit, static_argnames="model")
def compute_encoder_states(
    model: InputModel, params: Params, source: jax.Array, length: jax.Array | None = None
) -> jax.Array:
    """Computes final encoder states [B, S, D] of audio or images [B, P, M].

    `length` [B] is how much of each row is not padding; None: all of it.
    """
    if length is None:
        length = jnp.full(len(source), source.shape[1])
    return apply(model.module, "encode", params, source, length)


def drop_encoder(params: Params) -> Params:
    """Removes the encoder's parameters, for a model that borrows its target's encoder."""
    return {name: part for name, part in params.items() if not name.startswith(PREFIX)}


def select_encoder(params: Params) -> Params:
    """Returns the encoder's parameters."""
    return {name: part for name, part in params.items() if name.startswith(PREFIX)}
