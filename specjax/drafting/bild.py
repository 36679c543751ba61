"""The small model of the Big Little Decoder: drafts until it is unsure, and may end a text.

Kim et al., "Speculative Decoding with Big Little Decoder" (2023), section 3.2
(docs/methods/bild.md).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.context import Context
from specjax.contracts.draft import ENDED, HELD, Draft
from specjax.contracts.drafter import STOP, Drafter, Log, Memory, Outcome
from specjax.contracts.env import Env
from specjax.contracts.reader import Reader
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches, ends_with_eos
from specjax.contracts.spec import Spec
from specjax.drafting import chain
from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.neural import Neural
from specjax.drafting.nodes import NOTHING
from specjax.models.base import PromptReading
from specjax.verification.distances import DISTANCES, NEED_LOGITS
from specjax.verification.fitted import FittedReader
from specjax.verification.rollback import COMPAT, OFFICIAL, PAPER, Rollback
from specjax.verification.whole import WholeReader

WINDOW = 10
"""Drafted tokens at which BiLD hands over (W of Kim et al., 2023)."""


@DRAFTERS.register("bild", example={"fallback": 0.5, "length": 3})
@dataclasses.dataclass(frozen=True)
class Bild(Drafter):
    """Big Little Decoder: tokens of a small model until it is unsure.

    The small model is `model`, or the first `exit` decoder layers of the target. It hands over
    before a token whose largest plain probability is below `fallback`, or after `length` (W)
    tokens. An EOS, or the token that fills the row, ends the row without review unless
    `verify_eos`. `compat="official"` matches the authors' code: the large model also writes the
    first token, and one more after a rollback.
    """

    length: int = fields.draft_length(WINDOW, help="drafted tokens at which it hands over (W)")
    model: str = fields.name(None, help="the small model; off: 'drafter', or the exit")
    exit: int | None = fields.integer(None, help="decoder layers of the target that draft")
    fallback: str | None = fields.number(
        bounds="[0, inf]", traced="fallback", help="confidence below which it hands over"
    )
    verify_eos: bool = fields.flag(help="the target reviews the end of a text too")
    distance: str = fields.choice(
        tuple(DISTANCES), "cross_entropy", help="distance of a drafted token"
    )
    compat: str = fields.choice(COMPAT, PAPER, help="whose BiLD")

    rule_type = Rollback

    def __post_init__(self) -> None:
        if not self.model:
            object.__setattr__(self, "model", "drafter" if self.exit is None else "target")
        super().__post_init__()

    @property
    def small(self) -> Neural | EarlyExit:
        """The small model, whose chain ends where it is unsure."""
        if self.exit is None:
            return Neural(self.length, self.model, confidence=self.fallback)
        return EarlyExit(self.length, self.model, exit=self.exit, confidence=self.fallback)

    @property
    def official(self) -> bool:
        return self.compat == OFFICIAL

    @property
    def spec(self) -> Spec:
        return self.small.spec

    @property
    def reader(self) -> Reader:
        """The reader skips the target in rounds whose texts all end."""
        return FittedReader((self.length,), self.small.reader or WholeReader())

    @property
    def can_skip_review(self) -> bool:
        return not self.verify_eos

    def check(self, env: Env) -> None:
        self.small.check(env)

    def begin(
        self, env: Env, caches: Caches, context: Context, prompt: PromptReading, keys: jax.Array
    ) -> tuple[Memory, Caches]:
        """Whether [B] the previous round rejected drafts."""
        return jnp.zeros(context.length.shape, bool) if self.official else (), caches

    def observe(self, memory: Memory, outcome: Outcome) -> Memory:
        if not self.official:
            return memory
        return outcome.verdict.accepted < outcome.draft.length

    def propose(
        self, env: Env, caches: Caches, memory: Memory, context: Context, keys: jax.Array
    ) -> tuple[Draft, Caches, Memory, Log]:
        held = self._continues_alone(memory, context)
        small_context = context.replace(
            active=context.active & ~held, most=jnp.where(held, 0, context.most)
        )
        keeps = self.distance in NEED_LOGITS
        draft, after, _, log = chain.draft(
            self.small, env, caches, NOTHING, small_context, keys, keeps_logits=keeps
        )
        ended = self._ends(draft, context, env[self.model].info.eos)
        log[STOP] = jnp.where(held, HELD, jnp.where(ended, ENDED, log[STOP]))
        review = jnp.ones_like(ended) if self.verify_eos else ~ended
        # A model that was skipped has not caught up: its cache has a gap.
        cache, before = after[self.model], caches[self.model]
        cache = cache.replace(length=jnp.where(held, before.length, cache.length))
        return draft.replace(review=review), {**after, self.model: cache}, memory, log

    def _continues_alone(self, memory: Memory, context: Context) -> jax.Array:
        """Rows [B] in which the large model continues by itself."""
        if not self.official:
            return jnp.zeros_like(context.active)
        return context.active & ((context.length == context.begin) | memory)

    def _ends(self, draft: Draft, context: Context, eos: tuple[int, ...]) -> jax.Array:
        """Rows [B] whose draft ends the text."""
        full = (draft.length > 0) & (draft.length >= context.room)
        return full | ends_with_eos(draft.tokens, draft.length, eos)
