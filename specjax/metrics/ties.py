"""Tests whether greedy outputs differ only at near ties of the target.

Two ways to compute the same logits round differently. If the two largest are as close as one
rounding of a logit, either of them may come first, and the texts differ from there on.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from specjax.data.batching import Prompt
from specjax.models.base import LanguageModel, Params
from specjax.models.guided import GuidedModel, guide_logits
from specjax.models.vocabularies import unwrap
from specjax.runtime import processes

WIDTH = 64
"""Texts are padded to multiples of this; each width compiles once."""


@dataclasses.dataclass(frozen=True)
class Divergence:
    """The first difference between two outputs of the same prompt."""

    prompt: Prompt
    shared: list[int]  # generated tokens up to the first difference
    tokens: tuple[int, int]  # the next token of each
    head: tuple[int, ...] = ()  # the decoder prefix of the row, if the model leaves it open


def divergence(
    prompt: Prompt, first: list[int], second: list[int], head: tuple[int, ...] = ()
) -> Divergence | None:
    """The first difference between two outputs; None if they are equal.

    Finished outputs contain their end token, so none is a prefix of another.
    """
    for index, tokens in enumerate(zip(first, second, strict=False)):
        if tokens[0] != tokens[1]:
            return Divergence(prompt, first[:index], tokens, head)
    return None


def near_ties(
    model: LanguageModel, params: Params, divergences: Sequence[Divergence], dtype: jnp.dtype
) -> int:
    """Number of `divergences` at a near tie of the target, by one forward pass for each."""
    return sum(
        is_near_tie(logits_at(model, params, where), where.tokens, dtype) for where in divergences
    )


def is_near_tie(logits: np.ndarray, tokens: tuple[int, int], dtype: jnp.dtype) -> bool:
    """Whether both tokens are within the rounding of the largest of logits [V].

    That is the machine epsilon of `dtype` times the largest magnitude of a logit: the error of one
    rounding of a number of this size, without those of the layers before, which add to it.
    """
    rounding = float(jnp.finfo(dtype).eps) * float(np.abs(logits).max())
    return bool(logits.max() - logits[list(tokens)].min() <= rounding)


def logits_at(model: LanguageModel, params: Params, where: Divergence) -> np.ndarray:
    """Teacher-forced float32 logits [V] of the token after the common prefix of two outputs."""
    target = unwrap(model)
    if isinstance(target, GuidedModel):
        without = dataclasses.replace(where, prompt=where.prompt[-1:])
        own, free = (
            jnp.asarray(logits_at(target.model, params, each)) for each in (where, without)
        )
        return np.asarray(guide_logits(own, free, target.scale))[: model.info.vocab_size]
    head = where.head or model.info.first_prefix
    text = [*(head or where.prompt), *where.shared]
    batch = {"inputs": _pad_tokens(text), "length": jnp.array([len(text)])}
    if head:
        prompt = jnp.asarray(where.prompt)[None] if model.info.input else _pad_tokens(where.prompt)
        batch |= {"prompt": prompt, "prompt_length": jnp.array([len(where.prompt)])}
    return processes.whole(_logits(model, params, batch, jnp.int32(len(text) - 1)))


def _pad_tokens(tokens: Prompt) -> jax.Array:
    return jnp.array([[*tokens, *[0] * (-len(tokens) % WIDTH)]], jnp.int32)


@functools.partial(jax.jit, static_argnames="model")
def _logits(
    model: LanguageModel, params: Params, batch: dict[str, jax.Array], at: jax.Array
) -> jax.Array:
    hidden = jax.lax.dynamic_slice_in_dim(model.states(params, batch), at, 1, axis=1)
    return model.read_out(params, hidden)[0, 0]
