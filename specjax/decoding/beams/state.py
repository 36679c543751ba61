"""What a beam search is made of, and what it carries from round to round.

Letters: B batch rows, W beams, M most new tokens, S slots of the trie, P prompt length.

A row's hypotheses lie as a trie in one row of the cache, behind the prompt. Rank r of the
hypotheses of n tokens has its last token in slot n W + r of the trie; the W of step 0 are the same
pending token. So a step feeds W tokens of one row, and no cache is ever reordered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from specjax.contracts.env import Env, Models
from specjax.decoding.beams.step import Finished, Live, count_kept
from specjax.models.base import Cache, LanguageModel, Params, check_same_prompts


class BeamDrafter:
    """Goes on with hypotheses; what it needs beside them is its memory of one round.

    `Nodes` are those of `trie`. `follow` is told which hypotheses the next step has, and `end` when
    the draft is made.
    """

    @property
    def models(self) -> tuple[str, ...]:
        """Models that it runs."""
        return ()

    @property
    def tables(self) -> tuple[str, ...]:
        """Other parameter trees that it reads."""
        return ()

    def begin(self, decoder: BeamDecoder, state: State, live: Any) -> Any:
        """The memory of hypotheses of the `live` nodes."""
        return ()

    def logits(
        self, decoder: BeamDecoder, env: Env, state: State, memory: Any, level: Any, first: int
    ) -> tuple[jax.Array, Any]:
        """Logits [B, T, V] behind a round's nodes from `first` on, and the memory."""
        raise NotImplementedError

    def follow(self, memory: Any, best: Live) -> Any:
        """The memory of hypotheses that go on from those of before."""
        return memory

    def end(self, state: State, memory: Any) -> State:
        """The state behind a draft."""
        return state

    def check(self, decoder: BeamDecoder, params: Mapping[str, Any]) -> None:
        """Raises ValueError when parameter trees are of no use to it."""


@dataclasses.dataclass(frozen=True)
class BeamDecoder:
    """Everything static of a beam search."""

    models: Models
    beams: int  # W
    max_new_tokens: int  # M
    length: int = 0  # steps that are drafted; 0: plain beam search
    width: int = 0  # hypotheses of a drafted step; at least W
    drafter: BeamDrafter = BeamDrafter()
    target: str = "target"

    def __post_init__(self) -> None:
        known = dict(self.models)
        for name in self.used:
            if name not in known:
                raise ValueError(f"model {name!r} is not among {', '.join(map(repr, known))}")
            check_same_prompts(name, known[name], self.target_model)
        vocabulary = self.target_model.info.vocab_size
        if self.candidates > vocabulary:
            raise ValueError(
                f"beams is {self.beams}; {self.candidates} candidates are needed, of a vocabulary"
                f" of {vocabulary}"
            )
        for name in self.used:
            if self.length and self.least_vocabulary > known[name].info.vocab_size:
                raise ValueError(f"width is {self.width}; model {name!r} has too few tokens for it")

    @property
    def target_model(self) -> LanguageModel:
        return dict(self.models)[self.target]

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the models that run, the target first."""
        return (self.target, *self.drafter.models)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of all parameter trees that are read."""
        return (*self.used, *self.drafter.tables)

    @property
    def least_vocabulary(self) -> int:
        """Tokens of which the `width` likeliest that do not end a text can be taken."""
        return self.width + len(self.target_model.info.eos)

    @property
    def candidates(self) -> int:
        """Candidates of a step."""
        return count_kept(self.beams, len(self.target_model.info.eos))

    @property
    def depth(self) -> np.ndarray:
        """Drafted steps before each node of a round [N], live hypotheses first, then by step."""
        drafted = np.repeat(np.arange(1, self.length + 1), self.width)
        return np.concatenate([np.zeros(self.beams, int), drafted])

    @property
    def slots(self) -> int:
        """Slots of the trie: all steps but the last, which is never fed, and a round's nodes."""
        return self.beams * (self.max_new_tokens - 1) + len(self.depth)

    def env(self, params: dict[str, Params]) -> Env:
        """The models with their parameters."""
        return Env(params, self.models, self.target)


class Search(struct.PyTreeNode):
    """Carry of the loop: what was found so far."""

    step: jax.Array  # [B] int32: tokens of the live hypotheses
    live: Live
    seen: jax.Array  # [B, W, S] bool: slots before its own that each live hypothesis sees
    finished: Finished
    tokens: jax.Array  # [B, M + 1, W] int32: last token of each hypothesis, by step and rank
    ranks: jax.Array  # [B, M + 1, W] int32: rank in the step before of what it goes on from
    active: jax.Array  # [B] bool
    rounds: jax.Array  # [B] int32: target calls while the row was active
    drafts: jax.Array  # [B] int32: drafter calls for it


class State(struct.PyTreeNode):
    """Carry of the loop: the search and what the models remember."""

    search: Search
    caches: dict[str, Cache]
    begin: dict[str, jax.Array]  # [B] by model: the cache slot where the trie begins
    prompt: jax.Array  # [B, P] int32
    prompt_length: jax.Array  # [B] int32
    head: jax.Array  # [B, H] int32: what hypotheses begin with behind an encoder


def first_search(decoder: BeamDecoder, pending: jax.Array, active: jax.Array) -> Search:
    """One hypothesis of no tokens, whose `pending` token [B] the target has not read."""
    rows, beams, most = len(pending), decoder.beams, decoder.max_new_tokens
    nothing = jnp.full((rows, beams), -jnp.inf)
    zeros = jnp.zeros((rows, beams), jnp.int32)
    baseline = jnp.broadcast_to(jnp.where(jnp.arange(beams) == 0, 0.0, -jnp.inf), (rows, beams))
    token = jnp.broadcast_to(pending[:, None], (rows, beams))
    table = jnp.zeros((rows, most + 1, beams), jnp.int32)
    return Search(
        step=jnp.zeros(rows, jnp.int32),
        live=Live(baseline, token, zeros),
        seen=jnp.zeros((rows, beams, decoder.slots), bool),
        finished=Finished(nothing, zeros, zeros, zeros),
        tokens=table,
        ranks=table,
        active=active,
        rounds=jnp.zeros(rows, jnp.int32),
        drafts=jnp.zeros(rows, jnp.int32),
    )
