"""Arithmetic operations, memory operations and arithmetic intensity of transformer calls.

Kim et al., "Speculative Decoding with Big Little Decoder" (2023), Figure 8 and
docs/methods/operations.md, at batch size 1. FLOPs count a multiplication and an addition as two;
norms, activations and softmax are left out. Memory operations are elements read or written:
multiply by the bytes of one. Weights count once per call, arithmetic once per token: this
difference is what speculation exploits. In mixtures of experts a token is multiplied with its own
experts, and a call reads those that any of its tokens is expected to use. Of recurrent layers a
call reads and writes the states once; products of tokens that are fed together are left out.

A token uses k of E experts. With uniform and independent routing, n tokens do not use an expert
with probability (1 - k / E)^n. So a call on more tokens reads more weights, and its cost v rises
with the draft even if memory is the bound; a dense model's does not. Related tokens, as those of a
text, share more experts, so the count is an upper bound in expectation; by Jensen's inequality also
if some experts are more popular than others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from specjax.theory.checks import count
from specjax.theory.recurrences import RecurrenceShape


@dataclasses.dataclass(frozen=True)
class ExpertsShape:
    """The experts of a layer; each has as many matrices as a dense feed-forward network."""

    experts: int
    chosen: int  # for each token
    d_ff: int  # of each expert
    shared: int = 0  # width of the expert that all tokens have; 0: none
    latent: int = 0  # width of vectors that other experts read and write; 0: the model's

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            least = int(field.name not in ("shared", "latent"))
            count(field.name, getattr(self, field.name), least=least)
        if self.chosen > self.experts:
            raise ValueError(
                f"chosen is {self.chosen}; it must be at most the {self.experts} experts"
            )


@dataclasses.dataclass(frozen=True)
class LatentShape:
    """Latent attention, computed with one key for all heads (DeepSeek-V2, section 2.1.2)."""

    rank: int
    rotated: int
    plain: int  # numbers of a query that are not rotated
    value: int  # of each head
    query_rank: int  # 0: queries have no latent vector

    def count_weights(self, d_model: int, heads: int) -> int:
        """Weights of a layer's attention."""
        query = (self.query_rank or d_model) * heads * (self.plain + self.rotated)
        down = d_model * (self.query_rank + self.key_width)
        up = self.rank * heads * (self.plain + self.value)
        return query + down + up + heads * self.value * d_model

    @property
    def key_width(self) -> int:
        """Elements of a token in the cache."""
        return self.rank + self.rotated


def distinct_experts(experts: ArrayLike, chosen: ArrayLike, tokens: ArrayLike) -> np.ndarray:
    """Expected number of experts [...] that `tokens` tokens use: E (1 - (1 - k / E)^n)."""
    all_of_them = count("experts", experts, least=1)
    share = count("chosen", chosen) / all_of_them
    return all_of_them * (1.0 - (1.0 - share) ** count("tokens", tokens))


SHAPES = (
    "mixtures", "recurrences", "encoder", "reading", "merged", "layer_widths", "latent", "d_ffs",
    "mixers",
)  # fmt: skip
"""Fields of a shape that are no counts."""


