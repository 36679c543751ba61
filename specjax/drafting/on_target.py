"""Shared parts of proposers on the target's features: its states in the drafter's cache.

After each round the target's states at the accepted tokens go to the cache of the proposer's model.
A model that continues from its own states feeds those tokens again (Li et al., "EAGLE-3: Scaling up
Inference Acceleration of Large Language Models via Training-Time Test" (2025),
docs/methods/eagle.md); a model that drafts in parallel does not (docs/methods/dflash.md).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Self

import jax
import jax.numpy as jnp
from flax import struct

from specjax.contracts import fields
from specjax.contracts.context import Context
from specjax.contracts.drafter import Outcome
from specjax.contracts.env import Env, Models
from specjax.contracts.registry import DRAFTERS, FAMILIES
from specjax.contracts.rows import Caches
from specjax.contracts.rule import Verdict
from specjax.contracts.spec import UNBOUND
from specjax.drafting.proposer import Proposer
from specjax.models.base import Cache, PromptReading
from specjax.models.encoder_decoder import EncoderDecoder
from specjax.models.on_target import FeatureDrafter
from specjax.models.vocabularies import unwrap


class TargetStates(struct.PyTreeNode):
    """States of the target from the last round."""

    features: jax.Array  # [B, lag, F * E]
    slot: jax.Array  # [B] int32 of the first of them; -1: none before the text


@dataclasses.dataclass(frozen=True)
class OnTarget(Proposer):
    """A proposer whose model reads the target's states."""

    model: str = fields.name("drafter", help="the feature drafter, trained for this target")
    layers: tuple[int, ...] = UNBOUND  # of the target, set by `bind_models`

    drives: ClassVar[type[FeatureDrafter]]
    """The class of its model."""

    keeps_nodes = False
    can_pause = False  # the states of every round are added to its cache

    @property
    def models(self) -> tuple[str, ...]:
        return (self.model,)

    @property
    def features(self) -> tuple[int, ...]:
        return self.layers

    @property
    def lag(self) -> int:
        """Most tokens that a round commits and the target has read."""
        return self.levels + 1

    def bind_models(self, models: Models) -> Self:
        model = dict(models).get(self.model)
        layers = getattr(model.config, "features", UNBOUND) if model else UNBOUND
        return dataclasses.replace(self, layers=layers)

    def drafted_ids(self, env: Env) -> int:
        return unwrap(env[self.model].model).config.draft_vocab

    def check(self, env: Env) -> None:
        """Refuses a model that is no feature drafter, or one for another target.

        Raises:
          ValueError: saying what does not fit.
        """
        target = unwrap(env.target.model)
        ours, theirs = self._feature_drafter(env).config, target.config
        pairs = {"width": (ours.target_width, theirs.d_model)}
        if ours.cross:
            if not isinstance(target, EncoderDecoder):
                raise ValueError(
                    f"{self.model!r} was made for a target with an encoder; this one, of family"
                    f" {theirs.family!r}, has none"
                )
            heads, width = target.cross_heads
            pairs |= {"heads": (ours.cross_heads, heads), "head width": (ours.cross_width, width)}
        for what, (made_for, there) in pairs.items():
            if made_for != there:
                raise ValueError(
                    f"{self.model!r} was made for a target of {what} {made_for}; this one has"
                    f" {there}"
                )
        if max(*ours.features, ours.cross) > target.info.depth:
            raise ValueError(
                f"{self.model!r} reads the target's layers {ours.features}; it has"
                f" {target.info.depth}"
            )
        super().check(env)

    def _feature_drafter(self, env: Env) -> FeatureDrafter:
        """The feature drafter model, after a check of its family."""
        model = unwrap(env[self.model].model)
        if not isinstance(model, FeatureDrafter) or type(model) is not self.drives:
            known = (name for name, entry in FAMILIES.items() if entry.cls.model is self.drives)
            raise ValueError(
                f"model is {self.model!r}; it must be a feature drafter of family"
                f" {' or '.join(map(repr, known))}"
            )
        return model

    def start(
        self, env: Env, caches: Caches, context: Context, prompt: PromptReading
    ) -> tuple[TargetStates, Caches]:
        model, own = env[self.model], self._feature_drafter(env)
        config, rows = model.model.config, context.length.shape[0]
        states = jnp.zeros((rows, self.lag, config.read * config.target_width), config.dtype)
        slot = context.length - 2
        cache = own.attend(caches[self.model], caches[env.target_name])
        if prompt.features:
            features = jnp.concatenate(prompt.features, axis=-1)
            last = jnp.take_along_axis(features, slot[:, None, None], axis=1, mode="clip")
            states = states.at[:, :1].set(last.astype(states.dtype))
            tokens = context.tokens[:, : features.shape[1]]
            cache = own.read(model.params, cache, tokens, features)
            # The last token of each is pending.
            cache = cache.replace(length=context.length - 1)
        return TargetStates(states, slot), {**caches, self.model: cache}

    def update(self, memory: TargetStates, outcome: Outcome) -> TargetStates:
        features = gather_accepted_states(
            jnp.concatenate(outcome.reading.features, -1), outcome.verdict
        )
        features = features[:, : self.lag].astype(memory.features.dtype)
        return TargetStates(features, outcome.context.length - 1)

    def absorb_states(self, env: Env, caches: Caches, memory: TargetStates) -> Cache:
        """Adds the target's states of the last round to the model's cache."""
        model, own = env[self.model], self._feature_drafter(env)
        return own.absorb(model.params, caches[self.model], memory.features, memory.slot)


def gather_accepted_states(states: jax.Array, verdict: Verdict) -> jax.Array:
    """Selects from states [B, K + 1, D] those of the pending and the accepted tokens."""
    if verdict.path is None:
        return states
    read = jnp.pad(verdict.path + 1, ((0, 0), (1, 0)))
    return jnp.take_along_axis(states, read[..., None], axis=1, mode="clip")


def refuse_feature_drafter(env: Env, name: str) -> None:
    """Refuses a feature drafter in a drafter that provides no target states.

    Raises:
      ValueError: naming the drafters that provide them.
    """
    model = unwrap(env[name].model)
    if isinstance(model, FeatureDrafter):
        kinds = {name: getattr(entry.cls, "drives", None) for name, entry in DRAFTERS.items()}
        known = (repr(name) for name, kind in kinds.items() if type(model) is kind)
        raise ValueError(
            f"model {name!r} is a feature drafter; its drafter must be {' or '.join(known)}"
        )
