"""A newcomer's proposer, whole: a table of counts, in every shape."""

from __future__ import annotations

import dataclasses

from specjax.contracts import get_pending_tokens
from specjax.contracts.registry import DRAFTERS
from specjax.drafting.ngram import bigram_logits
from specjax.drafting.proposer import Proposer


@DRAFTERS.register("repeated_bigram", example={"length": 3})
@dataclasses.dataclass(frozen=True)
class RepeatedBigram(Proposer):
    """The successors of the last token, by counts."""

    @property
    def resources(self):
        return ("ngram",)

    def open(self, env, caches, memory, context):
        return bigram_logits(env.params["ngram"], get_pending_tokens(context)), None

    def feed(self, env, state, nodes):
        flat = bigram_logits(env.params["ngram"], nodes.tokens.reshape(-1))
        return flat.reshape(*nodes.tokens.shape, -1), state
