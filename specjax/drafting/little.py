"""The small model of the Big Little Decoder: it drafts until it is unsure, and may end a text.

Kim et al., "Speculative Decoding with Big Little Decoder" (2023), section 3.2;
docs/methods/bild.md, "The loop".
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from specjax.drafting.base import ENDED, HELD, Caches, Context, Draft, Models, lookup
from specjax.drafting.neural import Neural
from specjax.drafting.rows import ends_text


@dataclasses.dataclass(frozen=True)
class Little(Neural):
    """Hands over to the large model before an uncertain token, or after `length` (W) tokens.

    The fallback threshold is the traced option that `confidence` names. An EOS, or the token that
    fills the row, ends the row without review unless `verify_eos`. `official` is how the authors'
    code differs: the large model writes the first token, and one more after a rollback.
    """

    verify_eos: bool = False
    official: bool = False

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        held = self._held(context)
        asked = context.replace(active=context.active & ~held)
        draft, after = super().draft(models, params, caches, asked, keys)
        ended = self._ends(draft, context, lookup(models, self.model).eos)
        reason = jnp.where(held, HELD, jnp.where(ended, ENDED, draft.stop_reason))
        final = jnp.zeros_like(ended) if self.verify_eos else ended
        # A model that was not asked has not caught up: what it fed lies behind a gap.
        cache, before = after[self.model], caches[self.model]
        cache = cache.replace(length=jnp.where(held, before.length, cache.length))
        return draft.replace(stop_reason=reason, final=final), {**after, self.model: cache}

    def _held(self, context: Context) -> jax.Array:
        """Rows [B] in which the large model goes on by itself."""
        if not self.official:
            return jnp.zeros_like(context.active)
        return context.active & ((context.length == context.begin) | context.rejected)

    def _ends(self, draft: Draft, context: Context, eos: tuple[int, ...]) -> jax.Array:
        """Rows [B] whose draft ends the text."""
        full = (draft.length > 0) & (draft.length >= context.room)
        return full | ends_text(draft.tokens, draft.length, eos)
