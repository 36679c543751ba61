"""Mixtures of experts: a router selects a few feed-forward networks for each token.

Shazeer et al., "Outrageously Large Neural Networks" (2017); Fedus et al., "Switch Transformers"
(2022), section 2.2 on capacity; Jiang et al., "Mixtral of Experts" (2024), section 2.1; shared
experts: Dai et al., "DeepSeekMoE" (2024), section 3.2; routers by sigmoids, groups and a
correction: DeepSeek-AI, "DeepSeek-V3 Technical Report" (2024), equations 13 to 16 and section
2.1.2. N tokens of all rows, E experts, k of them for a token, D model width, F width of an expert.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from specjax.models.layers import ACTIVATIONS, Dense, FeedForward, multiply
from specjax.models.quantized_weights import dequantize

Matrices = tuple[Any, ...]
"""Gate and up projections [E, D, F], down projections [E, F, D]: arrays, or quantized weights.

Networks without a gate have up and down projections only.
"""
Biases = tuple[jax.Array, ...]
"""Biases of the same projections, [E, F], [E, F] and [E, D]; empty: none."""
Join = Callable[..., jax.Array]
"""The inner states of a network by its gate and up projections, or by its up projection."""

FEW = 0.5
"""Maximum selections per expert for which matrices are gathered (docs/methods/operations.md)."""


TINY = 1e-20
"""Added to sums of weights, which sigmoids may round to zero."""

SCORINGS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "softmax": functools.partial(jax.nn.softmax, axis=-1),
    "sigmoid": jax.nn.sigmoid,
}
"""Scores of experts by the logits [N, E] of a router."""


@dataclasses.dataclass(frozen=True)
class Groups:
    """Equal groups of consecutive experts; a token's experts are in the best groups."""

    count: int
    chosen: int  # for each token
    summed: int  # largest scores of a group that are added up to the group's

    def restrict(self, scores: jax.Array) -> jax.Array:
        """Lowers scores [N, E] of experts outside of each token's groups below all others."""
        grouped = scores.reshape(len(scores), self.count, -1)
        best = jnp.sum(jax.lax.top_k(grouped, self.summed)[0], axis=-1)
        _, chosen = jax.lax.top_k(best, self.chosen)
        inside = jnp.any(chosen[..., None] == jnp.arange(self.count), axis=1)
        return jnp.where(inside[..., None], grouped, -jnp.inf).reshape(scores.shape)


@dataclasses.dataclass(frozen=True)
class ClampedGate:
    """A swish of any steepness that multiplies up projections plus 1, both clamped (gpt-oss)."""

    steepness: float
    limit: float

    def __call__(self, gate: jax.Array, up: jax.Array) -> jax.Array:
        gate = jnp.minimum(gate, self.limit)
        up = jnp.clip(up, -self.limit, self.limit)
        return gate * jax.nn.sigmoid(self.steepness * gate) * (up + 1.0)


def gate_by(activation: str) -> Join:
    """Returns the usual gate: the activation of one projection times the other."""
    return lambda gate, up: ACTIVATIONS[activation](gate) * up


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Shape of a layer's experts."""

    experts: int
    chosen: int  # for each token
    d_ff: int  # of each expert
    normalized: bool = True  # the weights of a token's experts add up to 1
    shared: int = 0  # width of the expert that all tokens have as well; 0: none
    gated_shared: bool = False  # its output is scaled by a sigmoid gate of the token
    shared_bias: bool = False  # of its projections, and of those to and from latent vectors
    latent: int = 0  # width of vectors that other experts read and write; 0: the model's
    scoring: str = "softmax"  # of the router's logits, one of `SCORINGS`
    corrected: bool = False  # a learned bias of each expert counts in selection, not in weights
    groups: Groups | None = None  # None: all experts may be selected
    scale: float = 1.0  # of the weights
    router_bias: bool = False  # of the router's logits
    biased: bool = False  # the experts' projections have biases
    clamp: ClampedGate | None = None  # in place of the activation
    gated: bool = True  # the experts are gated networks
    capacity: int = 0  # tokens of a text per expert, of which later ones skip it; 0: all
    weighted_inputs: bool = False  # weights scale what experts read, not what they make (Llama 4)
    jitter: float | None = None  # of `weigh_in_turn`, in place of scores; None: weights are scores

    def __post_init__(self) -> None:
        if not 1 <= self.chosen <= self.experts:
            raise ValueError(
                f"num_experts_per_tok is {self.chosen}; it must be from 1 to the {self.experts}"
                " experts"
            )
        if self.groups is not None:
            _check_groups(self.groups, self.experts, self.chosen)


