"""The static parts of a beam search and its state between rounds.

Letters: B batch rows, W beams, M most new tokens, S slots of the trie, P prompt length.

A row's hypotheses are stored as a trie in one row of the cache, after the prompt. The hypothesis of
n tokens and rank r has its last token in slot n W + r of the trie; the W slots of step 0 hold the
same pending token. So a step feeds W tokens of one row, and no cache is ever reordered.
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
from specjax.decoding.beams.step import FinishedHypotheses, Live, count_kept
from specjax.models.base import Cache, LanguageModel, Params, check_same_prompts


class BeamDrafter:
    """A drafter that extends hypotheses; its memory lasts one round.

    `Nodes` are those of `trie`. `follow` selects the hypotheses of the next step; `end` is called
    after the draft.
    """

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models that it runs."""
        return ()

    @property
    def tables(self) -> tuple[str, ...]:
        """Names of other parameter trees that it reads."""
        return ()

    def begin(self, decoder: BeamDecoder, state: State, live: Any) -> Any:
        """The initial memory of the hypotheses of the `live` nodes."""
        return ()

    def logits(
        self, decoder: BeamDecoder, env: Env, state: State, memory: Any, level: Any, first: int
    ) -> tuple[jax.Array, Any]:
        """Logits [B, T, V] after a round's nodes from `first` on, and the memory."""
        raise NotImplementedError

    def follow(self, memory: Any, best: Live) -> Any:
        """The memory of hypotheses that extend the given parents."""
        return memory

    def end(self, state: State, memory: Any) -> State:
        """The state after a draft."""
        return state

    def check(self, decoder: BeamDecoder, params: Mapping[str, Any]) -> None:
        """Raises ValueError when its parameter trees are invalid."""


@dataclasses.dataclass(frozen=True)
class BeamDecoder:
    """The static parts of a beam search."""

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
        """Smallest vocabulary that has `width` tokens which do not end a text."""
        return self.width + len(self.target_model.info.eos)

    @property
    def candidates(self) -> int:
        """Number of candidates of a step."""
        return count_kept(self.beams, len(self.target_model.info.eos))

    @property
    def depth(self) -> np.ndarray:
        """Drafted steps before each node of a round [N], live hypotheses first, then by step."""
        drafted = np.repeat(np.arange(1, self.length + 1), self.width)
        return np.concatenate([np.zeros(self.beams, int), drafted])

    @property
    def slots(self) -> int:
        """Slots of the trie: all steps except the last, which is never fed, and a round's nodes."""
        return self.beams * (self.max_new_tokens - 1) + len(self.depth)

    def env(self, params: dict[str, Params]) -> Env:
        """The models with their parameters."""
        return Env(params, self.models, self.target)


class Search(struct.PyTreeNode):
    """Carry of the loop: the hypotheses so far."""

    step: jax.Array  # [B] int32: tokens of the live hypotheses
    live: Live
    visible_slots: jax.Array  # [B, W, S] bool: slots before its own that each live hypothesis sees
    finished: FinishedHypotheses
    tokens: jax.Array  # [B, M + 1, W] int32: last token of each hypothesis, by step and rank
    ranks: jax.Array  # [B, M + 1, W] int32: rank of its parent in the previous step
    active: jax.Array  # [B] bool
    rounds: jax.Array  # [B] int32: target calls while the row was active
    drafts: jax.Array  # [B] int32: drafter calls for it


class State(struct.PyTreeNode):
    """Carry of the loop: the search, caches and memory of the models."""

    search: Search
    caches: dict[str, Cache]
    begin: dict[str, jax.Array]  # [B] by model: the cache slot where the trie begins
    prompt: jax.Array  # [B, P] int32
    prompt_length: jax.Array  # [B] int32
    head: jax.Array  # [B, H] int32: the decoder prefix of an encoder-decoder model


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
        visible_slots=jnp.zeros((rows, beams, decoder.slots), bool),
        finished=FinishedHypotheses(nothing, zeros, zeros, zeros),
        tokens=table,
        ranks=table,
        active=active,
        rounds=jnp.zeros(rows, jnp.int32),
        drafts=jnp.zeros(rows, jnp.int32),
    )
