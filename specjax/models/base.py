"""The interface of language models.

Dimension letters, the same in the whole project: B batch rows, P prompt length, S encoder
length, T tokens fed in one call, L token-buffer length, K drafted tokens, V vocabulary, H heads,
D model width, d head width, C cache capacity. Where a shape in `jaxtyping` notation cannot derive
K + 1 from a K before it, that axis is K1.

A model is a frozen, hashable description without arrays; its methods take parameters and caches as
pytrees. Encoder-decoder and decoder-only models have the same interface: after `start` every row
has one *pending* token (the last of the decoder prefix or of the prompt), which the next `extend`
feeds.

A prompt is token ids [B, P] int32, or what `ModelInfo.input` describes, [B, P, M] float32: M
numbers for each of P frames of audio or patches of an image.
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
"""Token ids, or M numbers for each frame of audio or patch of an image."""

OwnPrompt = tuple[Int[Array, "B P"], Int[Array, " B"]]
"""Prompts in the ids of a model with another vocabulary, and their length."""


class Cache(struct.PyTreeNode):
    """The state of a model after the tokens that it was fed.

    Slots from `length` on are masked and later overwritten, so rejecting tokens only lowers
    `length`.
    """

    data: Any  # the model's own arrays; head-major [B, H, C, d] keys and values
    length: Int32[Array, " B"]  # valid leading positions of each row


class Output(struct.PyTreeNode):
    """Outputs of one call of `extend`."""

    logits: Float32[Array, "B A V"]  # A = T, or the number of requested positions
    hidden: Float[Array, "B T D"] | None = None  # residual stream after the last layer that ran
    features: tuple[Float[Array, "B T D"], ...] = ()  # after requested decoder layers


class PromptReading(struct.PyTreeNode):
    """Outputs of `start` on the prompts."""

    embedding: Float32[Array, "B D"]  # one vector for each prompt
    encoded: Float[Array, "B P D"] | None = None  # encoder output; None for decoder-only models
    features: tuple[Float[Array, "B P D"], ...] = ()  # after requested decoder layers


class Resume(struct.PyTreeNode):
    """States after the first `layer` decoder layers, from which a call resumes."""

    states: Float[Array, "B T D"]
    layer: int = struct.field(pytree_node=False)


class LanguageModel(Protocol):
    """A target, a drafter, or both (early exit); a frozen dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def config(self) -> Any:
        """Its shape: a frozen dataclass with fields of its architecture."""
        ...

    @property
    def info(self) -> ModelInfo:
        """Static facts: sizes, special tokens, kind of prompts."""
        ...

    def init(self, key: Key[Array, ""]) -> Params:
        """Initializes float32 parameters."""
        ...

    def teach(
        self,
        params: Params,
        batch: Mapping[str, jax.Array],
        *,
        key: Key[Array, ""] | None = None,
        exits: tuple[int, ...] | None = None,
    ) -> tuple[Float32[Array, "B T V"], ...]:
        """Computes teacher-forced float32 logits [B, T, V] after each layer of `exits`.

        `exits` are decoder layers (1-based), by default the last one. `batch` holds `inputs`
        [B, T] with their `length` [B], and for encoder-decoder models `prompt`
        [B, P] with `prompt_length` [B]; `key` turns dropout on.
        """
        ...

    def states(
        self,
        params: Params,
        batch: Mapping[str, jax.Array],
        *,
        key: Key[Array, ""] | None = None,
    ) -> Float[Array, "B T D"]:
        """Computes the teacher-forced residual stream [B, T, D] after the last decoder layer.

        `teach` applies `read_out` to it, with the same `key`.
        """
        ...

    def read_out(self, params: Params, hidden: Float[Array, "... D"]) -> Float32[Array, "... V"]:
        """Computes float32 logits [..., V] of residual states [..., D]: final norm and LM head."""
        ...

    def apply_final_norm(
        self, params: Params, hidden: Float[Array, "... D"]
    ) -> Float[Array, "... D"]:
        """Applies the final norm to residual states [..., D], the first part of `read_out`."""
        ...

    def apply_lm_head(
        self, params: Params, normed: Float[Array, "... D"]
    ) -> Float32[Array, "... V"]:
        """Computes float32 logits [..., V] of normed states [..., D], the other part."""
        ...

    def embed(self, params: Params, tokens: Int[Array, " ..."]) -> Float[Array, "... D"]:
        """Returns embeddings [..., D] of decoder tokens [...], without positions."""
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
        longest: int | None = None,
    ) -> tuple[Cache, PromptReading]:
        """Reads prompts [B, P]; returns a cache for `capacity` decoder tokens, and outputs.

        Encoder-decoder: runs the encoder and stores cross-attention keys and values; the length is
        0 regardless of `forced`; the embedding is the mean of the final-normed encoder states over
        the prompt.
        Decoder-only: prefills all prompt tokens but the last, length `prompt_length - 1`; the
        embedding is the final-normed state of the last prompt token, and the states after the
        decoder layers `features` (1-based) are returned too. Unused outputs cost nothing.

        `ahead` bounds how many slots, from the first slot of a later call on, may already have been
        written at that call; None: unbounded. A layer with a sliding window may then store
        window + ahead slots instead of all. `longest` bounds the lengths of these prompts; a model
        may then read only so many positions, while all shapes stay those of P. It is given only
        where rows join a batch of wider prompts (`decoding.filling`).

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

        By default they are a chain: positions are slots, and each token attends to all before it.
        For a tree, `position` [B, N] gives the positions of the last N >= T slots, the fed ones
        last, and `visible` [B, T, N] which of them the fed tokens attend to. All earlier slots are
        visible.

        `at` [B, A] selects the fed tokens whose next-token logits are computed (all T by default),
        because an LM head over a large vocabulary is often the most expensive part of a small
        drafter.

        With `exit` only the first `exit` decoder layers run, then final norm and LM head. `resume`
        are the fed tokens' residual states of an earlier call (`Output.hidden`): only the layers
        after them run. Caches of other layers are unchanged, while the pointer moves for all.
        `features` are layers (1-based) whose states are returned.
        """
        ...

    def keep(self, cache: Cache, path: Int[Array, "B N"], count: Int[Array, " B"]) -> Cache:
        """Moves the accepted nodes of a tree to the pointer, and advances it by `count`.

        The tree's nodes are in the slots from `cache.length` on; the first `count` [B] of `path`
        [B, N] are the accepted nodes, from the root.
        """
        ...

    def propagate(
        self, params: Params, hidden: Float[Array, "B T D"], cache: Cache, layers: tuple[int, int]
    ) -> Cache:
        """Caches keys and values of states [B, T, D] in decoder layers `layers` (from, to).

        Each layer projects the normed states (Schuster et al. 2022, section 3.2) at positions
        `cache.length ..`; the layers do not run and the pointer does not move.
        """
        ...


def check_same_prompts(name: str, model: LanguageModel, target: LanguageModel) -> None:
    """Checks that a drafter reads prompts in the same ids as its target.

    Raises:
      ValueError: naming both vocabularies.
    """
    if (model.info.source_vocab is None) != (target.info.source_vocab is None):
        own = "in a vocabulary of their own", "in that of its texts"
        mine, theirs = own if model.info.source_vocab else own[::-1]
        raise ValueError(
            f"model {name!r} reads prompts {mine}, the target {theirs}; they must be alike"
        )
