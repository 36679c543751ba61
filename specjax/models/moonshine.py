"""Moonshine: BART's layers with rotary positions, after convolutions over samples of audio.

Jeffries et al., "Moonshine: Speech Recognition for Live Transcription and Voice Commands" (2024),
section 3.1. Audio has any length, and the encoder reads no padding: it costs as much as the audio
is long. The first convolution's stride is a frame of 64 samples, and its kernel 127 of the samples
of two frames; a norm over all that it computes follows. Only the decoder's feed-forward networks
are gated, and norms have no bias.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.attention import LengthBias, make_text_bias
from specjax.models.audio_convolution import AudioConvolution, convolve
from specjax.models.bart import Bart, BartConfig, DecoderStack, EncoderLayer, make_norm
from specjax.models.info import Samples
from specjax.models.layers import ACTIVATIONS
from specjax.models.positions import compute_angles
from specjax.models.with_input import OWN, InputConfig, InputModel, InputModule

FRAME, TAPS = 64, 127
"""Samples that the first convolution moves by, and that it sees."""

CONVOLUTIONS = ((2, 1), (7, 3), (3, 2))
"""Width and stride of each convolution, the first over frames."""

LONGEST = 7500
"""Most frames of a prompt: 30 seconds, the longest audio of the training."""

GROUP_EPS = 1e-5


@dataclasses.dataclass(frozen=True)
class MoonshineConfig(InputConfig, BartConfig):
    """Shape of a Moonshine model."""

    context: int = dataclasses.field(default=512, kw_only=True)  # trained; longer rows are allowed

    @property
    def gated(self) -> bool:
        return True

    @property
    def input(self) -> Samples:
        return Samples(LONGEST, FRAME, CONVOLUTIONS)

    @property
    def encoder_shape(self) -> Hashable:
        layers = self.num_layers, self.d_model, self.encoder_ff, self.encoder_heads, self.d_head
        parts = self.encoder_activation, self.rope, self.key_bias, self.eps, self.dtype
        return *layers, *parts


class FrameConvolution(nn.Module):
    """The first convolution, over frames [B, P, 64]: [B, P - 1, D]."""

    features: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, frames: jax.Array) -> jax.Array:
        init = nn.initializers.variance_scaling(1.0, "fan_in", "normal")
        kernel = self.param("kernel", init, (TAPS, 1, self.features), jnp.float32)
        two = jnp.pad(kernel[:, 0], ((0, 2 * FRAME - TAPS), (0, 0)))
        return convolve(frames, two.reshape(2, FRAME, self.features), 1, 0, self.dtype)


class SampleInput(nn.Module):
    """Maps frames [B, P, 64] of `length` [B] to encoder inputs [B, S, D]."""

    config: MoonshineConfig

    def setup(self) -> None:
        c, (_, *later) = self.config, CONVOLUTIONS
        self.conv1 = FrameConvolution(c.d_model, c.dtype)
        # Squares of the mean and the mean of squares would differ by too little in float32.
        self.norm = nn.GroupNorm(1, epsilon=GROUP_EPS, use_fast_variance=False, dtype=jnp.float32)
        self.conv2, self.conv3 = (
            AudioConvolution(width, *sizes, dtype=c.dtype)
            for width, sizes in zip((2 * c.d_model, c.d_model), later, strict=True)
        )

    def __call__(self, frames: jax.Array, length: jax.Array) -> jax.Array:
        x = jnp.tanh(self.conv1(frames))
        inside = jnp.arange(x.shape[1]) < length[:, None] - 1
        x = self.norm(x, mask=jnp.broadcast_to(inside[..., None], x.shape))
        gelu = ACTIVATIONS["gelu"]
        return gelu(self.conv3(gelu(self.conv2(x))))


class MoonshineModule(InputModule[MoonshineConfig], DecoderStack[MoonshineConfig]):
    """Parameters and layers; `Moonshine` implements the model interface."""

    def setup(self) -> None:
        super().setup()
        c = self.config
        if c.encoder_use == OWN:
            self.encoder_entrance = SampleInput(c)
            self.encoder = [EncoderLayer(c) for _ in range(c.num_layers)]
            self.encoder_norm = make_norm(c)

    def read_input(self, source: jax.Array, length: jax.Array, deterministic: bool) -> jax.Array:
        x = self.drop(self.encoder_entrance(source, length), deterministic=deterministic)
        states, size = self.count_states(length), x.shape[1]
        biases = [make_text_bias(LengthBias(states), size, size)] * len(self.encoder)
        ropes = [self.config.rope] * len(self.encoder)
        angles = compute_angles(ropes, jnp.arange(size)[None], states[:, None])
        return self.encoder_norm(self.run_encoder(x, biases, deterministic, angles))


@dataclasses.dataclass(frozen=True)
class Moonshine(InputModel, Bart):
    """A Moonshine model (`models.base`)."""

    config: MoonshineConfig
    module_class = MoonshineModule
