"""What a policy reads of a prompt: the embedding that the target's prefill gives."""

from __future__ import annotations

import functools

import jax

from specjax.data.batching import Batch
from specjax.models.base import LanguageModel, Params
from specjax.selection.policy import ENCODER_MEAN, LAST_PROMPT_STATE


def source_of(model: LanguageModel) -> tuple[str, int]:
    """What embeddings of a model are, one of `policy.SOURCES`, and their width D."""
    kind = LAST_PROMPT_STATE if model.info.start_token is None else ENCODER_MEAN
    return kind, model.config.d_model


def embeddings(target: LanguageModel, params: Params, batch: Batch) -> jax.Array:
    """Embeddings [B, D] float32 of a batch of prompts, by reading them once.

    A decode has them from its own prefill (`LanguageModel.start`); this is for queries
    whose outputs were generated before.
    """
    return _read(target, params, batch.tokens, batch.length)


@functools.partial(jax.jit, static_argnames="target")
def _read(target: LanguageModel, params: Params, tokens: jax.Array, length: jax.Array) -> jax.Array:
    return target.start(params, tokens, length, tokens.shape[1])[1].embedding