def _check_groups(groups: Groups, experts: int, chosen: int) -> None:
    size = experts // groups.count
    if experts % groups.count or size < groups.summed:
        raise ValueError(
            f"n_group is {groups.count}; it must divide the {experts} experts into groups of at"
            f" least {groups.summed}"
        )
    if not chosen <= groups.chosen * size <= experts:
        raise ValueError(
            f"topk_group is {groups.chosen}; it must be at most the {groups.count} groups, and so"
            f" many that they have the {chosen} experts of a token"
        )


class Router(nn.Module):
    """Selects experts for each token, and their weights; computes in float32."""

    mixture: Mixture

    @nn.compact
    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Returns weights [N, k] float32 and indices [N, k] of the experts for states x [N, D]."""
        mixture = self.mixture
        project = Dense(mixture.experts, jnp.float32, bias=mixture.router_bias, name="logits")
        logits = project(x)
        if mixture.jitter is not None:
            return weigh_in_turn(logits, mixture.chosen, mixture.jitter)
        scores = SCORINGS[mixture.scoring](logits)
        # Sigmoids of large logits are equal.
        ranked = logits if mixture.weighted_inputs else scores
        if mixture.corrected:
            init = nn.initializers.zeros
            ranked += self.param("correction", init, (mixture.experts,), jnp.float32)
        if mixture.groups is not None:
            ranked = mixture.groups.restrict(ranked)
        _, chosen = jax.lax.top_k(ranked, mixture.chosen)
        weights = jnp.take_along_axis(scores, chosen, axis=-1)
        if mixture.normalized:
            weights = weights / (jnp.sum(weights, axis=-1, keepdims=True) + TINY)
        return weights * mixture.scale, chosen


def weigh_in_turn(logits: jax.Array, count: int, jitter: float) -> tuple[jax.Array, jax.Array]:
    """Selects experts as SparseMixer does outside of training (Liu et al. 2024, "GRIN").

    Returns weights and indices [N, k] of the `count` largest logits [N, E]. The weight of an expert
    is its share in a softmax over the experts that were not selected before it, without those whose
    logits are smaller by more than twice the share `jitter`.
    """
    best, chosen = jax.lax.top_k(logits, count)
    rows, left, weights = jnp.arange(len(logits)), logits, []
    for logit, expert in zip(best.T, chosen.T, strict=True):
        size = jnp.maximum(jnp.abs(logits), logit[:, None])
        is_far = (logit[:, None] - logits) / size > 2 * jitter
        shares = jax.nn.softmax(jnp.where(is_far, -jnp.inf, left), axis=-1)
        weights.append(shares[rows, expert])
        left = left.at[rows, expert].set(-jnp.inf)
    return jnp.stack(weights, axis=-1), chosen


def drop_beyond_capacity(
    weights: jax.Array, chosen: jax.Array, texts: int, mixture: Mixture
) -> jax.Array:
    """Zeroes weights [N, k] of the tokens of each text that come after an expert's capacity.

    Tokens count by their position in their own text, so a text does not depend on its batch.
    """
    member = jnp.sum(jax.nn.one_hot(chosen, mixture.experts, dtype=jnp.int32), axis=1)
    used = jnp.cumsum(member.reshape(texts, -1, mixture.experts), axis=1)
    place = jnp.take_along_axis(used.reshape(member.shape), chosen, axis=-1)
    return jnp.where(place <= mixture.capacity, weights, 0.0)


class Experts(nn.Module):
    """The weighted sum of the feed-forward networks that the router selects.

    The shared expert, if there is one, is added to it. One parameter holds a matrix of all experts,
    [E, in, out]. Devices split the experts' widths, so that every device reads its share of the
    selected experts.
    """

    mixture: Mixture
    activation: str
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, x: jax.Array, deterministic: bool = True) -> jax.Array:
        """Applies the experts to states x [B, T, D], without dropout."""
        mixture, tokens = self.mixture, x.reshape(-1, x.shape[-1]).astype(self.dtype)
        weights, chosen = Router(mixture, name="router")(tokens)
        if mixture.capacity:
            weights = drop_beyond_capacity(weights, chosen, len(x), mixture)
        width = mixture.latent or x.shape[-1]
        inwards = mixture.experts, width, mixture.d_ff
        outwards = mixture.experts, mixture.d_ff, width
        init = nn.initializers.variance_scaling(1.0, "fan_in", "normal", batch_axis=0)

        def parameter(name: str, init: Any, shape: tuple[int, ...]) -> Any:
            return self.param(name, init, shape, jnp.float32).astype(self.dtype)

        shapes = {"gate": inwards, "up": inwards, "down": outwards}
        if not mixture.gated:
            del shapes["gate"]
        matrices = tuple(parameter(f"{name}s", init, shape) for name, shape in shapes.items())
        biases = ()
        if mixture.biased:
            zeros = nn.initializers.zeros
            biases = tuple(
                parameter(f"{name}_biases", zeros, (mixture.experts, shape[-1]))
                for name, shape in shapes.items()
            )
        mix = gather_experts if chosen.size <= FEW * mixture.experts else scan_experts
        plain = gate_by(self.activation) if mixture.gated else ACTIVATIONS[self.activation]
        join = mixture.clamp or plain
        project = functools.partial(Dense, dtype=self.dtype, bias=mixture.shared_bias)
        read = project(width, name="latent_in")(tokens) if mixture.latent else tokens
        mixed = mix(read, weights, chosen, matrices, join, biases, mixture.weighted_inputs)
        if mixture.latent:
            mixed = project(x.shape[-1], name="latent_out")(mixed)
        if mixture.shared:
            shared = SharedExpert(mixture, self.activation, self.dtype, name="shared")
            mixed = mixed + shared(tokens)
        return mixed.astype(self.dtype).reshape(x.shape)


class SharedExpert(nn.Module):
    """The expert that all tokens have, scaled by a sigmoid gate if the mixture has one."""

    mixture: Mixture
    activation: str
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns outputs [N, D] of states x [N, D]."""
        mixture = self.mixture
        shape = mixture.shared, self.activation, mixture.gated, self.dtype
        expert = FeedForward(*shape, bias=mixture.shared_bias, name="expert")
        if not mixture.gated_shared:
            return expert(x)
        return jax.nn.sigmoid(Dense(1, self.dtype, name="token_gate")(x)) * expert(x)


