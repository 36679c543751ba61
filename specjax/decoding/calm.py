"""Confident adaptive language modelling: every token leaves the decoder at its own layer.

Schuster et al., "Confident Adaptive Language Modeling" (2022), as the baseline of Kim et al.
(2023); docs/methods/calm.md.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from specjax.drafting.base import Context
from specjax.drafting.turns import when
from specjax.models.base import Cache, LanguageModel, Output, Params

SATURATION, SOFTMAX = "saturation", "softmax"
MEASURES = (SATURATION, SOFTMAX)
"""How sure a layer is: the cosine of the residual states after it and after the layer before, so
that the second layer is the first that may be the last; or the difference of the two largest
probabilities, which runs the output layer after every layer."""

PAPER, PUBLIC = "paper", "public"
DECAYS = (PAPER, PUBLIC)
"""Form of the decaying threshold: of the paper, or of the published code."""

THRESHOLD, TAU = "threshold", "tau"
"""Traced options: lambda in [0, 1], at which 1 all but never exits, and the decay's temperature."""


@struct.dataclass
class _Token:
    """Carry from layer to layer; `state` and `layers` of a row that left stay as they are."""

    state: jax.Array  # [B, 1, D] residual stream after the row's last layer so far
    left: jax.Array  # [B] bool
    layers: jax.Array  # [B] int32: decoder layers that the row took part in
    cache: Cache


@dataclasses.dataclass(frozen=True)
class Calm:
    """A row's layer is its last when its confidence reaches the row's threshold.

    Layers run until every active row has left. Those above a row's exit remember the keys and
    values of its exit state (section 3.2 of the paper), whether they run for other rows or not.
    """

    measure: str = SATURATION
    decay: str = PAPER

    def __post_init__(self) -> None:
        for name, known in (("measure", MEASURES), ("decay", DECAYS)):
            value = getattr(self, name)
            if value not in known:
                raise ValueError(f"{name} is {value!r}; it must be one of {', '.join(known)}")

    def extend(
        self,
        model: LanguageModel,
        params: Params,
        tokens: jax.Array,
        cache: Cache,
        context: Context,
    ) -> tuple[jax.Array, jax.Array, Cache]:
        """Feeds tokens [B, 1]; logits [B, 1, V], layers that each row ran [B], and the cache."""
        least = self.least_confidence(context)
        start = cache.length

        def run(token: _Token, layer: int) -> _Token:
            output, after = model.extend(
                params, tokens, token.cache, exit=layer + 1, resume=token.state, resume_from=layer
            )
            left = token.left
            if layer + 1 < model.depth:
                left |= self.confidence(output, token.state) >= least
            return _Token(
                jnp.where(token.left[:, None, None], token.state, output.hidden),
                left,
                jnp.where(token.left, token.layers, layer + 1),
                after.replace(length=start),
            )

        def skip(token: _Token, layer: int) -> _Token:
            layers = layer, layer + 1
            return token.replace(cache=model.propagate(params, token.state, token.cache, layers))

        output, cache = model.extend(params, tokens, cache, exit=1)
        token = _Token(
            output.hidden,
            ~context.active | (self.confidence(output, None) >= least),
            jnp.ones_like(start),
            cache.replace(length=start),
        )
        for layer in range(1, model.depth):
            done = jnp.all(token.left)
            token = when(~done, lambda token, layer=layer: run(token, layer), token)
            token = when(done, lambda token, layer=layer: skip(token, layer), token)
        logits = model.read_out(params, token.state)
        return logits, token.layers, token.cache.replace(length=start + 1)

    def confidence(self, output: Output, before: jax.Array | None) -> jax.Array:
        """How sure [B] a layer is; `before` [B, 1, D] are the states it read, None at first."""
        if self.measure == SOFTMAX:
            largest = jax.lax.top_k(jax.nn.softmax(output.logits[:, 0], axis=-1), 2)[0]
            return largest[:, 0] - largest[:, 1]
        if before is None:
            return jnp.full(output.hidden.shape[:1], -jnp.inf)
        return cosine(output.hidden[:, 0], before[:, 0])

    def least_confidence(self, context: Context) -> jax.Array:
        """The threshold [B] of the token that follows, lambda_t of section 3.3.

        It decays from the first generated token to the row's longest output.
        """
        numbers = context.options.numbers
        threshold, tau = numbers[THRESHOLD], numbers[TAU]
        longest = jnp.maximum(context.limit - context.begin, 1)
        decayed = 0.1 * jnp.exp(-tau * (context.length - context.begin) / longest)
        if self.decay == PUBLIC:
            return threshold * (0.9 + decayed)
        return jnp.clip(0.9 * threshold + decayed, 0.0, 1.0)


def cosine(a: jax.Array, b: jax.Array) -> jax.Array:
    """Cosine [B] of states [B, D], in float32."""
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    lengths = jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1)
    return jnp.sum(a * b, axis=-1) / lengths
