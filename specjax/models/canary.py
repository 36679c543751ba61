"""Canary: BART's decoder with sinusoidal positions after a Fast Conformer.

Sekoyan et al., "Canary-1B-v2 & Parakeet-TDT-0.6B-v3: Efficient and High-Performance Models for
Multilingual ASR and AST" (2025). A text begins with the languages of the audio and of the text
(`hf.speech_prompts`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

import jax

from specjax.models.bart import Bart, BartConfig, DecoderStack
from specjax.models.conformer import (
    ConformerConfig,
    ConformerLayer,
    Subsampling,
    embed_distances,
)
from specjax.models.info import Spectrogram
from specjax.models.with_input import OWN, InputConfig, InputModel, InputModule


@dataclasses.dataclass(frozen=True)
class CanaryConfig(InputConfig, BartConfig):
    """Shape of a Canary; that of its encoder's `num_layers` layers is in `conformer`."""

    conformer: ConformerConfig = dataclasses.field(kw_only=True)

    @property
    def input(self) -> Spectrogram:
        return self.conformer.input

    @property
    def encoder_shape(self) -> Hashable:
        return self.num_layers, self.encoder

    @property
    def encoder(self) -> ConformerConfig:
        """The encoder's shape with the dtype of this one."""
        return dataclasses.replace(self.conformer, dtype=self.dtype)


class CanaryModule(InputModule[CanaryConfig], DecoderStack[CanaryConfig]):
    """Parameters and layers; `Canary` implements the model interface."""

    def setup(self) -> None:
        super().setup()
        c = self.config
        if c.encoder_use == OWN:
            self.encoder_entrance = Subsampling(c.encoder)
            self.encoder = [ConformerLayer(c.encoder) for _ in range(c.num_layers)]

    def read_input(self, source: jax.Array, length: jax.Array, deterministic: bool) -> jax.Array:
        x, states = self.encoder_entrance(source, length), self.count_states(length)
        distances = embed_distances(x.shape[1], self.config.d_model, x.dtype)
        for layer in self.encoder:
            x = layer(x, distances, states)
        return x


@dataclasses.dataclass(frozen=True)
class Canary(InputModel, Bart):
    """A Canary model (`models.base`)."""

    config: CanaryConfig
    module_class = CanaryModule