@dataclasses.dataclass(frozen=True)
class TransformerShape:
    """The shape that a transformer's operations depend on."""

    layers: int  # of the decoder; 0: only the output layer
    d_model: int
    d_ff: int
    heads: int
    d_head: int
    vocab: int
    ff_matrices: int = 2  # 3 when gated
    kv_heads: int | None = None  # None: as many as heads
    layer_widths: tuple[tuple[int, int], ...] = ()  # of all query and of all key heads of each
    # layer; empty: by the fields above in all
    d_ffs: tuple[int, ...] = ()  # of each decoder layer, 0: no feed-forward; empty: `d_ff` in all
    mixers: tuple[bool, ...] = ()  # whether each decoder layer attends or recurs; empty: all do
    encoder_layers: int = 0  # 0: decoder-only, without cross-attention
    mixtures: tuple[ExpertsShape | None, ...] = ()  # of each decoder layer; empty: none has experts
    recurrences: tuple[RecurrenceShape | None, ...] = ()  # of each decoder layer, in place of
    # attention; empty: all attend
    encoder: TransformerShape | None = None  # experts of the encoder's layers; None: the decoder's
    reading: tuple[float, float] | None = None
    """FLOPs and elements moved by an encoder that is no stack of equal layers; None: it is one."""
    merged: bool = False  # one attention of a decoder layer reads its own and the encoder's keys
    projected_width: int | None = None  # that states are projected onto before the output layer
    latent: LatentShape | None = None  # latent attention; `d_head` is then the width of the key

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name not in SHAPES:
                count(field.name, value, least=0 if field.name.endswith("layers") else 1)
        for name in ("mixtures", "recurrences", "d_ffs", "mixers"):
            entries = len(getattr(self, name))
            if entries not in (0, self.layers):
                raise ValueError(
                    f"{name} has {entries} entries; it must have one for each of the"
                    f" {self.layers} layers, or none"
                )
        if self.heads % (self.kv_heads or self.heads):
            raise ValueError(f"kv_heads is {self.kv_heads}; it must divide the {self.heads} heads")

    @property
    def width(self) -> float:
        """Width of all query heads; the mean of layers that differ."""
        widths = [queries for queries, _ in self.layer_widths]
        return sum(widths) / len(widths) if widths else self.heads * self.d_head

    @property
    def kv_width(self) -> float:
        """Width of all key heads; of all value heads, too."""
        widths = [keys for _, keys in self.layer_widths]
        kv_heads = self.kv_heads or self.heads
        return sum(widths) / len(widths) if widths else kv_heads * self.d_head

    @property
    def cached_width(self) -> float:
        """Elements of a token in the cache of one layer."""
        return self.latent.key_width if self.latent else 2 * self.kv_width

    @property
    def recurrent(self) -> list[RecurrenceShape]:
        """Shapes of the recurrent decoder layers."""
        return [one for one in self.recurrences if one is not None]

    @property
    def attending_layers(self) -> int:
        """Decoder layers with attention."""
        return self.layers - len(self.recurrent) - self.mixers.count(False)

    def average_layers(self, attending: float, recurrent: list[int]) -> float:
        """The mean over decoder layers of a count of those with attention, and of the others'."""
        return (self.attending_layers * attending + sum(recurrent)) / max(self.layers, 1)

    @property
    def cache_weights(self) -> float:
        """Weights of one layer that make a token's cache; the mean of layers that differ."""
        each = [one.count_cache_weights(self.d_model) for one in self.recurrent]
        return self.average_layers(self.d_model * self.cached_width, each)

    @property
    def output_weights(self) -> int:
        """Weights of the output layer, including a projection before it."""
        if self.projected_width is None:
            return self.d_model * self.vocab
        return self.projected_width * (self.d_model + self.vocab)

    @property
    def cross(self) -> bool:
        """Whether decoder layers attend to an encoder."""
        return self.encoder_layers > 0

    @property
    def cross_projections(self) -> bool:
        """Whether attention to the encoder has separate weights."""
        return self.cross and not self.merged

    def slice_layers(self, begin: int, end: int) -> TransformerShape:
        """The shape with only the decoder layers `begin` (counted from 0) to `end` - 1."""
        return dataclasses.replace(
            self,
            layers=end - begin,
            mixtures=self.mixtures[begin:end],
            recurrences=self.recurrences[begin:end],
            d_ffs=self.d_ffs[begin:end],
            mixers=self.mixers[begin:end],
            layer_widths=self.layer_widths[begin:end],
        )

    @property
    def reader(self) -> TransformerShape:
        """The shape of the encoder's layers."""
        return self.encoder or self

    @property
    def dense_width(self) -> int:
        """Width of the feed-forwards of all decoder layers without experts."""
        widths = self.d_ffs or (self.d_ff,) * self.layers
        mixtures = self.mixtures or (None,) * self.layers
        pairs = zip(widths, mixtures, strict=True)
        return sum(width for width, mixture in pairs if mixture is None)

    @property
    def attention_weights(self) -> float:
        """Weights of self-attention of one layer."""
        if self.latent:
            return self.latent.count_weights(self.d_model, self.heads)
        return 2 * self.d_model * (self.width + self.kv_width)

    @property
    def encoder_layer_weights(self) -> float:
        """Weights of self-attention and feed-forward of one layer without experts."""
        return self.attention_weights + self.ff_matrices * self.d_model * self.d_ff

    @property
    def used_weights(self) -> float:
        """Weights of all decoder layers that a token is multiplied with in a call.

        Cross keys and values are computed before; only a token's own experts count.
        """
        return self._call_weights(lambda mixture: mixture.chosen)

    def read_weights(self, tokens: ArrayLike) -> np.ndarray:
        """Weights [...] that a call on `tokens` tokens is expected to read."""

        def read(mixture: ExpertsShape) -> np.ndarray:
            return distinct_experts(mixture.experts, mixture.chosen, tokens)

        return self._call_weights(read) + np.zeros_like(count("tokens", tokens))

    def read_experts(self, tokens: ArrayLike) -> np.ndarray:
        """Weights [...] of experts that such a call is expected to read."""
        return self.read_weights(tokens) - self._call_weights(lambda mixture: 0)

    @property
    def idle_weights(self) -> int:
        """Weights of the experts that a token does not use."""
        return self._call_weights(lambda mixture: mixture.experts) - self.used_weights

    @property
    def decoder_weights(self) -> int:
        """Weights of all decoder layers, embeddings and output layer not counted."""
        each = self.cross_projections * 2 * self.reader.d_model * self.kv_width
        return self.layers * each + self._call_weights(lambda mixture: mixture.experts)

    def _call_weights(self, experts: Callable[[ExpertsShape], Any]) -> Any:
        """Weights of all decoder layers, with `experts` routed experts of each mixture."""
        query_and_output = self.cross_projections * 2 * self.d_model * self.width
        total = self.attending_layers * self.attention_weights + self.layers * query_and_output
        total += sum(one.count_weights(self.d_model) for one in self.recurrent)
        total = total + self.ff_matrices * self.d_model * self.dense_width
        for mixture in filter(None, self.mixtures):
            total = total + 2 * self.d_model * mixture.latent
            expert = self.ff_matrices * (mixture.latent or self.d_model) * mixture.d_ff
            shared = self.ff_matrices * self.d_model * mixture.shared
            total = total + self.d_model * mixture.experts + shared + experts(mixture) * expert
        return total

    @property
    def activations(self) -> float:
        """Elements of activation traffic per token in all decoder layers."""
        mixtures = filter(None, self.mixtures)
        experts = sum(mixture.chosen * mixture.d_ff + mixture.shared for mixture in mixtures)
        inner = self.dense_width + experts
        mixed = self.attending_layers * self.width + sum(one.width for one in self.recurrent)
        return self.layers * 8 * self.d_model + 4 * mixed + 2 * inner

    @property
    def encoder_activations(self) -> float:
        """Elements of activation traffic per token in the encoder's layers."""
        return self.encoder_layers * (8 * self.d_model + 4 * self.width + 2 * self.d_ff)


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
    own = _stack(shape, n, t + n, pairs)
    cross = Operations(
        shape.layers * 4 * shape.width * n * s, shape.layers * 2 * shape.kv_width * s
    )
    return own + cross + output_layer(shape, n if logits is None else logits)


