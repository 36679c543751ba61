"""The shape of decoder-only transformers: `CausalConfig`."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from specjax.models.altup import AltUp
from specjax.models.experts import Mixture
from specjax.models.latent_attention import Latent
from specjax.models.layer_inputs import LayerInputs
from specjax.models.positions import Rope, Temperature
from specjax.models.recurrent_layers import Recurrence


class Heads(NamedTuple):
    """Key and value heads of one layer, and the width of all its heads."""

    kv_heads: int
    width: int
    values_are_keys: bool = False  # as they are before their norm and rotation


@dataclasses.dataclass(frozen=True)
class CausalConfig:
    """Shape of a decoder-only model."""

    family: str  # Hugging Face's `model_type`
    vocab_size: int
    d_model: int
    d_ff: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    d_head: int
    max_positions: int
    rope: Rope | None = None  # None: learned positions, or slopes
    slopes: tuple[float, ...] = ()  # of each head: ALiBi's biases by distance; empty: none
    ropes: tuple[Rope | None, ...] = ()  # of each layer, None: not rotated; empty: `rope`
    heads: tuple[Heads, ...] = ()  # of each layer; empty: alike in all layers
    values_are_keys: bool = False  # values have no projection of their own (Gemma 4)
    shared_caches: tuple[int, ...] = ()  # of the last layers: the layer whose cache each reads
    reads_cache: bool = False  # keys and values are those of an earlier layer
    d_ffs: tuple[int, ...] = ()  # of each layer, 0: no feed-forward; empty: `d_ff` in all layers
    mixers: tuple[bool, ...] = ()  # whether each layer has attention or a recurrence; empty: all
    has_mixer: bool = True  # attention or a recurrence
    layer_inputs: LayerInputs | None = None  # embeddings that each layer reads (Gemma 3n)
    position_offset: int = 0  # unused rows before the first learned position
    mixtures: tuple[Mixture | None, ...] = ()  # experts of each layer; None, or empty: none
    recurrences: tuple[Recurrence | None, ...] = ()  # of each layer; None, or empty: attention
    altup: AltUp | None = None  # residual streams; None: one
    laurel_rank: int = 0  # of what residual sums get next to attention (Gemma 3n); 0: nothing
    sparsity: float = 0.0  # share of a feed-forward's gates that are cut (Gemma 3n)
    sparsities: tuple[float, ...] = ()  # of each layer; empty: `sparsity` in all layers
    activation: str = "silu"
    gated: bool = True
    rms_norm: bool = True  # False: layer norm
    embedding_norm: bool = False  # norm of the embeddings (BLOOM)
    norm_scale: bool = True  # layer norms have a scale
    norm_bias: bool = True  # layer norms have a bias
    unit_offset: bool = False  # root-mean-square norms store their scale minus 1 (Gemma)
    pre_norm: bool = True  # norm of a sublayer's input
    post_norm: bool = False  # norm of its output, before the residual sum
    residual_norm: bool = False  # norm of the residual sum (OPT-350m)
    final_norm: bool = True  # norm of the states after the last layer
    qkv_bias: bool = False
    out_bias: bool = False
    ff_bias: bool = False
    head_bias: bool = False  # of the output layer
    qkv_clip: float = 0.0  # queries, keys and values are cut to at most this size; 0: off
    qk_norm: bool = False  # norm of each query and key head
    head_norms: bool = False  # layer norm of them, each head with its own scale (Command R)
    wide_qk_norm: bool = False  # norm of all heads as one vector (OLMo 2)
    rotated_norm: bool = False  # root-mean-square norm of rotated heads, without a scale (Llama 4)
    value_norm: bool = False  # root-mean-square norm of value heads, without a scale (Gemma 4)
    gated_attention: bool = False  # a sigmoid gates the heads' outputs (Qwen3-Next)
    query_scale: float | None = None  # None: d_head ** -0.5
    query_scales: tuple[float, ...] = ()  # of each layer; empty: `query_scale` in all layers
    temperature: Temperature | None = None  # of attention by position; None: the same at all
    attention_cap: float = 0.0  # soft cap of scores; 0: off
    latent: Latent | None = None  # latent attention; `d_head` is then the width of the only key
    sinks: bool = False  # each head has a learned logit in its softmax's denominator (gpt-oss)
    logit_cap: float = 0.0
    logit_scale: float = 1.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # factor of what each sublayer adds (Granite)
    layer_scale: bool = False  # a stored factor of each layer's output (Gemma 4)
    projected_width: int | None = None  # width of embeddings; None: d_model, without projections
    parallel: bool = False  # attention and feed-forward read the same states (GPT-J, GPT-NeoX)
    shared_norm: bool = False  # by one norm (Phi, Command R)
    windows: tuple[int, ...] = ()  # visible keys per layer, 0: all; empty: all in every layer
    chunked_windows: bool = False  # they begin at multiples of their size, do not slide (Llama 4)
    tied: bool = False
    eps: float = 1e-6
    dropout: float = 0.0
    bos: int | None = None
    eos: tuple[int, ...] = ()
    pad: int = 0
    dtype: Any = jnp.float32  # of the arithmetic; logits are always float32
    remat: bool = False  # training recomputes layers for the gradient, to save memory

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_key_value_heads is {self.num_kv_heads}; it must divide the"
                f" {self.num_heads} attention heads"
            )

    def get_layer(self, layer: int) -> CausalConfig:
        """The shape of one layer, whose heads and feed-forward may be its own."""
        if not (self.heads or self.d_ffs or self.mixers or self.shared_caches or self.sparsities):
            return self
        kv_heads, width, values_are_keys = self.layer_heads[layer]
        own = {"num_kv_heads": kv_heads, "d_head": width, "values_are_keys": values_are_keys}
        own |= {"heads": (), "d_ffs": (), "d_ff": self.d_ffs[layer] if self.d_ffs else self.d_ff}
        own |= {"mixers": (), "has_mixer": self.layer_mixers[layer]}
        sparsity = self.sparsities[layer] if self.sparsities else self.sparsity
        own |= {"sparsities": (), "sparsity": sparsity}
        own |= {"shared_caches": (), "reads_cache": self.reads_cache or layer >= self.cached_layers}
        return dataclasses.replace(self, **own)

    @property
    def has_learned_positions(self) -> bool:
        return self.rope is None and not self.slopes

    @property
    def residual_width(self) -> int:
        """Width of the states between layers: all streams, side by side."""
        return self.d_model * (self.altup.streams if self.altup else 1)

    @property
    def cached_layers(self) -> int:
        """Layers with a cache of their own; they come first."""
        return self.num_layers - len(self.shared_caches)

    @property
    def cache_layers(self) -> tuple[int, ...]:
        """The layer whose cache each layer reads."""
        return (*range(self.cached_layers), *self.shared_caches)

    @property
    def layer_heads(self) -> tuple[Heads, ...]:
        one = Heads(self.num_kv_heads, self.d_head, self.values_are_keys)
        return self.heads or (one,) * self.num_layers

    @property
    def cache_widths(self) -> tuple[int, int]:
        """Widths of a cached key and value of a head."""
        return self.d_head, 0 if self.latent else self.d_head

    @property
    def layer_windows(self) -> tuple[int, ...]:
        return self.windows or (0,) * self.num_layers

    @property
    def layer_ropes(self) -> tuple[Rope | None, ...]:
        return self.ropes or (self.rope,) * self.num_layers

    @property
    def layer_query_scales(self) -> tuple[float, ...]:
        scale = self.d_head**-0.5 if self.query_scale is None else self.query_scale
        return self.query_scales or (scale,) * self.num_layers

    @property
    def layer_mixtures(self) -> tuple[Mixture | None, ...]:
        return self.mixtures or (None,) * self.num_layers

    @property
    def layer_recurrences(self) -> tuple[Recurrence | None, ...]:
        return self.recurrences or (None,) * self.num_layers

    @property
    def layer_mixers(self) -> tuple[bool, ...]:
        return self.mixers or (self.has_mixer,) * self.num_layers

    @property
    def attending_layers(self) -> tuple[int, ...]:
        """The layers with attention."""
        kinds = enumerate(zip(self.layer_mixers, self.layer_recurrences, strict=True))
        return tuple(layer for layer, (mixes, kind) in kinds if mixes and kind is None)

    @property
    def layer_reaches(self) -> tuple[int, ...]:
        """Slots that each layer's tokens read besides a state, 0: all."""
        both = zip(self.layer_windows, self.layer_recurrences, strict=True)
        return tuple(kind.reach if kind else window for window, kind in both)
