"""What drafters on the target's features share: its states, round by round, in their model's cache.

After each round the target's states at the tokens that stood go to the cache of the drafter's
model. One that goes on from its own states feeds those tokens again (Li et al., "EAGLE-3: Scaling
up Inference Acceleration of Large Language Models via Training-Time Test" (2025),
docs/methods/eagle.md); one that drafts in parallel does not (docs/methods/dflash.md).
"""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from specjax.core.catching_up import catch_up
from specjax.core.context import Context
from specjax.core.draft import Draft
from specjax.core.drafter import Drafter, Log, Memory, Outcome
from specjax.core.env import Bound, Env, Models
from specjax.core.registry import DRAFTERS, FAMILIES
from specjax.core.rows import Caches, window
from specjax.core.verdict import Verdict
from specjax.models.base import Cache, PromptReading
from specjax.models.eagle import Eagle
from specjax.models.encoder_decoder import EncoderDecoder
from specjax.models.on_target import FeatureDrafter
from specjax.models.shared_vocabulary import unwrapped


class OnTargetMemory(struct.PyTreeNode):
    """What the target computed in the last round, and what the drafter remembers beside."""

    features: jax.Array  # [B, lag, F * E]
    slot: jax.Array  # [B] int32 of the first of them; -1: there was none before the text
    own: Memory


class OnTarget(Drafter):
    """A drafter whose `model` reads the target's states; it comes before the one it extends."""

    model: str
    layers: tuple[int, ...]  # of the target, known with the models (`of_models`)

    drives: ClassVar[type[FeatureDrafter]]
    """What its model is."""

    @property
    def lag(self) -> int:
        """Most tokens that a round writes and the target has read."""
        raise NotImplementedError

    @property
    def reads_target(self) -> bool:
        return True

    def of_models(self, models: Models) -> OnTarget:
        model = dict(models).get(self.model)
        layers = getattr(model.config, "features", ()) if model else ()
        return dataclasses.replace(self, layers=layers)

    def check(self, env: Env) -> None:
        """Refuses a model that is no feature drafter, or one for another target.

        Raises:
          ValueError: saying what does not fit.
        """
        target = unwrapped(env.target.model)
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
        if max(*ours.features, ours.cross) > target.depth:
            raise ValueError(
                f"{self.model!r} reads the target's layers {ours.features}; it has {target.depth}"
            )

    def _feature_drafter(self, env: Env) -> FeatureDrafter:
        """The model, of the kind that it must be."""
        model = unwrapped(env[self.model].model)
        if not isinstance(model, self.drives):
            known = (name for name, entry in FAMILIES.items() if entry.cls.model is self.drives)
            raise ValueError(
                f"model is {self.model!r}; it must be a feature drafter of family"
                f" {' or '.join(map(repr, known))}"
            )
        return model

    def begin(
        self, env: Env, context: Context, prompt: PromptReading, keys: jax.Array
    ) -> OnTargetMemory:
        own = super().begin(env, context, prompt, keys)
        model, rows = env[self.model].model.config, context.length.shape[0]
        width = model.read * model.target_width
        features = jnp.zeros((rows, self.lag, width), model.dtype)
        slot = context.length - 2
        if prompt.features:
            last = jnp.concatenate(prompt.features, axis=-1)
            last = jnp.take_along_axis(last, slot[:, None, None], axis=1, mode="clip")
            features = features.at[:, :1].set(last.astype(features.dtype))
        return OnTargetMemory(features, slot, own)

    def opened(self, env: Env, caches: Caches, context: Context, prompt: PromptReading) -> Caches:
        model, own = env[self.model], self._feature_drafter(env)
        cache = own.attend(caches[self.model], caches[env.target_name])
        if prompt.features:
            features = jnp.concatenate(prompt.features, axis=-1)
            tokens = context.tokens[:, : features.shape[1]]
            cache = own.read(model.params, cache, tokens, features)
            # The last token of each is pending.
            cache = cache.replace(length=context.length - 1)
        return {**caches, self.model: cache}

    def observe(self, memory: OnTargetMemory, outcome: Outcome) -> OnTargetMemory:
        features = stood(jnp.concatenate(outcome.reading.features, axis=-1), outcome.verdict)
        features = features[:, : self.lag].astype(memory.features.dtype)
        slot = outcome.context.length - 1
        return OnTargetMemory(features, slot, super().observe(memory.own, outcome))

    def with_target(self, env: Env, caches: Caches, memory: OnTargetMemory) -> Caches:
        """The caches with the target's states of the last round."""
        model, cache = env[self.model], caches[self.model]
        cache = self._feature_drafter(env).absorb(model.params, cache, memory.features, memory.slot)
        return {**caches, self.model: cache}


class OnOwnStates(OnTarget):
    """One that goes on from its own states where the target has none yet, token by token."""

    drives = Eagle

    def propose(
        self,
        env: Env,
        caches: Caches,
        memory: OnTargetMemory,
        context: Context,
        keys: jax.Array,
    ) -> tuple[Draft, Caches, OnTargetMemory, Log]:
        caches = self.with_target(env, caches, memory)
        draft, caches, own, log = super().propose(env, caches, memory.own, context, keys)
        return draft, self.behind_text(caches, context), memory.replace(own=own), log

    def behind_text(self, caches: Caches, context: Context) -> Caches:
        """The caches with what was drafted forgotten: it is fed again if it stands."""
        cache = caches[self.model]
        length = jnp.minimum(cache.length, context.length)
        return {**caches, self.model: cache.replace(length=length)}

    def feed_text(self, model: Bound, cache: Cache, context: Context) -> tuple[jax.Array, Cache]:
        """The logits [B, V] behind the text, whose last tokens are fed exactly once."""
        cache = catch_up(model, cache, context, self.lag)
        tokens = window(context.tokens, cache.length, self.lag)
        last = context.length - 1 - cache.length
        output, cache = model.extend(tokens, cache, at=last[:, None])
        return output.logits[:, 0], cache.replace(length=context.length)


def stood(states: jax.Array, verdict: Verdict) -> jax.Array:
    """Of states [B, K + 1, D] those of the pending token and then of the tokens that stood."""
    if verdict.path is None:
        return states
    read = jnp.pad(verdict.path + 1, ((0, 0), (1, 0)))
    return jnp.take_along_axis(states, read[..., None], axis=1, mode="clip")


def refuse_feature_drafter(env: Env, name: str) -> None:
    """Refuses a model that drafts with a target's states only, where none are given.

    Raises:
      ValueError: naming the drafters that give them.
    """
    model = unwrapped(env[name].model)
    if isinstance(model, FeatureDrafter):
        kinds = {name: getattr(entry.cls, "drives", None) for name, entry in DRAFTERS.items()}
        known = (repr(name) for name, kind in kinds.items() if type(model) is kind)
        raise ValueError(
            f"model {name!r} is a feature drafter; its drafter must be {' or '.join(known)}"
        )
