"""What drafters on the target's features have in common, whatever they make of its states.

Such a model reads the target's states of several layers at the tokens of the text, side by side and
fused into one vector, and drafts ids of its own reduced vocabulary. For encoder-decoder targets its
layers also attend to the target's own cross-attention keys and values: nothing is encoded twice.

Letters as in `models.base`; F target layers are read, E is the target's width, U ids are drafted.
"""

from __future__ import annotations

import dataclasses
from typing import Generic, Self, TypeVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32, Int, Key

from specjax.models import causal_layers, t5
from specjax.models.attention import AnyBias, attention
from specjax.models.base import Cache, LanguageModel, Params, PromptReading, Prompts
from specjax.models.caches import KeysValues
from specjax.models.info import ModelInfo
from specjax.models.layers import (
    MASKED,
    Dense,
    FeedForward,
    apply,
    compute_tied_logits,
    make_key_mask,
    merge_heads,
)
from specjax.models.linen import LinenModel
from specjax.models.norms import RMSNorm
from specjax.models.target_shapes import (
    OnCausalConfig,
    OnT5Config,
    Shape,
    adapt_shape,
    list_target_params,
)

Cross = tuple[jax.Array, jax.Array, AnyBias]
"""The target's cross-attention keys and values [B, H, P, d] of one layer, and their mask."""

FROZEN = ("embedding", "ids")
"""Parameters of every such drafter that are not trained."""

Config = TypeVar("Config", bound=Shape)


class Layer(nn.Module, Generic[Config]):
    """A decoder layer once its self-attention's queries, keys and values are there."""

    config: Config

    def setup(self) -> None:
        c = self.config
        self.ff_norm = RMSNorm(c.eps)
        self.ff = FeedForward(c.d_ff, c.activation, c.gated, c.dtype, c.dropout, c.ff_bias)
        if isinstance(c, OnT5Config):
            self.attention = t5.Attention(c)
            self.cross_norm, self.cross_attention = RMSNorm(c.eps), t5.Attention(c.of_cross)
        else:
            self.attention = causal_layers.Attention(c, c.rope, c.layer_query_scales[0])

    def project_inputs(
        self, x: Float[Array, "B T D"], angles: Float32[Array, "B T R"] | None
    ) -> tuple[Float[Array, "B H T d"], Float[Array, "B G T d"], Float[Array, "B G T d"]]:
        """Projects inputs [B, T, D'] to head-major queries, keys and values."""
        attention = self.attention
        if isinstance(attention, t5.Attention):
            return attention.queries(x), *attention.keys_values(x)
        return attention.queries_keys_values(x, angles)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        q: Float[Array, "B H T d"],
        k: Float[Array, "B G C d"],
        v: Float[Array, "B G C d"],
        bias: AnyBias,
        cross: Cross | None,
    ) -> Float[Array, "B T D"]:
        """The states [B, T, D] behind the layer on a residual stream x [B, T, D]."""
        x = self.read_prompt(x + self.attention(q, k, v, bias), cross)
        return x + self.ff(self.ff_norm(x))

    def read_prompt(self, x: jax.Array, cross: Cross | None) -> jax.Array:
        """x [B, T, D] after the cross-attention, if the target has an encoder."""
        if cross is None:
            return x
        h = self.cross_attention.queries(self.cross_norm(x))
        # Its own `o`, on keys and values that the target made.
        return x + self.cross_attention.o(merge_heads(attention(h, *cross)))


