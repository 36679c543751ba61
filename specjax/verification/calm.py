"""Confident adaptive language modeling (CALM): early exit at a layer per token.

Schuster et al., "Confident Adaptive Language Modeling" (2022), as the baseline of Kim et al.
(2023); docs/methods/calm.md.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, Int32

from specjax.contracts import fields
from specjax.contracts.context import Context, get_pending_tokens
from specjax.contracts.draft import Draft
from specjax.contracts.env import Env, get_states
from specjax.contracts.reader import WIDTH, Judge, Reader
from specjax.contracts.registry import READERS
from specjax.contracts.rows import run_if
from specjax.contracts.rule import Reading, Verdict
from specjax.contracts.spec import Spec
from specjax.models.base import Cache, Output, Resume
from specjax.sampling import find_largest

SATURATION, SOFTMAX = "saturation", "softmax"
MEASURES = (SATURATION, SOFTMAX)
"""Confidence of a layer: the cosine of the residual states after it and after the layer before, so
that the second layer is the first possible exit; or the difference of the two largest
probabilities, which runs the LM head after every layer."""

PAPER, PUBLIC = "paper", "public"
DECAYS = (PAPER, PUBLIC)
"""Form of the decaying threshold: the paper's, or the published code's."""

LAYERS = "layers"
"""Column: decoder layers run for the row's token."""


class _Token(struct.PyTreeNode):
    """Carry of the loop over layers; `state` and `layers` are frozen after a row's exit."""

    state: Float[Array, "B 1 D"]  # residual stream after the row's last layer
    exited: Bool[Array, " B"]
    layers: Int32[Array, " B"]  # decoder layers run for the row
    cache: Cache


@READERS.register("calm", example={"threshold": 0.9})
@dataclasses.dataclass(frozen=True)
class Calm(Reader):
    """A row exits at the first layer whose confidence reaches the row's threshold.

    Layers run until every active row has exited. Layers above a row's exit cache the keys and
    values of its exit state (section 3.2 of the paper), whether they run for other rows or not.
    Nothing is drafted.
    """

    threshold: str = fields.number(
        bounds="[0, 1]", traced="threshold", help="lambda; at 1 hardly any token exits early"
    )
    tau: str = fields.number(
        0.0, bounds="[0, inf)", traced="tau", help="temperature of the threshold's decay"
    )
    measure: str = fields.choice(MEASURES, SATURATION, help="confidence of a layer")
    decay: str = fields.choice(DECAYS, PAPER, help="form of the threshold")

    columns = (LAYERS,)

    @property
    def exact(self) -> bool:
        return False

    def adapt_to(self, spec: Spec, own: Reader | None) -> Calm:
        return self

    def check(self, width: int) -> None:
        if width:
            raise ValueError(
                "reader is 'calm', which decodes without drafts; drafter must be 'none', not one"
                f" that proposes {width} tokens"
            )

    def read(
        self,
        env: Env,
        cache: Cache,
        draft: Draft,
        context: Context,
        judge: Judge,
        features: tuple[int, ...] = (),
    ) -> tuple[Verdict, Reading, Cache, dict[str, Int[Array, " B"]]]:
        token, cache = self._exit(env, get_pending_tokens(context)[:, None], cache, context)
        reading = Reading(env.target.read_out(token.state), token.state)
        width = jnp.zeros_like(token.layers)
        return judge(draft, reading), reading, cache, {WIDTH: width, LAYERS: token.layers}

    def _exit(
        self, env: Env, tokens: Int[Array, "B 1"], cache: Cache, context: Context
    ) -> tuple[_Token, Cache]:
        """Runs tokens [B, 1] up to each row's exit layer; returns states and the cache."""
        target, depth = env.target, env.target.model.info.depth
        least, start = self.compute_threshold(context), cache.length

        def run(token: _Token, layer: int) -> _Token:
            resume = Resume(token.state, layer)
            output, after = target.extend(tokens, token.cache, exit=layer + 1, resume=resume)
            exited = token.exited
            if layer + 1 < depth:
                exited |= self.compute_confidence(output, token.state) >= least
            return _Token(
                jnp.where(token.exited[:, None, None], token.state, get_states(output)),
                exited,
                jnp.where(token.exited, token.layers, layer + 1),
                after.replace(length=start),
            )

        def skip(token: _Token, layer: int) -> _Token:
            cache = target.propagate(token.state, token.cache, (layer, layer + 1))
            return token.replace(cache=cache)

        output, cache = target.extend(tokens, cache, exit=1)
        token = _Token(
            get_states(output),
            ~context.active | (self.compute_confidence(output, None) >= least),
            jnp.ones_like(start),
            cache.replace(length=start),
        )
        for layer in range(1, depth):
            done = jnp.all(token.exited)
            token = run_if(~done, lambda token, layer=layer: run(token, layer), token)
            token = run_if(done, lambda token, layer=layer: skip(token, layer), token)
        return token, token.cache.replace(length=start + 1)

    def compute_confidence(
        self, output: Output, before: Float[Array, "B 1 D"] | None
    ) -> Float[Array, " B"]:
        """Computes a layer's confidence [B]; `before` [B, 1, D] are its input states.

        `before` is None for the first layer.
        """
        if self.measure == SOFTMAX:
            probs = jax.nn.softmax(output.logits[:, 0], axis=-1)
            largest = jnp.take_along_axis(probs, find_largest(probs, 2), axis=-1)
            return largest[:, 0] - largest[:, 1]
        if before is None:
            return jnp.full(get_states(output).shape[:1], -jnp.inf)
        return compute_cosine(get_states(output)[:, 0], before[:, 0])

    def compute_threshold(self, context: Context) -> Float[Array, " B"]:
        """Computes the threshold [B] of the next token, lambda_t of section 3.3.

        It decays from the first generated token to the row's maximum length.
        """
        numbers = context.options.numbers
        threshold, tau = numbers[self.threshold], numbers[self.tau]
        longest = jnp.maximum(context.limit - context.begin, 1)
        decayed = 0.1 * jnp.exp(-tau * (context.length - context.begin) / longest)
        if self.decay == PUBLIC:
            return threshold * (0.9 + decayed)
        return jnp.clip(0.9 * threshold + decayed, 0.0, 1.0)


def compute_cosine(a: Float[Array, "B D"], b: Float[Array, "B D"]) -> Float[Array, " B"]:
    """Computes the cosine [B] of states [B, D] in float32."""
    a, b = a.astype(jnp.float32), b.astype(jnp.float32)
    lengths = jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1)
    return jnp.sum(a * b, axis=-1) / lengths