def gather_experts(
    x: jax.Array,
    weights: jax.Array,
    chosen: jax.Array,
    matrices: Matrices,
    join: Join,
    biases: Biases = (),
    weighted_inputs: bool = False,
) -> jax.Array:
    """Sums outputs [N, D] float32 of the experts `chosen` [N, k] on x [N, D].

    The matrices of each token's experts are gathered. `weights` [N, k] scale outputs or inputs.
    """
    picked, added = jax.tree.map(lambda leaf: leaf[chosen], (matrices, biases))
    read = x[:, None] * weights[..., None].astype(x.dtype) if weighted_inputs else x
    made = _run_network(
        read,
        tuple(dequantize(x, matrix) for matrix in picked),
        join,
        added,
        functools.partial(jnp.einsum, "nkd,nkdf->nkf" if weighted_inputs else "nd,nkdf->nkf"),
        functools.partial(jnp.einsum, "nkf,nkfd->nkd"),
    )
    return jnp.sum(made if weighted_inputs else made * weights[..., None], axis=1)


def scan_experts(
    x: jax.Array,
    weights: jax.Array,
    chosen: jax.Array,
    matrices: Matrices,
    join: Join,
    biases: Biases = (),
    weighted_inputs: bool = False,
) -> jax.Array:
    """Computes `gather_experts` by running every expert on all tokens, weighted."""
    rows = jnp.arange(len(x))[:, None]
    shares = jnp.zeros((len(x), matrices[0].shape[0])).at[rows, chosen].set(weights)

    def add(total: jax.Array, expert: tuple[Matrices, Biases, jax.Array]) -> tuple[jax.Array, None]:
        own, added, share = expert
        read = x * share[:, None].astype(x.dtype) if weighted_inputs else x
        made = _run_network(read, own, join, added, multiply, multiply)
        return total + (made if weighted_inputs else made * share[:, None]), None

    nothing = jnp.zeros(x.shape, jnp.float32)
    return jax.lax.scan(add, nothing, (matrices, biases, shares.T))[0]


def _run_network(
    x: jax.Array,
    matrices: Matrices,
    join: Join,
    biases: Biases,
    inwards: Callable[[jax.Array, Any], jax.Array],
    outwards: Callable[[jax.Array, Any], jax.Array],
) -> jax.Array:
    """Runs networks on x [N, D]; the products are `inwards` and `outwards`."""
    *entries, down = matrices
    inner = [inwards(x, entry) for entry in entries]
    if not biases:
        return outwards(join(*inner), down)
    *added, last = biases
    inner = [one + bias for one, bias in zip(inner, added, strict=True)]
    return outwards(join(*inner), down) + last