class OnTargetModule(nn.Module, Generic[Config]):
    """Embedding, fused states and output layer; what lies between is each drafter's own."""

    config: Config

    def setup(self) -> None:
        c = self.config
        normal = nn.initializers.normal(1.0)
        shape = c.vocab_size, c.embedding_size
        self.embedding = self.param("embedding", normal, shape, jnp.float32)
        self.ids = self.param("ids", lambda _: jnp.arange(c.draft_vocab, dtype=jnp.int32))
        self.fuse = Dense(c.d_model, c.dtype)
        unit_offset = isinstance(c, OnCausalConfig) and c.unit_offset
        self.final_norm = RMSNorm(c.eps, unit_offset)
        if c.normed:
            self.target_norm = RMSNorm(c.target_eps or c.eps, unit_offset)
        if not c.tied_head:
            self.head = Dense(c.draft_vocab, c.dtype)

    def embed(self, tokens: Int[Array, " ..."]) -> Float[Array, "... W"]:
        return self.embedding[tokens].astype(self.config.dtype)

    def compute_draft_logits(self, states: Float[Array, "... D"]) -> Float32[Array, "... U"]:
        """Computes float32 logits [..., U] of the ids that can be drafted."""
        return self.read_out(self.final_norm(states))

    def read_out(self, normed: jax.Array) -> jax.Array:
        """The same of states [..., D] after the final norm."""
        c = self.config
        if c.tied_head:
            logits = compute_tied_logits(normed, self.embedding, training=False)
        else:
            logits = self.head(normed).astype(jnp.float32)
        if c.logit_multiplier != 1.0:
            logits = logits * c.logit_multiplier
        return c.logit_limit * jnp.tanh(logits / c.logit_limit) if c.logit_limit else logits

    def compute_target_logits(
        self, states: Float[Array, "B T D"], at: Int[Array, "B A"] | None, places: Int[Array, " V"]
    ) -> Float32[Array, "B A V"]:
        """Computes logits [B, A, V] of states [B, T, D] `at` [B, A]; `places` as below."""
        if at is not None:
            states = jnp.take_along_axis(states, at[..., None], axis=1, mode="clip")
        return self.to_target_ids(self.compute_draft_logits(states), places)

    def to_target_ids(self, logits: jax.Array, places: jax.Array) -> jax.Array:
        """Logits [..., V] of all ids from those [..., U] that can be drafted."""
        lacking = jnp.full((*logits.shape[:-1], 1), MASKED, jnp.float32)
        whole = jnp.concatenate([logits, lacking], axis=-1)
        return jnp.take(whole, places, axis=-1, mode="clip")

    def compute_places(self) -> Int[Array, " V"]:
        """Computes for every id [V] its place among those that can be drafted; U: it cannot."""
        c = self.config
        places = jnp.full((c.vocab_size,), c.draft_vocab, jnp.int32)
        return places.at[self.ids].set(jnp.arange(c.draft_vocab, dtype=jnp.int32))

    def compute_angles(self, position: Int[Array, "B T"]) -> Float32[Array, "B T R"] | None:
        c = self.config
        rope = None if isinstance(c, OnT5Config) else c.rope
        return None if rope is None else rope.angles(position, position + 1)

    def make_zero_inputs(self, rows: int, size: int) -> tuple[jax.Array, Cross | None]:
        """Makes states of zeros [B, T, F * E] and a cross-attention cache of one slot."""
        c = self.config
        features = jnp.zeros((rows, size, c.read * c.target_width), c.dtype)
        if not c.cross:
            return features, None
        zeros = jnp.zeros((rows, c.cross_heads, 1, c.cross_width), c.dtype)
        return features, (zeros, zeros, jnp.zeros((1, 1, 1, 1), jnp.float32))


