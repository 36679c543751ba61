"""A drafter on the target's features: a decoder layer that reads what the target computed.

Li et al., "EAGLE-3: Scaling up Inference Acceleration of Large Language Models via Training-Time
Test" (2025) (docs/methods/eagle.md). What the layer reads of token t is its embedding beside the
target's states of token t - 1, of several layers and fused into one vector. A drafted token's
target states do not exist: the drafter's own last state stands in. For encoder-decoder targets the
layer also attends to the target's own cross-attention keys and values: nothing is encoded twice.

Published drafters (hf/families/eagle3.py) differ in details: where norms are, whether the first
token is read, which state the next step reads. `Details` has a field for each.

Dimension letters as in `models.base`; F target layers are read, U ids can be drafted, E is the
target's width, and FE is F * E.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int

from specjax.models.attention import (
    AnyBias,
    CausalBias,
    WithoutFirst,
    make_call_bias,
    make_tree_bias,
)
from specjax.models.base import Cache, Params, PromptReading, Prompts
from specjax.models.caches import KeysValues, update_cache
from specjax.models.eagle_layers import EagleLayer, PlainLayer
from specjax.models.layers import MASKED, Tree, call, make_tree_mask
from specjax.models.mtp import MtpLayer, pass_states
from specjax.models.norms import RMSNorm
from specjax.models.on_target import (
    Cross,
    OnTargetModule,
    select_last_state,
)
from specjax.models.positions import RelativeBias, RelativeBiasOf, compute_tree_bias
from specjax.models.state_drafter import StateDrafter
from specjax.models.target_shapes import OnCausalConfig, OnT5Config, OnTarget
from specjax.models.windows import make_step_mask

PART = 512
"""Most tokens of a prompt that the layer is fed together."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Details(OnTarget):
    """What a drafter's shape says of details in which published ones differ."""

    reads_first: bool = True  # False: nothing sees the text's first token, which has no state
    feature_norms: int = 0  # norms over as many equal parts of the target's states side by side
    normed_residual: bool = False  # the residual stream begins behind the norm of the state
    normed_states: bool = (
        False  # the states that it feeds back are after its final norm (EAGLE 3.1)
    )
    joined: bool = False  # a layer of the target reads embedding and state as one (models/mtp.py)
    states_first: bool = False  # of what is joined