def verification_costs(
    shape: TransformerShape, longest: int, cached: int, source: int = 0
) -> np.ndarray:
    """v [longest + 1]: memory traffic of a call by number of drafted tokens, over a step's.

    The `verification` of `theory.speculative` if memory is the bound; near 1 for a dense model.
    """
    fed = np.arange(int(count("longest", longest)) + 1) + 1
    moved = decoder_call(shape, fed, cached, source).memory
    return moved / moved[0]


def output_layer(shape: TransformerShape, logits: ArrayLike) -> Operations:
    """Operations [...] of one run of the output layer for `logits` tokens."""
    m = count("logits", logits)
    weights = shape.output_weights
    return Operations(2 * m * weights, weights * (m > 0) + m * shape.vocab)


def propagation(shape: TransformerShape) -> Operations:
    """Operations of the keys and values of one state in a skipped decoder layer.

    Schuster et al. (2022), section 3.2.
    """
    weights = shape.cache_weights
    written = shape.average_layers(shape.cached_width, [one.update for one in shape.recurrent])
    memory = weights + shape.d_model + written
    return Operations(np.asarray(2 * weights), np.asarray(memory))


def start(shape: TransformerShape, prompt: ArrayLike, borrowed: bool = False) -> Operations:
    """Operations [...], once per sequence, of reading a prompt of `prompt` >= 1 tokens.

    Encoder-decoder: the encoder, unless it is another model's and `borrowed`, and every decoder
    layer's cross keys and values. Decoder-only: all prompt tokens but the last, without logits.
    Raises ValueError on impossible arguments.
    """
    size = count("prompt", prompt, least=1)
    if not shape.cross:
        n = size - 1
        read = _stack(shape, n, n, n * (n + 1) / 2)
        return read * (n > 0)
    reader = dataclasses.replace(shape.reader, encoder_layers=shape.encoder_layers)
    weights = shape.encoder_layers * reader.encoder_layer_weights
    kept = shape.encoder_layers * 2 * reader.kv_width * 2 * size
    encoder = Operations(
        2 * size * weights + shape.encoder_layers * 4 * reader.width * size**2,
        weights + kept + size * reader.encoder_activations,
    )
    if shape.reading is not None:
        flops, memory = (np.full(np.shape(size), part) for part in shape.reading)
        encoder = Operations(flops, memory)
    projection_weights = 2 * reader.d_model * shape.kv_width
    cross = Operations(
        shape.layers * 2 * size * projection_weights,
        shape.layers * (projection_weights + size * (reader.d_model + 2 * shape.kv_width)),
    )
    return cross if borrowed else encoder + cross


def _stack(
    shape: TransformerShape, tokens: np.ndarray, keys: np.ndarray, pairs: np.ndarray
) -> Operations:
    """The decoder layers on `tokens`; `pairs` of a query and a key that it may see."""
    kept = shape.attending_layers * shape.cached_width * (keys + tokens)
    kept = kept + sum(2 * one.state + one.update * tokens for one in shape.recurrent)
    mixing = shape.attending_layers * 4 * shape.width * pairs
    mixing = mixing + tokens * sum(one.flops for one in shape.recurrent)
    return Operations(
        2 * tokens * shape.used_weights + mixing,
        shape.read_weights(tokens) + kept + tokens * shape.activations,
    )
