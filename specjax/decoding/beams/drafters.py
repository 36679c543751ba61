"""Drafters that extend hypotheses: a model, n-gram counts, copies.

Each returns the next-token logits of every hypothesis; `drafting.draft` keeps the beam. Letters: B
batch rows, W beams, T hypotheses of a drafted step, M most new tokens, L length of a text, V
vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts.env import Env
from specjax.decoding.beams.state import BeamDecoder, BeamDrafter, State
from specjax.decoding.beams.step import Live
from specjax.decoding.beams.trie import Nodes, placement
from specjax.drafting import nodes as drafted
from specjax.drafting.copying import match_sizes
from specjax.drafting.ngram import bigram_logits
from specjax.drafting.proposer import Proposer
from specjax.models.base import Cache

MATCH = 4.0
"""Factor by which a copy's probability grows with each token of its match."""


@dataclasses.dataclass(frozen=True)
class BeamProposer(BeamDrafter):
    """A proposer that only reads the fed tokens; its memory is its model's cache, if any.

    Its `drafting.nodes.Nodes` contain only the tokens and their placement.
    """

    proposer: Proposer

    @property
    def models(self) -> tuple[str, ...]:
        return self.proposer.models

    @property
    def tables(self) -> tuple[str, ...]:
        return self.proposer.resources

    def begin(self, decoder: BeamDecoder, state: State, live: Nodes) -> Cache | None:
        return state.caches[self.models[0]] if self.models else None

    def logits(
        self, decoder: BeamDecoder, env: Env, state: State, memory: Any, level: Nodes, first: int
    ) -> tuple[jax.Array, Any]:
        where = {}
        if self.models:
            begin = state.begin[self.models[0]]
            where = placement(decoder, state.search, begin, level, first)
        token = jnp.minimum(level.token, self.proposer.drafted_ids(env) - 1)  # it may have fewer
        fed = drafted.Nodes(token, 1, token, placement=where)
        return self.proposer.feed(env, memory, fed)

    def end(self, state: State, memory: Any) -> State:
        caches = {name: memory for name in self.models}
        return state.replace(caches={**state.caches, **caches})


@dataclasses.dataclass(frozen=True)
class Bigram(BeamDrafter):
    """The most probable successors of the last token, from fitted counts; without memory."""

    table: str

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.table,)

    def logits(
        self, decoder: BeamDecoder, env: Env, state: State, memory: Any, level: Nodes, first: int
    ) -> tuple[jax.Array, Any]:
        return _successors(env.params[self.table], level.token), memory

    def check(self, decoder: BeamDecoder, params: Mapping[str, Any]) -> None:
        size = len(params[self.table]["unigram"])
        if decoder.least_vocabulary > size:
            raise ValueError(
                f"width is {decoder.width}; table {self.table!r} has too few tokens for it"
            )


class Texts(struct.PyTreeNode):
    """The memory of copies: prompts followed by the tokens of hypotheses."""

    tokens: jax.Array  # [B, T, L] int32
    length: jax.Array  # [B] int32


@dataclasses.dataclass(frozen=True)
class Copies(BeamDrafter):
    """Successors of earlier occurrences of the last tokens; longer matches are more probable.

    The distribution is one of counts: an occurrence of n tokens counts as `MATCH` to the power of
    n; the distribution of `table`, or the uniform one without a table (""), counts as 1. So the
    longest match leads, as in Max-Gram, and without a match the table decides.
    """

    longest: int
    table: str = ""

    @property
    def tables(self) -> tuple[str, ...]:
        return (self.table,) if self.table else ()

    def begin(self, decoder: BeamDecoder, state: State, live: Nodes) -> Texts:
        return texts(decoder, state, live)

    def logits(
        self, decoder: BeamDecoder, env: Env, state: State, memory: Texts, level: Nodes, first: int
    ) -> tuple[jax.Array, Texts]:
        rows, count = level.token.shape
        flat = memory.tokens.reshape(rows * count, -1)
        length = jnp.repeat(memory.length, count)
        pattern = length  # of an encoder-decoder row only generated tokens, as in `copying`
        if decoder.target_model.info.start_token is not None:
            pattern = length - jnp.repeat(state.prompt_length, count)
        size = match_sizes(flat, length, pattern, self.longest)
        weight = jnp.where(size > 0, MATCH**size, 0.0)
        distribution = self._distribution(decoder, env, level.token)
        at = jnp.arange(rows * count)[:, None]
        following = jnp.roll(flat, -1, axis=1)
        distribution = (
            distribution.reshape(rows * count, -1).at[at, following].add(weight, mode="drop")
        )
        return jnp.log(distribution).reshape(rows, count, -1), memory

    def _distribution(self, decoder: BeamDecoder, env: Env, last: jax.Array) -> jax.Array:
        """Probabilities [B, T, V] without a match."""
        if self.table:
            return jnp.exp(_successors(env.params[self.table], last))
        vocabulary = decoder.target_model.info.vocab_size
        return jnp.full((*last.shape, vocabulary), 1.0 / vocabulary)

    def follow(self, memory: Texts, best: Live) -> Texts:
        tokens = jnp.take_along_axis(memory.tokens, best.rank[..., None], axis=1)
        row, which = jnp.arange(len(tokens))[:, None], jnp.arange(tokens.shape[1])
        tokens = tokens.at[row, which, memory.length[:, None]].set(best.token, mode="drop")
        return Texts(tokens, memory.length + 1)

    def check(self, decoder: BeamDecoder, params: Mapping[str, Any]) -> None:
        if self.table:
            Bigram(self.table).check(decoder, params)


def texts(decoder: BeamDecoder, state: State, live: Nodes) -> Texts:
    """Prompts followed by the tokens of the live hypotheses, with room for a draft.

    A hypothesis sees one slot of each of its steps, by its rank in that step.
    """
    search, prompt, length = state.search, state.prompt, state.prompt_length
    beams, most = decoder.beams, decoder.max_new_tokens
    size = prompt.shape[1] + most + decoder.length
    slots = live.sees[:, :, : most * beams].reshape(len(prompt), beams, most, beams)
    rank = jnp.argmax(slots, axis=-1).swapaxes(1, 2)  # [B, M, W], of steps 0 to M - 1
    token = jnp.take_along_axis(search.tokens[:, :most], rank, axis=2).swapaxes(1, 2)
    place = jnp.arange(size)
    step = jnp.clip(place - length[:, None] + 1, 0, most - 1)  # [B, L]
    generated = jnp.take_along_axis(token, step[:, None], axis=2)
    padded = jnp.pad(prompt, ((0, 0), (0, size - prompt.shape[1])))[:, None]
    joined = jnp.where((place < length[:, None])[:, None], padded, generated)
    return Texts(joined, length + search.step)


def _successors(table: Mapping[str, jax.Array], last: jax.Array) -> jax.Array:
    """Log-probabilities [B, T, V] of the tokens after `last` [B, T]."""
    return bigram_logits(dict(table), last.reshape(-1)).reshape(*last.shape, -1)
