"""Drafts a block of tokens from the target's states in one call.

Chen et al., "DFlash: Block Diffusion for Flash Speculative Decoding" (2026)
(docs/methods/dflash.md). The tokens are independent given the text, or each distribution is
corrected by the tokens before it (`models.correction`): DSpark (arXiv 2607.05147), DFlash 2, Domino
(arXiv 2605.29707).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts.context import Context, get_pending_tokens
from specjax.contracts.drafter import Log
from specjax.contracts.env import Env, Models
from specjax.contracts.registry import DRAFTERS
from specjax.contracts.rows import Caches
from specjax.contracts.spec import Call
from specjax.drafting.chain import Progress
from specjax.drafting.nodes import Nodes
from specjax.drafting.on_target import OnTarget, TargetStates
from specjax.models.base import Cache, Params
from specjax.models.dflash import DFlash as Model
from specjax.models.vocabularies import unwrap


@dataclasses.dataclass(frozen=True)
class Block(OnTarget):
    """Shared parts of block drafters: the block after the target's states."""

    skipped_places: int = 1  # places before the first drafted one, known with the models

    drives = Model

    def bind_models(self, models: Models) -> Self:
        made = super().bind_models(models)
        model = dict(models).get(self.model)
        if model is None:
            return made
        skipped = getattr(model.config, "skipped_places", self.skipped_places)
        return dataclasses.replace(made, skipped_places=skipped)

    def call(self, tokens: int, logits: int) -> Call:
        return Call(self.model, self.depth + self.skipped_places, logits)

    def check(self, env: Env) -> None:
        """Refuses another target's drafter, and drafts longer than the blocks of its training.

        Raises:
          ValueError: saying what does not fit.
        """
        super().check(env)
        config = unwrap(env[self.model].model).config
        if self.depth > config.longest:
            among = "" if config.anchor_first else ", the pending one among them"
            raise ValueError(
                f"{self.depth_words}; {self.model!r} was trained on blocks of {config.block_size}"
                f" tokens{among}, so it must be at most {config.longest}"
            )

    def block(
        self, env: Env, caches: Caches, memory: TargetStates, context: Context
    ) -> tuple[jax.Array, Cache]:
        """The tokens [B, N] of a block, of which the first is read, and the cache before it."""
        cache = self.absorb_states(env, caches, memory).replace(length=context.length - 1)
        shape = len(context.length), self.depth + self.skipped_places
        return jnp.broadcast_to(get_pending_tokens(context)[:, None], shape), cache

    def after(self, caches: Caches, cache: Cache, context: Context) -> Caches:
        """The caches without what the block left, which is not of the text."""
        return {**caches, self.model: cache.replace(length=context.length - 1)}


@DRAFTERS.register("dflash", example={"length": 3})
@dataclasses.dataclass(frozen=True)
class DFlash(Block):
    """Tokens at mask positions that read the target's states, all from one call."""

    parallel = True
    lacks = ()

    def open(
        self, env: Env, caches: Caches, memory: TargetStates, context: Context
    ) -> tuple[jax.Array, Cache]:
        block, cache = self.block(env, caches, memory, context)
        at = jnp.broadcast_to(
            jnp.arange(self.skipped_places, block.shape[1]), (len(block), self.depth)
        )
        output, cache = env[self.model].extend(block, cache, at=at)
        return output.logits, cache

    def close(
        self, env: Env, caches: Caches, state: Cache, context: Context, drafted: Progress | None
    ) -> tuple[Caches, dict[str, jax.Array], Log]:
        return self.after(caches, state, context), {}, {}


class CorrectedBlock(struct.PyTreeNode):
    """A block, and what its correction knows of the tokens that were drafted so far."""

    cache: Cache
    logits: jax.Array  # [B, K, U] of its places, before the correction
    hidden: jax.Array  # [B, K, D] their states
    states: jax.Array  # [B, G, J] of the correction after each of the G distributions so far
    confidence: jax.Array | None  # [B] of the next token of a chain


