"""Arithmetic operations, memory operations and arithmetic intensity of transformer calls.

Kim et al., "Speculative Decoding with Big Little Decoder" (2023), Figure 8 and
docs/methods/operations.md, at batch size 1. FLOPs count a multiplication and an addition as two;
norms, activations and softmax are left out. Memory operations are elements read or written:
multiply by the bytes of one. Weights count once per call, arithmetic once per token: that
difference is all of speculation.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from specjax.theory.checks import count


@dataclasses.dataclass(frozen=True)
class TransformerShape:
    """What the operations of an encoder-decoder or decoder-only transformer depend on."""

    layers: int  # of the decoder; 0: the output layer alone
    d_model: int
    d_ff: int
    heads: int
    d_head: int
    vocab: int
    ff_matrices: int = 2  # 3 when gated
    kv_heads: int | None = None  # None: as many as heads
    encoder_layers: int = 0  # 0: decoder-only, without cross-attention

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None:
                count(field.name, value, least=0 if field.name.endswith("layers") else 1)
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"kv_heads is {self.kv_heads}; it must divide the {self.heads} heads")

    @property
    def width(self) -> int:
        """Width of all query heads."""
        return self.heads * self.d_head

    @property
    def kv_width(self) -> int:
        """Width of all key heads; of all value heads, too."""
        return (self.kv_heads or self.heads) * self.d_head

    @property
    def cross(self) -> bool:
        """Whether decoder layers attend to an encoder."""
        return self.encoder_layers > 0

    @property
    def encoder_layer_weights(self) -> int:
        """Weights of self-attention and feed-forward of one layer."""
        attention = 2 * self.d_model * (self.width + self.kv_width)
        return attention + self.ff_matrices * self.d_model * self.d_ff

    @property
    def call_layer_weights(self) -> int:
        """Weights of one decoder layer that a call uses: cross keys and values are made before."""
        return self.encoder_layer_weights + self.cross * 2 * self.d_model * self.width

    @property
    def decoder_weights(self) -> int:
        """Weights of all decoder layers, embeddings and output layer not counted."""
        cross_keys_values = self.cross * 2 * self.d_model * self.kv_width
        return self.layers * (self.call_layer_weights + cross_keys_values)

    @property
    def activations(self) -> int:
        """Elements of activation traffic per token and layer."""
        return 8 * self.d_model + 2 * self.d_ff + 4 * self.width


@dataclasses.dataclass(frozen=True)
class Operations:
    """Operations of one or many calls; the fields of many have one entry per call."""

    flops: np.ndarray  # [...]
    memory: np.ndarray  # [...] elements

    @property
    def intensity(self) -> np.ndarray:
        """FLOPs per element moved."""
        return self.flops / self.memory

    def __add__(self, other: Operations) -> Operations:
        return Operations(self.flops + other.flops, self.memory + other.memory)

    def __mul__(self, times: ArrayLike) -> Operations:
        return Operations(self.flops * times, self.memory * times)

    def total(self) -> Operations:
        """The sum over all calls."""
        return Operations(np.sum(self.flops), np.sum(self.memory))


def decoder_call(
    shape: TransformerShape,
    tokens: ArrayLike,
    cached: ArrayLike,
    source: ArrayLike = 0,
    logits: ArrayLike | None = None,
) -> Operations:
    """Operations [...] of feeding `tokens` >= 1 after `cached` ones.

    `source` is the length of the encoder's text, 0 for a decoder-only model; `logits` for how many
    of the tokens the output layer runs, None for all. The four broadcast: one entry per call of a
    decode. Raises ValueError on impossible arguments.
    """
    n, t, s = count("tokens", tokens, least=1), count("cached", cached), count("source", source)
    if not shape.cross and np.any(s > 0):
        raise ValueError(f"source is {s.max():g}; it must be 0 for a decoder-only model")
    pairs = n * (t + (n + 1) / 2)
    own = _stack(shape, shape.layers, shape.call_layer_weights, n, t + n, pairs)
    cross = Operations(
        shape.layers * 4 * shape.width * n * s, shape.layers * 2 * shape.kv_width * s
    )
    return own + cross + output_layer(shape, n if logits is None else logits)


def output_layer(shape: TransformerShape, logits: ArrayLike) -> Operations:
    """Operations [...] of one run of the output layer for `logits` tokens."""
    m = count("logits", logits)
    return Operations(
        2 * m * shape.d_model * shape.vocab, (shape.d_model * (m > 0) + m) * shape.vocab
    )


def propagation(shape: TransformerShape) -> Operations:
    """Operations of the keys and values of one state in a decoder layer that does not run.

    Schuster et al. (2022), section 3.2.
    """
    weights = 2 * shape.d_model * shape.kv_width
    return Operations(2 * weights, weights + shape.d_model + 2 * shape.kv_width)


def start(shape: TransformerShape, prompt: ArrayLike) -> Operations:
    """Operations [...], once per sequence, of reading a prompt of `prompt` >= 1 tokens.

    Encoder-decoder: the encoder, and every decoder layer's cross keys and values. Decoder-only: all
    prompt tokens but the last, without logits. Raises ValueError on impossible arguments.
    """
    size = count("prompt", prompt, least=1)
    weights = shape.encoder_layer_weights
    if not shape.cross:
        n = size - 1
        return _stack(shape, shape.layers, weights * (n > 0), n, n, n * (n + 1) / 2)
    encoder = _stack(shape, shape.encoder_layers, weights, size, size, size**2)
    projected = 2 * shape.d_model * shape.kv_width
    cross = Operations(
        shape.layers * 2 * size * projected,
        shape.layers * (projected + size * (shape.d_model + 2 * shape.kv_width)),
    )
    return encoder + cross


def _stack(
    shape: TransformerShape,
    layers: int,
    weights: ArrayLike,
    tokens: np.ndarray,
    keys: np.ndarray,
    pairs: np.ndarray,
) -> Operations:
    """`layers` layers on `tokens`; `pairs` of a query and a key that it may see."""
    return Operations(
        layers * (2 * tokens * weights + 4 * shape.width * pairs),
        layers * (weights + 2 * shape.kv_width * (keys + tokens) + tokens * shape.activations),
    )