@dataclasses.dataclass(frozen=True, kw_only=True)
class EagleT5Config(Details, OnT5Config):
    """Shape of a drafter for a target with an encoder: layers like T5's."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EagleCausalConfig(Details, OnCausalConfig):
    """Shape of a drafter for a decoder-only target."""

    layer_family: str = ""  # that of the target whose layer a joined one is


Config = EagleT5Config | EagleCausalConfig


class EagleModule(OnTargetModule[Config]):
    """Parameters and layers; `Eagle` wraps them into the model contract."""

    def setup(self) -> None:
        super().setup()
        c = self.config
        self.feature_norms = [RMSNorm(c.eps) for _ in range(c.feature_norms)]
        self.layer = MtpLayer(c) if c.joined else EagleLayer(c)
        self.layers = {str(number): PlainLayer(c) for number in range(1, c.layers)}
        if isinstance(c, OnT5Config):
            self.position_bias = RelativeBias(c.num_heads, c.buckets, c.max_distance, False)

    def fuse_states(self, features: Float[Array, "B T FE"]) -> Float[Array, "B T D"]:
        """Fuses the target's states [B, T, F * E] into [B, T, D]; those of one layer stay."""
        if self.config.normed:
            features = self.target_norm(features)
        if norms := self.feature_norms:
            parts = jnp.split(features, len(norms), axis=-1)
            parts = [norm(part) for norm, part in zip(norms, parts, strict=True)]
            features = jnp.concatenate(parts, axis=-1)
        return features if self.config.joined else self.fuse(features)

    def make_feedback_states(self, states: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Makes the states [B, T, D] that replace the target's after drafted tokens."""
        return self.final_norm(states) if self.config.normed_states else states

    def compute_draft_logits(self, states: Float[Array, "... D"]) -> Float32[Array, "... U"]:
        """Computes float32 logits [..., U] of the ids that can be drafted from feedback states."""
        normed = states if self.config.normed_states else self.final_norm(states)
        return self.read_out(normed)

    def run_layers(
        self,
        embedded: Float[Array, "B T E"],
        before: Float[Array, "B T D"],
        position: Int[Array, "B T"],
        attend: Callable[[int, KeysValues], Any],
        cross: Cross | None,
    ) -> Float[Array, "B T D"]:
        """Computes feedback states [B, T, D] of embeddings and the states before them.

        `attend` maps a layer's new keys and values to all that it attends to, and their mask.
        """
        angles, states = self.compute_angles(position), before
        for number in range(self.config.layers):
            layer: Any = self.layers[str(number)] if number else self.layer
            given = (states,) if number else (embedded, states)
            residual, (q, *made) = layer.read(*given, angles)
            memory, bias = attend(number, (made[0], made[1]))
            states = layer(residual, q, *memory, bias, cross)
        return self.make_feedback_states(states)

    def compute_distance_bias(self, capacity: int) -> Float[Array, "H 2*{capacity}"]:
        """Computes bias and causal mask by distance, [H, 2 * C] (see `compute_bias_rows`)."""
        distance = np.arange(-(capacity - 1), capacity + 1)
        return self.position_bias(distance) + np.where(distance > 0, MASKED, 0.0)

    def decode_step(
        self,
        tokens: Int[Array, "B T"],
        before: Float[Array, "B T D"],
        data: dict[str, Any],
        start: Int[Array, " B"],
        at: Int[Array, "B A"] | None,
        tree: Tree | None,
    ) -> tuple[Float32[Array, "B A V"], Float[Array, "B T D"], list[KeysValues]]:
        """Logits [B, A, V], states [B, T, D] and the caches with tokens [B, T]."""
        own, fed = list(data["own"]), tokens.shape[1]
        position = start[:, None] + jnp.arange(fed) if tree is None else tree[0][:, -fed:]
        cross = (*data["cross"], data["cross_bias"]) if self.config.cross else None
        bias = self.make_step_bias(data, start, fed, tree)

        def attend(number: int, made: KeysValues) -> Any:
            own[number] = update_cache(own[number], made, start)
            return own[number], bias

        states = self.run_layers(*self.embed_inputs(tokens, before), position, attend, cross)
        return self.compute_target_logits(states, at, data["places"]), states, own

    def embed_inputs(
        self, tokens: Int[Array, "B T"], before: Float[Array, "B T D"]
    ) -> tuple[Float[Array, "B T E"], Float[Array, "B T D"]]:
        """The first layer's inputs: embeddings of tokens [B, T] and the states before them."""
        return self.embed(tokens), before

    def make_step_bias(
        self, data: dict[str, Any], start: Int[Array, " B"], fed: int, tree: Tree | None
    ) -> AnyBias:
        """Makes the bias of `fed` tokens from slot `start` [B] on, the same in all layers."""
        if not self.config.cross:
            return self.make_self_attention_bias(data["own"][0], start, fed, tree)
        if tree is not None:
            return make_tree_bias(compute_tree_bias(data["bias"], tree, start), start)
        relative, slots = RelativeBiasOf(data["bias"], start), data["bias"].shape[1] // 2
        return make_call_bias(relative, start, fed, slots)

    def make_self_attention_bias(
        self, own: KeysValues, start: Int[Array, " B"], fed: int, tree: Tree | None
    ) -> AnyBias:
        """Makes the mask of self-attention without relative positions."""
        if self.config.reads_first:
            return make_step_mask(own, 0, start, fed, tree)
        slots = own[0].shape[2]
        if tree is None:
            return make_call_bias(WithoutFirst(CausalBias(start), start), start, fed, slots)
        places = jnp.arange(slots)
        mask = jnp.minimum(make_tree_mask(tree, start, places), jnp.where(places > 0, 0.0, MASKED))
        return make_tree_bias(mask, start)

    def unroll_draft(
        self,
        tokens: Int[Array, "B T"],
        features: Float[Array, "B T FE"],
        cross: Cross | None,
        steps: int,
    ) -> list[Float32[Array, "B T U"]]:
        """Computes logits [B, T, U] of every step of a draft after each token [B, T] of the text.

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
        embedded, state = self.embed(tokens), self.fuse_states(features)
        past_keys_values: list[list[KeysValues]] = [[] for _ in range(self.config.layers)]
        logits = []
        for step in range(steps):
            visible = [distance <= -step, *(distance == made - step for made in range(1, step + 1))]
            if not self.config.reads_first:
                visible = [mask & ((place > 0) | (distance == 0)) for mask in visible]
            masks = [relative + np.where(mask, 0.0, MASKED)[None] for mask in visible]
            bias = jnp.concatenate(masks, axis=-1)[None].astype(jnp.float32)

            def attend(number: int, made: KeysValues, bias: Any = bias) -> Any:
                past_keys_values[number].append(made)
                parts = zip(*past_keys_values[number], strict=True)
                return [jnp.concatenate(part, axis=2) for part in parts], bias

            before = jnp.pad(state, ((0, 0), (1, 0), (0, 0)))[:, :-1]
            state = self.run_layers(embedded, before, position, attend, cross)
            logits.append(self.compute_draft_logits(state))
        return logits

    def __call__(self, tokens: Int[Array, "B T"]) -> list[Float32[Array, "B T U"]]:
        """One step, on states of zeros: what initialisation needs to see."""
        return self.unroll_draft(tokens, *self.make_zero_inputs(*tokens.shape), 1)


@dataclasses.dataclass(frozen=True)
class Eagle(StateDrafter):
    """The drafter under the model contract."""

    config: Config

    @property
    def module(self) -> EagleModule:
        return EagleModule(self.config)

    def initialize_params(
        self, params: Params, layer: Params, basis: Float[Array, "E D"] | None
    ) -> Params:
        """With all parameters of the target's layer that have the same name and shape.

        Its last states go on as they are, unless nothing norms them: they are many times larger
        than what a layer adds, which would be learned slowly.
        """
        if self.config.joined:
            layer = {"block": layer}
        params = {**params, "layer": _take_params(params["layer"], layer)}
        if self.config.joined:
            norm = {"scale": jnp.array(params["target_norm"]["scale"], copy=True)}
            return {**params, "layer": pass_states(params["layer"]), "final_norm": norm}
        if basis is None or not (self.config.feature_norms or self.config.normed_residual):
            return params
        return {**params, "fuse": select_last_state(params["fuse"], basis)}

    def unroll_draft(
        self,
        params: Params,
        tokens: Int[Array, "B T"],
        features: Float[Array, "B T FE"],
        cross: Cross | None,
        steps: int,
    ) -> list[Float32[Array, "B T U"]]:
        """`EagleModule.unroll_draft`, for training."""
        return call(self.module, "unroll_draft", params, tokens, features, cross, steps)

    def start(
        self,
        params: Params,
        prompt: Prompts,
        prompt_length: Int[Array, " B"],
        capacity: int,
        **how: Any,
    ) -> tuple[Cache, PromptReading]:
        cache, reading = super().start(params, prompt, prompt_length, capacity, **how)
        states = jnp.zeros((len(prompt), capacity, self.config.d_model), self.config.dtype)
        return cache.replace(data={**cache.data, "states": states}), reading

    def read(
        self,
        params: Params,
        cache: Cache,
        tokens: Int[Array, "B P"],
        features: Float[Array, "B P FE"],
    ) -> Cache:
        size = features.shape[1]
        before = jnp.pad(features, ((0, 0), (1, 0), (0, 0)))
        for begin in range(0, size, PART):
            end = min(begin + PART, size)
            start = jnp.full_like(cache.length, begin)
            cache = self.absorb(params, cache, before[:, begin:end], start - 1)
            _, cache = self.extend(params, tokens[:, begin:end], cache.replace(length=start))
        return cache


def _take_params(ours: Params, other: Params) -> Params:
    """The tree `ours` with what `other` has under the same name and of the same shape.

    In float32 and in memory of its own: training gives away what it changes.
    """
    if isinstance(ours, dict):
        other = other or {}
        return {name: _take_params(tree, other.get(name)) for name, tree in ours.items()}
    same = other is not None and other.shape == ours.shape
    return jnp.array(other, jnp.float32, copy=True) if same else ours
