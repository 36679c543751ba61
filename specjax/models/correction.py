"""Corrections of a block's distributions by the tokens that were drafted before, left to right.

A parallel drafter gives logits U_k and states h_k of all places k at once. A correction makes
q_k(. | x_<k) of them without another call of its layers: it reads h_k, the token x_{k-1} before the
place (the anchor before the first one), and a state s_k of the tokens so far. Kinds, with a table
W_1 [V, r] of the token before:

  markov    U_k + W_2 e                          e = W_1[x_{k-1}]; DSpark (arXiv 2607.05147)
  gated     the same of sigma(G [h_k; e] + b) e
  rnn       U_k + W_2 tanh(o), s <- sigma(g) s + (1 - sigma(g)) tanh(c), (g, c, o) of [s; e; h_k]
  gru       U_k + W_b silu(W_a [h_k; s]), s <- GRU(embedding of x_{k-1}, s); Domino (2605.29707)
  selector  U_k + <e * P h_k, W_2> on the top-k tokens of U_k, no others; DFlash 2

Dimension letters as in `models.on_target`; r is the rank, J the size of the state.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct
from jax.scipy.special import logit

from specjax.models.layers import MASKED, Dense
from specjax.sampling import find_largest


@dataclasses.dataclass(frozen=True)
class Correction:
    """Shape of a correction."""

    kind: str  # markov, gated, rnn, gru or selector
    rank: int  # r
    hidden: int = 0  # J of a GRU; of an RNN it is the rank
    candidates: int = 0  # tokens that a selector chooses among
    first: int = 0  # places before it keep their own logits
    confidence: bool = False  # a head estimates whether the token of a place will be accepted
    confidence_reads_token: bool = True  # and reads the table's row of the token before
    temperatures: tuple[float, ...] = ()  # of the head's places; later ones have the last; (): 1

    @property
    def state_size(self) -> int:
        return {"rnn": self.rank, "gru": self.hidden}.get(self.kind, 0)

    def calibrate(self, confidence: jax.Array, place: jax.Array | int) -> jax.Array:
        """The confidence [...] of a place after its temperature (`training.calibration`)."""
        if not self.temperatures:
            return confidence
        divisors = jnp.array(self.temperatures, jnp.float32)
        return jax.nn.sigmoid(logit(confidence) / jnp.take(divisors, place, mode="clip"))


class BlockLogits(struct.PyTreeNode):
    """Logits of the K drafted tokens of blocks, with and without the correction."""

    logits: jax.Array  # [B, A, K, U]
    base: jax.Array  # [B, A, K, U]
    confidence: jax.Array | None  # [B, A, K], of a correction with such a head


class Corrector(nn.Module):
    """The parameters of a correction, and one step of it."""

    correction: Correction
    vocabulary: int  # ids of the target
    drafted: int  # U, ids that can be drafted
    dtype: Any

    def setup(self) -> None:
        c, normal = self.correction, nn.initializers.normal(0.02)
        if c.kind != "gru":
            shape = self.vocabulary, c.rank
            self.before = self.param("before", normal, shape, jnp.float32)
        if c.kind == "selector":
            self.project = Dense(c.rank, self.dtype)
            zeros = nn.initializers.zeros_init()
            self.after = self.param("after", zeros, (self.drafted, c.rank), jnp.float32)
        else:
            self.output = Dense(self.drafted, self.dtype, init_scale=0.0)
        if c.kind == "gated":
            self.gate = Dense(c.rank, self.dtype, bias=True)
        if c.kind == "rnn":
            self.joint = Dense(3 * c.rank, self.dtype, bias=True)
        if c.kind == "gru":
            self.inputs = Dense(3 * c.hidden, self.dtype)
            self.recurrent = Dense(3 * c.hidden, self.dtype)
            self.enter = Dense(c.rank, self.dtype)
        if c.confidence:
            self.confidence = Dense(1, self.dtype, bias=True)

    def __call__(
        self,
        logits: jax.Array,
        hidden: jax.Array,
        tokens: jax.Array,
        embedded: jax.Array,
        state: jax.Array,
        place: jax.Array | int,  # [...]
        all_tokens: bool = False,
    ) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        """Corrected logits [..., U] of a place, its state [..., J], and the confidence [...].

        `tokens` [...] are those before the place and `embedded` [..., E] their embeddings, `state`
        [..., J] that of the place before. The confidence is the probability that the place's token
        is accepted if all before it are; None without a head. With `all_tokens` a selector scores
        not only its candidates, as training needs it.
        """
        c = self.correction
        token_row = None if c.kind == "gru" else self.before[tokens].astype(self.dtype)
        corrected, state = self._correct(logits, hidden, token_row, embedded, state, all_tokens)
        corrected = jnp.where(jnp.asarray(place)[..., None] < c.first, logits, corrected)
        if not c.confidence:
            return corrected, state, None
        inputs = [hidden]
        if c.confidence_reads_token and token_row is not None:
            inputs.append(token_row)
        score = self.confidence(jnp.concatenate(inputs, axis=-1))[..., 0]
        return corrected, state, jax.nn.sigmoid(score.astype(jnp.float32))

    def _correct(
        self,
        logits: jax.Array,
        hidden: jax.Array,
        token_row: jax.Array | None,
        embedded: jax.Array,
        state: jax.Array,
        all_tokens: bool,
    ) -> tuple[jax.Array, jax.Array]:
        kind = self.correction.kind
        if kind == "gru":
            state = self._step_gru(embedded, state)
            low = nn.silu(self.enter(jnp.concatenate([hidden, state], axis=-1)))
            return logits + self._to_float32(self.output(low)), state
        assert token_row is not None
        if kind == "selector":
            return self._select(logits, token_row * self.project(hidden), all_tokens), state
        if kind == "gated":
            gate = self.gate(jnp.concatenate([hidden, token_row], axis=-1))
            token_row = token_row * nn.sigmoid(gate)
        if kind == "rnn":
            joint = self.joint(jnp.concatenate([state, token_row, hidden], axis=-1))
            gate, candidate, out = jnp.split(joint, 3, axis=-1)
            gate = nn.sigmoid(gate)
            state = gate * state + (1 - gate) * jnp.tanh(candidate)
            token_row = jnp.tanh(out)
        return logits + self._to_float32(self.output(token_row)), state

    def _step_gru(self, embedded: jax.Array, state: jax.Array) -> jax.Array:
        """PyTorch's GRU cell without biases: gates in the order reset, update, new."""
        reset, update, new = jnp.split(self.inputs(embedded), 3, axis=-1)
        own_reset, own_update, own_new = jnp.split(self.recurrent(state), 3, axis=-1)
        update = nn.sigmoid(update + own_update)
        candidate = jnp.tanh(new + nn.sigmoid(reset + own_reset) * own_new)
        return (1 - update) * candidate + update * state

    def _select(self, logits: jax.Array, query: jax.Array, all_tokens: bool) -> jax.Array:
        """Scores of the candidates; all other tokens are impossible."""
        if all_tokens:
            scores = jnp.einsum("...r,ur->...u", query, self.after.astype(self.dtype))
            return logits + self._to_float32(scores)
        chosen = find_largest(logits, min(self.correction.candidates, self.drafted))
        scores = jnp.take_along_axis(logits, chosen, axis=-1)
        keys = self.after[chosen].astype(self.dtype)
        scores = scores + self._to_float32(jnp.einsum("...r,...kr->...k", query, keys))
        rows = jnp.indices(chosen.shape, sparse=True)[:-1]
        return jnp.full_like(logits, MASKED).at[(*rows, chosen)].set(scores)

    def _to_float32(self, x: jax.Array) -> jax.Array:
        return x.astype(jnp.float32)
