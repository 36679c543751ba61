"""The drafter contract: what a drafter sees, what it proposes, and how proposals are made.

A drafter is a frozen, hashable dataclass. Arrays it needs (weights, n-gram tables) come in through
`params[name]`; thresholds that people sweep come in through `context.options`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol, TypeVar

import jax
import jax.numpy as jnp
from flax import struct

from specjax.drafting.running import Running
from specjax.models.base import Cache, LanguageModel
from specjax.sampling import Sampling, adjust, argmax, draw

Models = tuple[tuple[str, LanguageModel], ...]
Caches = dict[str, Cache]

T = TypeVar("T")

MOST_DRAFTED = 1000
"""Tokens of a draft at most: all are verified, and of so many hardly any are kept."""

GOING, LENGTH, STOPPED, NO_MATCH, ENDED, HELD = range(6)
"""Stop reasons of a draft: unused, all K proposed or the row full, predicate, nothing to copy,
the draft ends the text, the drafter was not asked."""

STOP_REASONS = ("going", "length", "stopped", "no_match", "ended", "held")
"""Their names, for tables."""


@struct.dataclass
class Options:
    """Everything traced that a user may sweep without recompiling."""

    sampling: Sampling
    numbers: dict[str, jax.Array]  # thresholds by name: "lenience", "confidence", ...
    arms: jax.Array | None = None  # [B] int32: the arm of each row, where the caller gives it


@struct.dataclass
class Context:
    """What is known of every row at the start of a round.

    `tokens[b, :length[b]]` is committed: decoder start token or prompt first, then what was
    generated from `begin[b]` on. `source` is the encoder input, [B, 0] for decoder-only models.
    """

    source: jax.Array  # [B, S] int32
    source_length: jax.Array  # [B] int32
    tokens: jax.Array  # [B, L] int32
    length: jax.Array  # [B] int32
    begin: jax.Array  # [B] int32
    limit: jax.Array  # [B] int32: the length at which a row ends
    active: jax.Array  # [B] bool
    running: Running
    options: Options
    rejected: jax.Array | None = None  # [B] bool: the round before rejected a drafted token
    memory: Any = None  # of `selected.Arms`; never rewound

    @property
    def room(self) -> jax.Array:
        """How many tokens still fit into the row [B].

        A drafter may stop there, but the tokens before must be those that it drafts in a longer
        row: outputs then do not depend on where rows end.
        """
        return jnp.where(self.active, self.limit - self.length, 0)


@struct.dataclass
class Draft:
    """A proposal of up to K tokens per row; entries at and beyond `length` mean nothing."""

    tokens: jax.Array  # [B, K] int32
    length: jax.Array  # [B] int32
    probs: jax.Array | None  # [B, K, V] the law each token was drawn from; None: one-hot
    source: jax.Array  # [B, K] int32: index into the drafter's `writers`
    calls: dict[str, jax.Array]  # runs per row, [B] int32 by `Call.part`
    stop_reason: jax.Array  # [B] int32
    # [B, K] the proposer's own probability of each token at temperature 1, for inner lenience;
    # infinity, or None for all: reviewed without lenience.
    score: jax.Array | None = None
    # [B] bool: rows that end with this draft, unreviewed.
    final: jax.Array | None = None
    logits: jax.Array | None = None  # [B, K, V] of the proposer, when its rule compares laws
    # [B, K + 1, D] states of the pending and the drafted tokens after the target's own first
    # `resume_from` layers, when those were the drafter: the target goes on from them.
    resume: jax.Array | None = None
    resume_from: int = struct.field(pytree_node=False, default=0)
    arm: jax.Array | None = None  # [B] int32: which of several drafters drafted


def touched(drafter: Drafter) -> int:
    """Most slots, the pending token's first, that a round with the drafter writes to."""
    return max(drafter.width, drafter.reach) + 1


