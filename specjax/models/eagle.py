"""A drafter on the target's features: one decoder layer that reads what the target computed.

Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time
Test" (2025) (docs/methods/eagle.md). What the layer reads of token t is its embedding beside the
target's states of token t - 1, of several layers and fused into one vector. A drafted token's
target states do not exist: the drafter's own last state stands in. For encoder-decoder targets the
layer also attends to the target's own cross-attention keys and values: nothing is encoded twice.

Published drafters (models/families/eagle3.py) differ in details: where norms are, whether the first
token is seen, which state is handed on. `OnTarget` has a field for each.

Dimension letters as in `models.base`; F target layers are read, U ids can be drafted, E is the
target's width.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from specjax.models import causal, t5
from specjax.models.attention import (
    AnyBias,
    CausalBias,
    WithoutFirst,
    attention,
    of_call,
    of_tree,
)
from specjax.models.base import Cache, LanguageModel, Output, Params, PromptReading, Resume
from specjax.models.caches import KeysValues, gathered, remembered, write
from specjax.models.eagle_shapes import Shape, beside
from specjax.models.layers import (
    MASKED,
    Dense,
    FeedForward,
    RMSNorm,
    Tree,
    apply,
    key_mask,
    merge_heads,
    tree_mask,
)
from specjax.models.linen import LinenModel
from specjax.models.relative_bias import RelativeBias, RelativeBiasOf, tree_bias
from specjax.models.windows import of_fed

Cross = tuple[jax.Array, jax.Array, AnyBias]
"""The target's cross-attention keys and values [B, H, P, d] of one layer, and their mask."""

FROZEN = ("embedding", "ids")
"""Parameters that are the target's, or chosen from its texts, and not trained."""


