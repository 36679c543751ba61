"""The T5 family (T5 v1.0 and v1.1, Flan-T5, mT5, umT5, Switch Transformers) with explicit caches.

Raffel et al., "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer"
(2020). Differences from a textbook transformer: RMS norms before each sublayer, no biases, scores
without a 1/sqrt(d) factor, and one table of relative position biases per stack, shared by its
layers; in umT5 (Chung et al. 2023, "UniMax") each layer has a table of its own. Some layers of
Switch Transformers (Fedus et al. 2022) have a mixture of experts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from specjax.models import encoder_decoder
from specjax.models.attention import AnyBias, is_whole, make_call_bias, make_tree_bias
from specjax.models.base import Params
from specjax.models.encoder_decoder import EncoderDecoder, EncoderDecoderModule
from specjax.models.experts import Experts, Mixture
from specjax.models.layers import (
    MASKED,
    Dense,
    FeedForward,
    Tree,
    compute_tied_logits,
    make_key_mask,
)
from specjax.models.norms import RMSNorm
from specjax.models.positions import RelativeBias, RelativeBiasOf, compute_tree_bias


@dataclasses.dataclass(frozen=True)
class T5Config:
    """Shape of a T5 model, with the field names of Hugging Face's `config.json`."""

    vocab_size: int
    d_model: int
    d_kv: int
    d_ff: int
    num_heads: int
    num_layers: int
    num_decoder_layers: int
    activation: str = "gelu_new"
    gated: bool = True
    tied: bool = False  # the output layer is the embedding table
    scale_outputs: bool = False  # decoder output times d_model ** -0.5 before the output layer
    buckets: int = 32
    max_distance: int = 128
    layer_tables: bool = False  # each layer has its own relative position biases (umT5)
    eps: float = 1e-6
    dropout: float = 0.0
    mixtures: tuple[Mixture | None, ...] = ()  # of the decoder's layers; empty: none has one
    encoder_mixtures: tuple[Mixture | None, ...] = ()  # of the encoder's layers
    family: str = "t5"  # Hugging Face's `model_type`
    start_token: int = 0
    eos: tuple[int, ...] = (1,)
    pad: int = 0
    dtype: Any = jnp.float32  # of the arithmetic; logits are always float32
    remat: bool = False  # training recomputes layers for the gradient, to save memory


Config = TypeVar("Config", bound=T5Config)


class Attention(encoder_decoder.Attention):
    """Attention with projections without biases and unscaled scores."""

    def setup(self) -> None:
        c = self.config
        inner = c.num_heads * c.d_kv
        # T5 folds the 1/sqrt(d_kv) of the scores into the initial query weights.
        self.q = Dense(inner, c.dtype, 1.0 / c.d_kv)
        self.k = Dense(inner, c.dtype)
        self.v = Dense(inner, c.dtype)
        self.o = Dense(c.d_model, c.dtype)

    @property
    def heads(self) -> int:
        return self.config.num_heads


def _make_feed_forward(config: T5Config, mixture: Mixture | None) -> Experts | FeedForward:
    c = config
    if mixture is not None:
        return Experts(mixture, c.activation, c.dtype)
    return FeedForward(c.d_ff, c.activation, c.gated, c.dtype, c.dropout)


class EncoderLayer(encoder_decoder.EncoderLayer):
    mixture: Mixture | None = None

    def setup(self) -> None:
        c = self.config
        self.self_norm, self.self_attention = RMSNorm(c.eps), Attention(c)
        self.ff_norm, self.ff = RMSNorm(c.eps), _make_feed_forward(c, self.mixture)
        self.drop = nn.Dropout(c.dropout)


class DecoderLayer(encoder_decoder.DecoderLayer):
    mixture: Mixture | None = None

    def setup(self) -> None:
        c = self.config
        self.self_norm, self.self_attention = RMSNorm(c.eps), Attention(c)
        self.cross_norm, self.cross_attention = RMSNorm(c.eps), Attention(c)
        self.ff_norm, self.ff = RMSNorm(c.eps), _make_feed_forward(c, self.mixture)
        self.drop = nn.Dropout(c.dropout)