STATES = " states"
"""Ending of a `Call.part` that computes no logits."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One run of a model: what it costs and how many operations it takes depend on this."""

    model: str
    tokens: int  # fed
    logits: int  # fed tokens whose next-token logits are computed
    exit: int | None = None  # decoder layers after which it ends; None: all
    resume_from: int = 0  # decoder layers that an earlier call ran

    @property
    def part(self) -> str:
        """The name of the model, with the layers that run if not all do."""
        if self.exit is None and not self.resume_from:
            return self.model
        layers = f"{self.model}[{self.resume_from or ''}:{self.exit or ''}]"
        return layers if self.logits else layers + STATES


class Drafter(Protocol):
    """Anything that proposes tokens."""

    @property
    def width(self) -> int:
        """Most tokens it proposes."""

    @property
    def reach(self) -> int:
        """How far beyond the committed tokens it touches caches or buffers."""

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models whose caches it uses."""

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of the parameter trees it reads that are not models."""

    @property
    def writers(self) -> tuple[str, ...]:
        """Who writes its tokens; `Draft.source` points into this."""

    @property
    def schedule(self) -> tuple[Call, ...]:
        """The model calls of a draft of full width, in their order."""

    def draft(
        self,
        models: Models,
        params: dict[str, Any],
        caches: Caches,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches]:
        """Proposes tokens after `context.tokens[:, :length]`; consumes `keys` [B]."""


class Modelless:
    """What all drafters that run no model have in common."""

    reach: ClassVar[int] = 0
    models: ClassVar[tuple[str, ...]] = ()
    schedule: ClassVar[tuple[Call, ...]] = ()

    @property
    def tables(self) -> tuple[str, ...]:
        return ()

    @property
    def width(self) -> int:
        return self.length


def distinct(groups: Iterable[Iterable[T]]) -> tuple[T, ...]:
    """What is in any of the groups, each once, in order."""
    return tuple(dict.fromkeys(each for group in groups for each in group))


def parts(drafter: Drafter) -> tuple[str, ...]:
    """What of which models a drafter runs (`Call.part`)."""
    return tuple(dict.fromkeys(call.part for call in drafter.schedule))


def review_call(drafter: Drafter, target: str, drafted: int) -> Call:
    """The target's call on the pending token and `drafted` others.

    Layers that drafted them are not run again, but behind drafters that are `reviewed_whole`.
    """
    if getattr(drafter, "reviewed_whole", False):
        return Call(target, drafted + 1, drafted + 1)
    ran = (call.exit or 0 for call in drafter.schedule if call.model == target)
    return Call(target, drafted + 1, drafted + 1, resume_from=max(ran, default=0))


def lookup(models: Models, name: str) -> LanguageModel:
    """The model called `name`."""
    return dict(models)[name]


def fold(keys: jax.Array, data: jax.Array | int) -> jax.Array:
    """Each row's key folded with its own number (or one number for all)."""
    numbers = jnp.broadcast_to(jnp.asarray(data, jnp.int32), keys.shape)
    return jax.vmap(jax.random.fold_in)(keys, numbers)


def propose(
    logits: jax.Array, settings: Sampling, keys: jax.Array
) -> tuple[jax.Array, jax.Array | None]:
    """A token [B] from logits [B, V] and its law [B, V], None when greedy."""
    if settings.greedy:
        return argmax(logits), None
    probs = adjust(logits, settings)
    return draw(keys, probs), probs


def last_token(context: Context) -> jax.Array:
    """The pending token [B] of every row."""
    return jnp.take_along_axis(context.tokens, context.length[:, None] - 1, axis=1)[:, 0]


def until_eos(tokens: jax.Array, eos: tuple[int, ...]) -> jax.Array:
    """Tokens [B] of tokens [B, N] up to and including the first EOS; N when there is none."""
    size = tokens.shape[1]
    if size == 0:
        return jnp.zeros((tokens.shape[0],), jnp.int32)
    is_eos = jnp.isin(tokens, jnp.array(eos))
    return jnp.where(jnp.any(is_eos, axis=1), jnp.argmax(is_eos, axis=1) + 1, size)