@DRAFTERS.register("dspark", example={"length": 3})
@dataclasses.dataclass(frozen=True)
class DSpark(Block):
    """Tokens of one block, each corrected by those before it."""

    corrected = True

    def check(self, env: Env) -> None:
        """The same, and refuses a model without a correction.

        Raises:
          ValueError: saying what does not fit.
        """
        super().check(env)
        if unwrap(env[self.model].model).config.correction is None:
            raise ValueError(
                f"model is {self.model!r}, which has no correction; its drafter must be 'dflash'"
            )

    def open(
        self, env: Env, caches: Caches, memory: TargetStates, context: Context
    ) -> tuple[jax.Array, CorrectedBlock]:
        block, cache = self.block(env, caches, memory, context)
        model, params = self._model(env)
        logits, hidden, cache = model.draft_block(params, cache, block)
        size = model.config.correction.state_size if model.config.correction else 0
        count = len(self.shape.inner) + 1 if self.shape else self.depth
        states = jnp.zeros((len(block), count, size), hidden.dtype)
        opened = CorrectedBlock(cache, logits, hidden, states, None)
        first = jnp.zeros((len(block), 1, size), hidden.dtype)
        corrected, opened = self._correct(env, opened, block[:, :1], first, 0, 0)
        return corrected[:, 0], opened

    def feed(
        self, env: Env, state: CorrectedBlock, nodes: Nodes
    ) -> tuple[jax.Array, CorrectedBlock]:
        if nodes.numbers is None or nodes.parents is None:
            before = jax.lax.dynamic_slice_in_dim(state.states, nodes.depth - 1, 1, axis=1)
            return self._correct(env, state, nodes.tokens, before, nodes.depth, nodes.depth)
        before = state.states[:, nodes.parents]
        return self._correct(env, state, nodes.tokens, before, nodes.depth, nodes.numbers[0])

    def _correct(
        self,
        env: Env,
        state: CorrectedBlock,
        tokens: jax.Array,
        before: jax.Array,
        place: jax.Array | int,
        first: Any,
    ) -> tuple[jax.Array, CorrectedBlock]:
        """Logits [B, m, V] of a place after tokens [B, m], whose states were `before` [B, m, J].

        The new states are those of the distributions from number `first` on.
        """
        model, params = self._model(env)

        def of_place(values: jax.Array) -> jax.Array:
            one = jax.lax.dynamic_slice_in_dim(values, place, 1, axis=1)
            return jnp.broadcast_to(one, (*tokens.shape, one.shape[-1]))

        logits, after, confidence = model.correct(
            params,
            state.cache,
            of_place(state.logits),
            of_place(state.hidden),
            tokens,
            before,
            jnp.broadcast_to(jnp.asarray(place, jnp.int32), tokens.shape),
        )
        logits = logits[..., : env[self.model].info.vocab_size]  # ids that all models have
        states = jax.lax.dynamic_update_slice_in_dim(state.states, after, first, axis=1)
        correction = model.config.correction
        if confidence is not None and correction is not None:
            confidence = None if self.shape else correction.calibrate(confidence[:, 0], place)
        return logits, state.replace(states=states, confidence=confidence)

    def _model(self, env: Env) -> tuple[Model, Params]:
        """The model itself, with all its ids, and its parameters."""
        model = self._feature_drafter(env)
        assert isinstance(model, Model)
        return model, env[self.model].params

    def estimate_acceptance(self, logits: jax.Array, state: CorrectedBlock) -> jax.Array:
        if state.confidence is None:
            return super().estimate_acceptance(logits, state)
        return state.confidence

    def close(
        self,
        env: Env,
        caches: Caches,
        state: CorrectedBlock,
        context: Context,
        drafted: Progress | None,
    ) -> tuple[Caches, dict[str, jax.Array], Log]:
        return self.after(caches, state.cache, context), {}, {}