class DecoderStack(EncoderDecoderModule, Generic[Config]):
    """Embedding, decoder layers and output layer."""

    config: Config

    def setup(self) -> None:
        c = self.config
        init = nn.initializers.normal(1.0)
        self.embedding = self.param("embedding", init, (c.vocab_size, c.d_model), jnp.float32)
        self.decoder = [
            DecoderLayer(c, mixture) for mixture in c.mixtures or (None,) * c.num_decoder_layers
        ]
        self.decoder_bias = self.make_bias_tables(c.num_decoder_layers, bidirectional=False)
        self.decoder_norm = RMSNorm(c.eps)
        self.drop = nn.Dropout(c.dropout)
        if not c.tied:
            self.head = Dense(c.vocab_size, c.dtype)

    def enter(self, tokens: jax.Array, position: jax.Array | None = None) -> jax.Array:
        """Embeds tokens into input states [B, T, D], without positions."""
        return self.embedding[tokens].astype(self.config.dtype)

    def make_bias_tables(
        self, layers: int, bidirectional: bool
    ) -> RelativeBias | list[RelativeBias]:
        """Creates a stack's table of relative position biases, or one per layer."""
        c = self.config

        def one() -> RelativeBias:
            return RelativeBias(c.num_heads, c.buckets, c.max_distance, bidirectional)

        return [one() for _ in range(layers)] if c.layer_tables else one()

    def make_layer_biases(
        self, tables: Any, layers: Sequence[nn.Module], build: Callable[[Any], Any]
    ) -> list[Any]:
        """Builds the bias of each layer from its table or the stack's."""
        if self.config.layer_tables:
            return [build(table) for table in tables]
        return [build(tables)] * len(layers)

    def make_target_biases(self, size: int) -> list[AnyBias]:
        if not is_whole(size, size):
            start = jnp.zeros(1, jnp.int32)
            tables = self.compute_distance_bias(size)
            return self.make_layer_biases(tables, self.decoder, lambda t: RelativeBiasOf(t, start))
        position = np.arange(size)
        distance = position[None, :] - position[:, None]
        mask = np.where(distance > 0, MASKED, 0.0)
        return self.make_layer_biases(
            self.decoder_bias, self.decoder, lambda table: (table(distance) + mask)[None]
        )

    def select_output(self, x: jax.Array, deterministic: bool) -> jax.Array:
        return self.drop(x, deterministic=deterministic)

    def apply_final_norm(self, x: jax.Array) -> jax.Array:
        return self.decoder_norm(x)

    def apply_lm_head(self, x: jax.Array, training: bool = False) -> jax.Array:
        c = self.config
        if c.scale_outputs:
            x = x * c.d_model**-0.5
        if c.tied:
            return compute_tied_logits(x, self.embedding, training)
        return self.head(x).astype(jnp.float32)

    def compute_distance_bias(self, capacity: int) -> jax.Array | list[jax.Array]:
        """Computes bias and causal mask by distance, [H, 2 * capacity] (see `compute_bias_rows`).

        A list with one per layer if layers have their own tables.
        """
        distance = np.arange(-(capacity - 1), capacity + 1)
        mask = np.where(distance > 0, MASKED, 0.0)
        tables = self.decoder_bias
        if isinstance(tables, RelativeBias):
            return tables(distance) + mask
        return [table(distance) + mask for table in tables]

    def make_step_biases(
        self, data: Mapping[str, Any], start: jax.Array, fed: int, tree: Tree | None
    ) -> list[AnyBias]:
        def one(table: jax.Array) -> AnyBias:
            if tree is not None:
                return make_tree_bias(compute_tree_bias(table, tree, start), start)
            return make_call_bias(RelativeBiasOf(table, start), start, fed, table.shape[1] // 2)

        return self.make_layer_biases(data["bias"], self.decoder, one)


class T5Module(DecoderStack[Config]):
    """Parameters and layers; `T5` implements the model interface."""

    encoder_layer: ClassVar[type[EncoderLayer]] = EncoderLayer

    def setup(self) -> None:
        super().setup()
        c = self.config
        self.encoder = [
            self.encoder_layer(c, mixture)
            for mixture in c.encoder_mixtures or (None,) * c.num_layers
        ]
        self.encoder_bias = self.make_bias_tables(c.num_layers, bidirectional=True)
        self.encoder_norm = RMSNorm(c.eps)

    def make_source_biases(self, length: jax.Array, size: int) -> list[Any]:
        """Builds the encoder layers' biases: relative positions, keys below `length` [B]."""
        if not is_whole(size, size):
            distance = np.arange(-(size - 1), size + 1)
            start = jnp.zeros(1, jnp.int32)
            return self.make_layer_biases(
                self.encoder_bias,
                self.encoder,
                lambda table: RelativeBiasOf(table(distance), start, length),
            )
        position = np.arange(size)
        distance = position[None, :] - position[:, None]
        mask = make_key_mask(length, size)
        return self.make_layer_biases(
            self.encoder_bias, self.encoder, lambda table: table(distance)[None] + mask
        )

    def encode(self, source: jax.Array, length: jax.Array, deterministic: bool = True) -> jax.Array:
        """Computes final-normed encoder states [B, S, D] of source [B, S]."""
        biases = self.make_source_biases(length, source.shape[1])
        x = self.drop(self.enter(source), deterministic=deterministic)
        x = self.run_encoder(x, biases, deterministic)
        return self.drop(self.encoder_norm(x), deterministic=deterministic)


@dataclasses.dataclass(frozen=True)
class T5(EncoderDecoder):
    """A model of the T5 family (`models.base`)."""

    config: T5Config

    @property
    def module(self) -> EncoderDecoderModule:
        return T5Module(self.config)

    def prepare(self, params: Params, capacity: int) -> dict[str, Any]:
        """Computes the bias of all relative positions."""
        bias = self.module.apply({"params": params}, capacity, method="compute_distance_bias")
        return {"bias": bias}