class Layer(nn.Module):
    """Self-attention over embeddings beside states, on the residual stream of the states."""

    config: Shape

    def setup(self) -> None:
        c = self.config
        self.embedding_norm, self.state_norm = RMSNorm(c.eps), RMSNorm(c.eps)
        self.ff_norm = RMSNorm(c.eps)
        self.ff = FeedForward(c.d_ff, c.activation, c.gated, c.dtype, c.dropout)
        if c.cross:
            self.attention = t5.Attention(c)
            self.cross_norm, self.cross_attention = RMSNorm(c.eps), t5.Attention(c.of_cross)
        else:
            self.attention = causal.Attention(c)

    def queries_keys_values(
        self, embedded: jax.Array, before: jax.Array, angles: jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Head-major, of embeddings [B, T, E] beside the states before them [B, T, D]."""
        parts = self.embedding_norm(embedded), self.state_norm(before)
        x = jnp.concatenate(parts, axis=-1)
        if self.config.cross:
            return self.attention.queries(x), *self.attention.keys_values(x)
        return self.attention.queries_keys_values(x, angles)

    def __call__(
        self,
        before: jax.Array,
        q: jax.Array,
        k: jax.Array,
        v: jax.Array,
        bias: AnyBias,
        cross: Cross | None,
    ) -> jax.Array:
        """The drafter's states [B, T, D]."""
        residual = self.state_norm(before) if self.config.normed_residual else before
        x = residual + self.attention(q, k, v, bias)
        if cross is not None:
            h = self.cross_attention.queries(self.cross_norm(x))
            # Its own `o`, on keys and values that the target made.
            x = x + self.cross_attention.o(merge_heads(attention(h, *cross)))
        return x + self.ff(self.ff_norm(x))


class EagleModule(nn.Module):
    """Parameters and the layer; `Eagle` wraps it into the model contract."""

    config: Shape

    def setup(self) -> None:
        c = self.config
        normal = nn.initializers.normal(1.0)
        width = c.embedding_width or c.target_width
        self.embedding = self.param("embedding", normal, (c.vocab_size, width), jnp.float32)
        self.ids = self.param("ids", lambda _: jnp.arange(c.draft_vocab, dtype=jnp.int32))
        self.feature_norms = [RMSNorm(c.eps) for _ in range(c.feature_norms)]
        self.fuse = Dense(c.d_model, c.dtype)
        self.layer = Layer(c)
        self.final_norm = RMSNorm(c.eps)
        self.head = Dense(c.draft_vocab, c.dtype)
        if c.cross:
            self.position_bias = RelativeBias(c.num_heads, c.buckets, c.max_distance, False)

    def embed(self, tokens: jax.Array) -> jax.Array:
        return self.embedding[tokens].astype(self.config.dtype)

    def fused(self, features: jax.Array) -> jax.Array:
        """States [B, T, D] of the target's [B, T, F * E]."""
        if norms := self.feature_norms:
            parts = jnp.split(features, len(norms), axis=-1)
            parts = [norm(part) for norm, part in zip(norms, parts, strict=True)]
            features = jnp.concatenate(parts, axis=-1)
        return self.fuse(features)

    def handed_on(self, states: jax.Array) -> jax.Array:
        """What stands in for the target's states [B, T, D] behind a drafted token."""
        return self.final_norm(states) if self.config.normed_states else states

    def drafted_logits(self, states: jax.Array) -> jax.Array:
        """Float32 logits [..., U] of the ids that can be drafted, of what is handed on."""
        normed = states if self.config.normed_states else self.final_norm(states)
        return self.head(normed).astype(jnp.float32)

    def places(self) -> jax.Array:
        """Of every id [V] its place among those that can be drafted; U: it cannot."""
        c = self.config
        places = jnp.full((c.vocab_size,), c.draft_vocab, jnp.int32)
        return places.at[self.ids].set(jnp.arange(c.draft_vocab, dtype=jnp.int32))

    def reversed_bias(self, capacity: int) -> jax.Array:
        """Self-attention bias and causal mask by position, [H, 2 * capacity] (`bias_rows`)."""
        distance = np.arange(-(capacity - 1), capacity + 1)
        return self.position_bias(distance) + np.where(distance > 0, MASKED, 0.0)

    def angles(self, position: jax.Array) -> jax.Array | None:
        c = self.config
        return None if c.cross else c.rope.angles(position, position + 1)

    def decode_step(
        self,
        tokens: jax.Array,
        before: jax.Array,
        data: dict[str, Any],
        start: jax.Array,
        at: jax.Array | None,
        tree: Tree | None,
    ) -> tuple[jax.Array, jax.Array, KeysValues]:
        """Logits [B, A, V], states [B, T, D] and the keys and values of tokens [B, T]."""
        (own,), fed = data["own"], tokens.shape[1]
        position = start[:, None] + jnp.arange(fed) if tree is None else tree[0][:, -fed:]
        parts = self.layer.queries_keys_values(self.embed(tokens), before, self.angles(position))
        own = remembered(own, parts[1:], start)
        cross = None
        if not self.config.cross:
            bias = self.own_bias(own, start, fed, tree)
        else:
            cross = *data["cross"], data["cross_bias"]
            if tree is None:
                slots = data["bias"].shape[1] // 2
                bias = of_call(RelativeBiasOf(data["bias"], start), start, fed, slots)
            else:
                bias = of_tree(tree_bias(data["bias"], tree, start), start)
        states = self.handed_on(self.layer(before, parts[0], *own, bias, cross))
        wanted = states
        if at is not None:
            wanted = jnp.take_along_axis(states, at[..., None], axis=1, mode="clip")
        logits = self.drafted_logits(wanted)
        lacking = jnp.full((*logits.shape[:-1], 1), MASKED, jnp.float32)
        whole = jnp.concatenate([logits, lacking], axis=-1)
        return jnp.take(whole, data["places"], axis=-1, mode="clip"), states, own

    def own_bias(self, own: KeysValues, start: jax.Array, fed: int, tree: Tree | None) -> AnyBias:
        """The mask of self-attention without relative positions."""
        if self.config.reads_first:
            return of_fed(own, 0, start, fed, tree)
        slots = own[0].shape[2]
        if tree is None:
            return of_call(WithoutFirst(CausalBias(start), start), start, fed, slots)
        places = jnp.arange(slots)
        mask = jnp.minimum(tree_mask(tree, start, places), jnp.where(places > 0, 0.0, MASKED))
        return of_tree(mask, start)

    def unrolled(
        self, tokens: jax.Array, features: jax.Array, cross: Cross | None, steps: int
    ) -> list[jax.Array]:
        """Logits [B, T, U] of every step of a draft behind each of the text's tokens [B, T].

        `features` [B, T, F * E] are the target's states at the tokens. Step k at position t is what
        the drafter says as its token k + 1 when the target's states end at token t - k - 1: keys
        and values up to t - k are of the target's states, the last k of its own (EAGLE-3,
        section 3.2, "training-time test").
        """
        size = tokens.shape[1]
        place = np.arange(size)
        distance = place[None, :] - place[:, None]  # key - query
        position = jnp.broadcast_to(jnp.arange(size), tokens.shape)
        relative = self.position_bias(np.minimum(distance, 0)) if self.config.cross else 0.0
        embedded, state = self.embed(tokens), self.fused(features)
        keys, values, logits = [], [], []
        for step in range(steps):
            before = jnp.pad(state, ((0, 0), (1, 0), (0, 0)))[:, :-1]
            q, k, v = self.layer.queries_keys_values(embedded, before, self.angles(position))
            keys.append(k)
            values.append(v)
            seen = [distance <= -step, *(distance == made - step for made in range(1, step + 1))]
            if not self.config.reads_first:
                seen = [one & ((place > 0) | (distance == 0)) for one in seen]
            masks = [relative + np.where(one, 0.0, MASKED)[None] for one in seen]
            bias = jnp.concatenate(masks, axis=-1)[None].astype(jnp.float32)
            memory = jnp.concatenate(keys, axis=2), jnp.concatenate(values, axis=2)
            state = self.handed_on(self.layer(before, q, *memory, bias, cross))
            logits.append(self.drafted_logits(state))
        return logits

    def __call__(self, tokens: jax.Array) -> list[jax.Array]:
        """One step, on states of zeros: what initialisation needs to see."""
        c, rows = self.config, tokens.shape
        features = jnp.zeros((*rows, c.read * c.target_width), c.dtype)
        cross = None
        if c.cross:
            zeros = jnp.zeros((rows[0], c.cross_heads, 1, c.cross_width), c.dtype)
            cross = zeros, zeros, jnp.zeros((1, 1, 1, 1), jnp.float32)
        return self.unrolled(tokens, features, cross, 1)


@dataclasses.dataclass(frozen=True)
class Eagle(LinenModel):
    """A feature drafter under the contract of `models.base`, as far as drafting needs it.

    Its cache holds, beside keys and values, the state at every slot: the target's, fused, where
    `absorb` put it, else the drafter's own. A call reads the states before the tokens that it
    feeds. `start` reads nothing; `attend` gives it the target's cross-attention cache.
    """

    config: Shape

    @property
    def module(self) -> EagleModule:
        return EagleModule(self.config)

    @property
    def depth(self) -> int:
        return 1

    @property
    def start_token(self) -> int | None:
        return self.config.start_token

    @property
    def max_positions(self) -> None:
        return None

    def init(self, key: jax.Array) -> Params:
        """Freshly initialised float32 parameters; the ids are the first ones."""
        probe = jax.ShapeDtypeStruct((1, 1), jnp.int32)
        return self.module.lazy_init(key, probe)["params"]

    def beside(self, target: LanguageModel) -> Eagle:
        """This drafter, of whose shape a checkpoint may leave something to its target.

        Raises:
          ValueError: when this target does not have it.
        """
        return dataclasses.replace(self, config=beside(self.config, target))

    def unrolled(
        self,
        params: Params,
        tokens: jax.Array,
        features: jax.Array,
        cross: Cross | None,
        steps: int,
    ) -> list[jax.Array]:
        """`EagleModule.unrolled`, for training."""
        given = tokens, features, cross, steps
        return self.module.apply({"params": params}, *given, method="unrolled")

    def start(
        self,
        params: Params,
        prompt: jax.Array,
        prompt_length: jax.Array,
        capacity: int,
        *,
        features: tuple[int, ...] = (),
        ahead: int | None = None,
    ) -> tuple[Cache, PromptReading]:
        c, (rows, width) = self.config, prompt.shape
        heads, size = (c.num_heads, c.d_kv) if c.cross else (c.num_kv_heads, c.d_head)
        empty = jnp.zeros((rows, heads, capacity, size), c.dtype)
        data = {
            "own": [(empty, empty)],
            "states": jnp.zeros((rows, capacity, c.d_model), c.dtype),
            "places": apply(self.module, "places", params),
        }
        length = prompt_length - 1 if c.start_token is None else jnp.zeros_like(prompt_length)
        if c.cross:
            nothing = jnp.zeros((rows, c.cross_heads, width, c.cross_width), c.dtype)
            data["bias"] = self.module.apply({"params": params}, capacity, method="reversed_bias")
            data |= {"cross": (nothing, nothing), "cross_bias": key_mask(prompt_length, width)}
        return Cache(data, length), PromptReading(jnp.zeros((rows, c.d_model), jnp.float32))

    def attend(self, cache: Cache, target: Cache) -> Cache:
        """The cache with the cross-attention keys and values of a target's cache."""
        layer = self.config.cross
        if not layer:
            return cache
        read = {"cross": target.data["cross"][layer - 1], "cross_bias": target.data["cross_bias"]}
        return cache.replace(data={**cache.data, **read})

    def absorb(self, params: Params, cache: Cache, features: jax.Array, slot: jax.Array) -> Cache:
        """The cache with the target's states [B, T, F * E] at the slots from `slot` [B] on."""
        fused = apply(self.module, "fused", params, features)
        states = cache.data["states"]
        slots = slot[:, None] + jnp.arange(features.shape[1])
        slots = jnp.where(slots < 0, states.shape[1], slots)  # nothing is before the first
        return cache.replace(data={**cache.data, "states": _put(states, fused, slots)})

    def extend(
        self,
        params: Params,
        tokens: jax.Array,
        cache: Cache,
        *,
        position: jax.Array | None = None,
        visible: jax.Array | None = None,
        at: jax.Array | None = None,
        exit: int | None = None,
        resume: Resume | None = None,
        features: tuple[int, ...] = (),
    ) -> tuple[Output, Cache]:
        tree = None if visible is None else (position, visible)
        data, start, fed = cache.data, cache.length, tokens.shape[1]
        slots = start[:, None] + jnp.arange(fed)
        earlier = slots - 1 if tree is None else _parents(tree, start)
        before = jnp.take_along_axis(data["states"], earlier[..., None], axis=1, mode="clip")
        before = jnp.where((earlier >= 0)[..., None], before, 0)
        step = tokens, before, data, start, at, tree
        logits, states, own = apply(self.module, "decode_step", params, *step)
        data = {**data, "own": [own], "states": _put(data["states"], states, slots)}
        return Output(logits, states), Cache(data, start + fed)

    def keep(self, cache: Cache, path: jax.Array, count: jax.Array) -> Cache:
        data, start = cache.data, cache.length
        own = [gathered(pair, start, path) for pair in data["own"]]
        kept = start[:, None] + path
        states = jnp.take_along_axis(data["states"], kept[..., None], axis=1, mode="clip")
        slots = start[:, None] + jnp.arange(path.shape[1])
        data = {**data, "own": own, "states": _put(data["states"], states, slots)}
        return Cache(data, start + count)


def _put(states: jax.Array, new: jax.Array, slots: jax.Array) -> jax.Array:
    """States [B, C, D] with new ones [B, T, D] at slots [B, T]; what lies beyond is dropped."""
    return write(states[:, None], new[:, None], slots)[:, 0]


def _parents(tree: Tree, start: jax.Array) -> jax.Array:
    """The slot [B, T] of the token before each fed node: its parent, or the last of the text."""
    position, visible = tree
    fed = visible.shape[1]
    first = start[:, None] - (position.shape[1] - fed)
    own = position[:, -fed:]
    parent = visible & (position[:, None] == own[..., None] - 1)
    node = jnp.argmax(parent, axis=-1)
    return first + jnp.where(jnp.any(parent, axis=-1), node, -1)
