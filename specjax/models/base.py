"""The contract between language models and everything that decodes with them.

Dimension letters, the same in the whole project: B batch rows, P prompt length, S encoder
length, T tokens fed in one call, L token-buffer length, K drafted tokens, V vocabulary, H heads,
D model width, d head width, C cache capacity. Where a shape in `jaxtyping` notation cannot derive
K + 1 from a K before it, that axis is K1.

A model is a frozen, hashable description without arrays; parameters and caches are pytrees handed
to it. Encoder-decoder and decoder-only models look the same from outside: after `start` every row
has one *pending* token (the last of those that the decoder begins with, or of the prompt) which
the next `extend` feeds.

A prompt is token ids [B, P] int32, or for models that listen (`ModelInfo.frames`) what they
hear: [B, P, M] float32, M numbers for each of P frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import jax
from flax import struct
from jaxtyping import Array, Bool, Float, Float32, Int, Int32, Key

from specjax.models.info import ModelInfo

Params = Any

Where = tuple[str, ...]
"""Path of a parameter in its tree."""

Prompts = Int[Array, "B P"] | Float[Array, "B P M"]
"""Token ids, or of speech models M numbers for each frame."""

OwnPrompt = tuple[Int[Array, "B P"], Int[Array, " B"]]
"""Prompts in the ids of a model with another vocabulary, and their length."""


class Cache(struct.PyTreeNode):
    """What a model remembers of the tokens it has consumed.

    Slots at and above `length` may hold anything: they are masked and later overwritten, so
    rejecting tokens means lowering `length` and nothing else.
    """

    data: Any  # the model's own arrays; head-major [B, H, C, d] keys and values
    length: Int32[Array, " B"]  # leading positions that are trusted, per row


class Output(struct.PyTreeNode):
    """What one call of `extend` computed."""

    logits: Float32[Array, "B A V"]  # A = T or the number of positions asked for
    hidden: Float[Array, "B T D"] | None = None  # residual stream after the last layer that ran
    features: tuple[Float[Array, "B T D"], ...] = ()  # after each decoder layer that was asked for


class PromptReading(struct.PyTreeNode):
    """What `start` saw of the prompts."""

    embedding: Float32[Array, "B D"]  # one vector for each prompt
    encoded: Float[Array, "B P D"] | None = None  # encoder output; None for decoder-only models
    features: tuple[Float[Array, "B P D"], ...] = ()  # after each decoder layer asked for


class Resume(struct.PyTreeNode):
    """States from which a call goes on: those after the first `layer` decoder layers."""

    states: Float[Array, "B T D"]
    layer: int = struct.field(pytree_node=False)


class LanguageModel(Protocol):
    """A named model of a decode: target, drafter, or both (early exit); a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def config(self) -> Any:
        """Its shape: a frozen dataclass whose fields each architecture has of its own."""
        ...

    @property
    def info(self) -> ModelInfo:
        """What is fixed about it: sizes, special tokens, what it reads."""
        ...

    def init(self, key: Key[Array, ""]) -> Params:
        """Freshly initialised float32 parameters."""
        ...

    def teach(
        self,
        params: Params,
        batch: Mapping[str, jax.Array],
        *,
        key: Key[Array, ""] | None = None,
        exits: tuple[int, ...] | None = None,
    ) -> tuple[Float32[Array, "B T V"], ...]:
        """Teacher-forced float32 logits [B, T, V] after each decoder layer of `exits` (1-based).

        By default of the last layer only. `batch` holds `inputs` [B, T] with their `length` [B],
        and for encoder-decoder models `prompt` [B, P] with `prompt_length` [B]; `key` turns
        dropout on.
        """
        ...

    def states(
        self,
        params: Params,
        batch: Mapping[str, jax.Array],
        *,
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "B T D"]:
        """Teacher-forced residual stream [B, T, D] after the last decoder layer.

        `teach` is `read_out` of it, under the same `key`.
        """
        ...

    def read_out(self, params: Params, hidden: Float[Array, "... D"]) -> Float32[Array, "... V"]:
        """Float32 logits [..., T, V] of residual states [..., T, D]: final norm and head."""
        ...

    def normed(self, params: Params, hidden: Float[Array, "... D"]) -> Float[Array, "... D"]:
        """The first half of `read_out`: residual states [..., D] behind the final norm."""
        ...

    def output(self, params: Params, normed: Float[Array, "... D"]) -> Float32[Array, "... V"]:
        """The other half: float32 logits [..., V] of normed states [..., D]."""
        ...

    def embed(self, params: Params, tokens: Int[Array, " ..."]) -> Float[Array, "... D"]:
        """Embeddings [..., D] of the decoder's tokens [...], without positions."""
        ...

    def start(
        self,
        params: Params,
        prompt: Prompts,
        prompt_length: Int[Array, " B"],
        capacity: int,
        *,
        features: tuple[int, ...] = (),
        ahead: int | None = None,
    ) -> tuple[Cache, PromptReading]:
        """Reads the prompt [B, P]: a cache with room for `capacity` decoder tokens, and more.

        Encoder-decoder: runs the encoder, stores cross-attention keys and values, length 0 whatever
        is `forced`; the embedding is the mean of the final-normed encoder states over the prompt.
        Decoder-only: prefills all prompt tokens but the last, length `prompt_length - 1`; the
        embedding is the final-normed state of the last prompt token, and the states after the
        decoder layers `features` (1-based) are those of the prompt. What is not used costs nothing.

        `ahead` is how many slots beyond the first that any later call feeds may have been written
        when it does; None: any number. A layer with a sliding window may then keep window + ahead
        slots instead of all.

        A model of another vocabulary (`models.vocabularies`) also takes `own`, the prompts in
        its own ids; one that borrows an encoder takes `encoded`, the target's states [B, S, D].
        """
        ...

    def extend(
        self,
        params: Params,
        tokens: Int[Array, "B T"],
        cache: Cache,
        *,
        position: Int[Array, "B N"] | None = None,
        visible: Bool[Array, "B T N"] | None = None,
        at: Int[Array, "B A"] | None = None,
        exit: int | None = None,
        resume: Resume | None = None,
        features: tuple[int, ...] = (),
    ) -> tuple[Output, Cache]:
        """Feeds tokens [B, T] to slots `cache.length ..` and moves the pointer by T.

        By default they are a chain: positions are slots, each token sees all before it. A tree says
        otherwise of the last N >= T slots, the fed ones last: their `position` [B, N] in the text,
        and which of them the fed tokens see, `visible` [B, T, N]. All earlier slots are seen.

        `at` [B, A] picks the fed tokens whose next-token logits are wanted (all T by default):
        the head over a large vocabulary is often the dearest part of a small drafter.

        `exit` runs the first so many decoder layers only, then final norm and head. `resume` are
        the fed tokens' residual states after some layers, as an earlier call's `Output.hidden` gave
        them: only the layers above run. The cache of layers that do not run stays as it was, while
        the one pointer moves for all. `features` are layers (1-based) that run whose states are
        wanted.
        """
        ...

    def keep(self, cache: Cache, path: Int[Array, "B N"], count: Int[Array, " B"]) -> Cache:
        """Makes the kept nodes of a tree contiguous behind the pointer, and moves it by `count`.

        The tree's nodes lie in the slots from `cache.length` on; `path` [B, N] are the kept nodes
        from the root on, of which the first `count` [B] count.
        """
        ...

    def propagate(
        self, params: Params, hidden: Float[Array, "B T D"], cache: Cache, layers: tuple[int, int]
    ) -> Cache:
        """Writes what decoder layers `layers` (from, to) would remember of states [B, T, D].

        Their own keys and values of the normed states (Schuster et al. 2022, section 3.2), at
        positions `cache.length ..`; the layers do not run and the pointer stays.
        """
        ...


def check_same_prompts(name: str, model: LanguageModel, target: LanguageModel) -> None:
    """Refuses a drafter that reads prompts in other ids than its target.

    Raises:
      ValueError: naming both.
    """
    if (model.info.source_vocab is None) != (target.info.source_vocab is None):
        own = "in a vocabulary of their own", "in that of its texts"
        mine, theirs = own if model.info.source_vocab else own[::-1]
        raise ValueError(
            f"model {name!r} reads prompts {mine}, the target {theirs}; they must be alike"
        )