@dataclasses.dataclass(frozen=True)
class FeatureDrafter(LinenModel):
    """A feature drafter under the contract of `models.base`, as far as drafting needs it.

    `start` reads nothing; `attend` gives it the target's cross-attention cache, `absorb` and `read`
    the target's states.
    """

    config: Shape

    @property
    def info(self) -> ModelInfo:
        c = self.config
        return ModelInfo(c.vocab_size, c.layers, c.eos, c.pad, c.start_token, reads_states=True)

    @property
    def frozen_names(self) -> tuple[str, ...]:
        """Top names of parameters that are the target's, or chosen from its texts."""
        return tuple(dict.fromkeys(FROZEN + list_target_params(self.config)))

    def init(self, key: Key[Array, ""]) -> Params:
        """Freshly initialised float32 parameters; the ids are the first ones."""
        probe = jax.ShapeDtypeStruct((1, 1), jnp.int32)
        return self.module.lazy_init(key, probe)["params"]

    def adapt_to(self, target: LanguageModel) -> Self:
        """This drafter, of whose shape a checkpoint may leave something to its target.

        Raises:
          ValueError: when this target does not have it.
        """
        return dataclasses.replace(self, config=adapt_shape(self.config, target))

    def initialize_params(
        self, params: Params, layer: Params, basis: Float[Array, "E D"] | None
    ) -> Params:
        """The parameters to train from, once embedding and output layer are of the target.

        `layer` is its last decoder layer, of a target as wide as the drafter, else empty. `basis`
        [E, D] are the directions of the target's last states that the output layer reads, None
        where the drafter is the wider one.
        """
        return params

    def start(
        self,
        params: Params,
        prompt: Prompts,
        prompt_length: Int[Array, " B"],
        capacity: int,
        *,
        features: tuple[int, ...] = (),
        ahead: int | None = None,
        longest: int | None = None,
    ) -> tuple[Cache, PromptReading]:
        c, (rows, width) = self.config, prompt.shape[:2]
        data = {
            "own": self.make_empty_caches(rows, capacity),
            "places": apply(self.module, "compute_places", params),
        }
        length = prompt_length - 1 if c.start_token is None else jnp.zeros_like(prompt_length)
        if c.cross:
            nothing = jnp.zeros((rows, c.cross_heads, width, c.cross_width), c.dtype)
            variables = {"params": params}
            data["bias"] = self.module.apply(variables, capacity, method="compute_distance_bias")
            data |= {"cross": (nothing, nothing), "cross_bias": make_key_mask(prompt_length, width)}
        return Cache(data, length), PromptReading(jnp.zeros((rows, c.d_model), jnp.float32))

    def make_empty_caches(self, rows: int, capacity: int) -> list[KeysValues]:
        """Creates the caches of the layers."""
        c = self.config
        of_t5 = isinstance(c, OnT5Config)
        heads = c.num_heads if of_t5 else c.num_kv_heads
        widths = (c.d_kv, c.d_kv) if of_t5 else c.cache_widths
        empty = [jnp.zeros((rows, heads, capacity, size), c.dtype) for size in widths]
        return [(empty[0], empty[1])] * self.info.depth

    def attend(self, cache: Cache, target: Cache) -> Cache:
        """The cache with the cross-attention keys and values of a target's cache."""
        layer = self.config.cross
        if not layer:
            return cache
        read = {"cross": target.data["cross"][layer - 1], "cross_bias": target.data["cross_bias"]}
        return cache.replace(data={**cache.data, **read})

    def absorb(
        self, params: Params, cache: Cache, features: Float[Array, "B T FE"], slot: Int[Array, " B"]
    ) -> Cache:
        """The cache with the target's states [B, T, F * E] at the slots from `slot` [B] on.

        The pointer stays; a slot below 0 or beyond the capacity is none.
        """
        raise NotImplementedError

    def read(
        self,
        params: Params,
        cache: Cache,
        tokens: Int[Array, "B P"],
        features: Float[Array, "B P FE"],
    ) -> Cache:
        """The cache behind prompts [B, P] whose states in the target are features [B, P, F * E].

        Where its pointer is means nothing: prompts have their own lengths.
        """
        raise NotImplementedError


def select_last_state(fuse: Params, basis: Float[Array, "E D"]) -> Params:
    """`fuse` that hands on the states of the last layer that it reads, in a basis [E, D].

    What it makes of the others is learned from nothing.
    """
    kernel = fuse["kernel"]
    return {"kernel": jnp.zeros_like(kernel).at[-len(basis) :].set(basis)}


def list_slots(slot: Int[Array, " B"], count: int, capacity: int) -> Int[Array, "B {count}"]:
    """Lists the slots [B, T] from `slot` [B] on; those before the first are beyond the last."""
    slots = slot[:, None] + jnp.arange(count)
    return jnp.where(slots < 0, capacity, slots)
