"""A speech drafter that drafts some of its tokens only, so that its output layer is smaller.

The output layer of a small decoder over a large vocabulary is most of what a draft reads. EAGLE-3
drafters have a draft vocabulary for that reason (Li et al. 2025, arXiv 2503.01840); here it is cut
out of a whole model. A token that is not in it is never drafted, and may be accepted from no draft:
the target's own text and distribution stay.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models.base import Cache, LanguageModel, Output, Params, PromptReading
from specjax.models.layers import MASKED, tied_logits
from specjax.models.shared_vocabulary import Wrapped
from specjax.models.whisper import Whisper


@dataclasses.dataclass(frozen=True)
class DraftVocabulary(Wrapped):
    """`model`, a Whisper, with the logits of its other tokens masked and never computed.

    Its parameters are those of the `model`, the embeddings `rows` [U, D] of the U tokens that it
    drafts, and `places` [V], of each token its row, U where it has none.
    """

    model: Whisper

    def embed(self, params: Params, tokens: jax.Array) -> jax.Array:
        return self.model.embed(params["model"], tokens)

    def normed(self, params: Params, hidden: jax.Array) -> jax.Array:
        return self.model.normed(params["model"], hidden)

    def output(self, params: Params, normed: jax.Array) -> jax.Array:
        logits = tied_logits(normed, params["rows"], False)
        return jnp.take(logits, params["places"], axis=-1, mode="fill", fill_value=MASKED)

    def read_out(self, params: Params, hidden: jax.Array) -> jax.Array:
        return self.output(params, self.normed(params, hidden))

    def start(
        self, params: Params, prompt: jax.Array, length: jax.Array, capacity: int, **wanted: Any
    ) -> tuple[Cache, PromptReading]:
        return self.model.start(params["model"], prompt, length, capacity, **wanted)

    def extend(
        self,
        params: Params,
        tokens: jax.Array,
        cache: Cache,
        *,
        at: jax.Array | None = None,
        **how: Any,
    ) -> tuple[Output, Cache]:
        none = jnp.zeros((len(tokens), 0), jnp.int32)
        output, cache = self.model.extend(params["model"], tokens, cache, at=none, **how)
        # A Whisper's call always gives them.
        hidden: jax.Array = output.hidden  # pyright: ignore[reportAssignmentType]
        if at is not None:
            hidden = jnp.take_along_axis(hidden, at[..., None], axis=1, mode="clip")
        return output.replace(logits=self.read_out(params, hidden)), cache

    def keep(self, cache: Cache, path: jax.Array, count: jax.Array) -> Cache:
        return self.model.keep(cache, path, count)

    def propagate(
        self, params: Params, hidden: jax.Array, cache: Cache, layers: tuple[int, int]
    ) -> Cache:
        return self.model.propagate(params["model"], hidden, cache, layers)


def draft_tokens(model: LanguageModel, count: int) -> np.ndarray:
    """The first `count` ids of a Whisper, which its tokenizer merged first, and EOS and times."""
    special = [token for token in range(model.info.eos[0], model.info.vocab_size)]
    return np.unique([*range(min(count, model.info.vocab_size)), *special])


def with_draft_vocabulary(
    model: Whisper, params: Params, count: int
) -> tuple[DraftVocabulary, Params]:
    """The model that drafts `draft_tokens` only, and its parameters."""
    tokens = draft_tokens(model, count)
    places = np.full(model.info.vocab_size, len(tokens), np.int32)
    places[tokens] = np.arange(len(tokens))
    rows = params["embedding"][tokens]
    return DraftVocabulary(model), {"model": params, "rows": rows, "places": jnp.array(places)}
