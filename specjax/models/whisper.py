"""Whisper: BART's decoder after an encoder of log-mel frames.

Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2023), section 2.2.
Two convolutions, the second of stride 2, map frames to the encoder's input; keys have no bias.
Distil-Whisper (Gandhi et al. 2023) keeps a target's encoder, frozen, and few of its decoder layers:
such a drafter can borrow the encoder of its target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from specjax.models.attention import LengthBias, make_text_bias
from specjax.models.audio_convolution import AudioConvolution
from specjax.models.bart import Bart, BartConfig, DecoderStack, EncoderLayer
from specjax.models.info import Frames
from specjax.models.layers import ACTIVATIONS
from specjax.models.norms import LayerNorm
from specjax.models.with_input import OWN, InputConfig, InputModel, InputModule

KERNEL, STRIDE = 3, 2
"""Width of the convolutions in frames, and stride of the second one."""


@dataclasses.dataclass(frozen=True)
class SpeechTokens:
    """Special tokens of speech models, by their names in Hugging Face transformers."""

    languages: tuple[tuple[str, int], ...] = ()  # empty: English only
    tasks: tuple[tuple[str, int], ...] = ()
    no_timestamps: int | None = None  # larger ids are timestamps
    previous: int | None = None  # precedes the text before the audio
    latest_first: int | None = None  # largest index of the first timestamp


@dataclasses.dataclass(frozen=True)
class WhisperConfig(InputConfig, BartConfig):
    """Shape of a Whisper model; `max_positions` are the decoder's."""

    max_positions: int
    key_bias: bool = False
    mels: int = 80  # numbers of a frame
    encoder_positions: int = 1500
    speech: SpeechTokens = SpeechTokens()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.d_model < 4 or self.d_model % 2:
            raise ValueError(
                f"d_model is {self.d_model}; it must be even and at least 4, for the sines and"
                " cosines of positions"
            )

    @property
    def input(self) -> Frames:
        return Frames(STRIDE * self.encoder_positions, self.mels, STRIDE)

    @property
    def encoder_shape(self) -> Hashable:
        layers = self.num_layers, self.d_model, self.encoder_ff, self.encoder_heads
        return *layers, self.activation, self.eps, self.input, self.dtype


class AudioInput(nn.Module):
    """Maps frames [B, P, M] to encoder inputs [B, S, D] with positions, S = P / 2."""

    config: WhisperConfig

    def setup(self) -> None:
        c = self.config
        self.conv1 = AudioConvolution(c.d_model, KERNEL, 1, KERNEL // 2, dtype=c.dtype)
        self.conv2 = AudioConvolution(c.d_model, KERNEL, STRIDE, KERNEL // 2, dtype=c.dtype)
        shape = c.encoder_positions, c.d_model
        self.position_embedding = self.param(
            "position_embedding", _init_sinusoids, shape, jnp.float32
        )

    def __call__(self, frames: jax.Array) -> jax.Array:
        gelu = ACTIVATIONS["gelu"]
        x = gelu(self.conv2(gelu(self.conv1(frames))))
        return x + self.position_embedding.astype(x.dtype)


class WhisperModule(InputModule[WhisperConfig], DecoderStack[WhisperConfig]):
    """Parameters and layers; `Whisper` implements the model interface."""

    def setup(self) -> None:
        super().setup()
        c = self.config
        if c.encoder_use == OWN:
            self.encoder_entrance = AudioInput(c)
            self.encoder = [EncoderLayer(c) for _ in range(c.num_layers)]
            self.encoder_norm = LayerNorm(c.eps)

    def read_input(self, source: jax.Array, length: jax.Array, deterministic: bool) -> jax.Array:
        x = self.drop(self.encoder_entrance(source), deterministic=deterministic)
        bias = make_text_bias(LengthBias(self.count_states(length)), x.shape[1], x.shape[1])
        biases = [bias] * len(self.encoder)
        return self.encoder_norm(self.run_encoder(x, biases, deterministic))


@dataclasses.dataclass(frozen=True)
class Whisper(InputModel, Bart):
    """A Whisper model (`models.base`)."""

    config: WhisperConfig
    module_class = WhisperModule


def _init_sinusoids(key: jax.Array, shape: tuple[int, int], dtype: jnp.dtype) -> jax.Array:
    """Initializes positions [S, D] to sinusoids with wavelengths up to a factor of 10,000.

    Checkpoints store them.
    """
    size, width = shape
    half = width // 2
    speed = np.exp(-np.log(10_000) * np.arange(half) / (half - 1))
    angle = np.arange(size)[:, None] * speed
    return jnp.asarray(np.concatenate([np.sin(angle), np.cos(angle)], axis=1), dtype)
