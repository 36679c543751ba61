"""Alternating updates: several residual streams, of which each layer computes one (Gemma 3n).

Baykal et al. 2023, "Alternating Updates for Efficient Transformers", algorithm 1: all streams are
predicted from all, the layer runs on one of them, and all are corrected by how far its output is
from that stream's prediction. In Gemma 3n the coefficients depend on the token.

Dimension letters as in `models.base`; R streams lie side by side in states of width R * D.
"""

from __future__ import annotations

import dataclasses

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float

from specjax.models.layers import Dense
from specjax.models.norms import RMSNorm

LEAST_SQUARE = 1e-5
"""Lower bound of a stream's mean square where it is scaled to another's."""


@dataclasses.dataclass(frozen=True)
class AltUp:
    """Shape of residual streams."""

    streams: int  # R
    active: int = 0  # the one that layers run on
    scaled: bool = True  # layer inputs are gated by the corrected active stream times a scale


class Streams(nn.Module):
    """Computes residual streams from embeddings, and one state from residual streams."""

    shape: AltUp
    width: int  # D
    dtype: jnp.dtype = jnp.float32

    def setup(self) -> None:
        others = range(self.shape.streams - 1)
        self.opening = [Dense(self.width, self.dtype) for _ in others]
        self.closing = [Dense(self.width, self.dtype) for _ in others]

    def open_streams(self, x: Float[Array, "... D"]) -> Float[Array, "... RD"]:
        """The streams before the first layer: embeddings x, and projections of them."""
        projected = (match_magnitude(project(x), x) for project in self.opening)
        return jnp.concatenate([x, *projected], axis=-1)

    def merge_streams(self, x: Float[Array, "... RD"]) -> Float[Array, "... D"]:
        """The mean of projected streams; a state that is merged already stays as it is."""
        if x.shape[-1] == self.width:
            return x
        first, *others = jnp.split(x, self.shape.streams, axis=-1)
        both = zip(self.closing, others, strict=True)
        merged = [first, *(match_magnitude(project(one), first) for project, one in both)]
        return jnp.mean(jnp.stack(merged), axis=0)


def match_magnitude(x: Float[Array, "... D"], like: Float[Array, "... D"]) -> Float[Array, "... D"]:
    """Scales x [..., D] to the root mean square of `like` [..., D]."""
    theirs, ours = (
        jnp.mean(jnp.square(one.astype(jnp.float32)), axis=-1, keepdims=True) for one in (like, x)
    )
    return (x * jnp.sqrt(theirs / jnp.maximum(ours, LEAST_SQUARE))).astype(x.dtype)


class StreamUpdate(nn.Module):
    """Predicts all streams before a layer, and corrects them by its output."""

    shape: AltUp
    width: int  # D
    eps: float
    dtype: jnp.dtype = jnp.float32

    def setup(self) -> None:
        count = self.shape.streams
        self.router_norm = RMSNorm(self.eps)
        self.router = Dense(count, self.dtype)
        self.prediction = Dense(count * count, self.dtype)
        self.correction = Dense(count, self.dtype)
        self.scale = self.param("scale", nn.initializers.ones, (self.width,), jnp.float32)

    def route(self, x: Float[Array, "B T D"]) -> Float[Array, "B T R"]:
        """What the coefficients are computed from, of a state of the active stream."""
        routed = self.router(self.router_norm(x) / self.width)
        return jnp.tanh(routed.astype(jnp.float32)).astype(x.dtype)

    def predict(self, x: Float[Array, "B T RD"]) -> Float[Array, "B T R D"]:
        """Each stream with a linear combination of all streams added."""
        count = self.shape.streams
        streams = x.reshape(*x.shape[:-1], count, self.width)
        coefficients = self.prediction(self.route(streams[..., self.shape.active, :]))
        coefficients = coefficients.reshape(*x.shape[:-1], count, count)
        return streams + jnp.einsum("btrs,btsd->btrd", coefficients, streams)

    def correct(
        self, predicted: Float[Array, "B T R D"], output: Float[Array, "B T D"]
    ) -> Float[Array, "B T R D"]:
        """Each stream with a share of the active one's error added, for the layer's `output`."""
        error = output - predicted[..., self.shape.active, :]
        shares = self.correction(self.route(output)) + 1.0
        return predicted + shares[..., None] * error[..., None, :]

    def get_gating_state(self, streams: Float[Array, "B T R D"]) -> Float[Array, "B T D"]:
        """The state of corrected streams that gates layer inputs."""
        active = streams[..., self.shape.active, :]
        return active * self.scale.astype(active.dtype) if self.shape.scaled else active


def add_to_others(
    streams: Float[Array, "B T R D"], added: Float[Array, "B T D"]
) -> Float[Array, "B T R D"]:
    """The streams with the same states added to all but the first."""
    first, others = jnp.split(streams, [1], axis=-2)
    return jnp.concatenate([first, others + added[..., None, :]], axis=-2)
