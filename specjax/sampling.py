"""From logits to the distribution that is sampled, and draws from it (docs/methods/sampling.md).

Which processors run is static, their numbers are traced: sweeping the temperature does not
recompile. The order is temperature, top-k, top-p, the cuts of `CUTS`, softmax over what survives.
A cut says of logits [..., V] which tokens [..., V] are kept; the most probable or, under typical
sampling, the most typical one always is. A token at -inf was cut before and has probability 0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Float32, Int, Key


def above_share(
    logits: Float[Array, "... V"], min_p: Float[Array, ""] | float
) -> Bool[Array, "... V"]:
    """Tokens of at least this share of the largest probability (Nguyen et al. 2024)."""
    probs = jax.nn.softmax(logits, axis=-1)
    return probs >= min_p * jnp.max(probs, axis=-1, keepdims=True)


def typical(
    logits: Float[Array, "... V"], typical_p: Float[Array, ""] | float
) -> Bool[Array, "... V"]:
    """Tokens whose surprise is nearest to the entropy, until they sum to this probability.

    Locally typical sampling (Meister et al. 2023). Tokens as near as the last one stay too.
    """
    logp = jax.nn.log_softmax(logits, axis=-1)
    distance = jnp.abs(logp + _entropy(logp)[..., None])
    order = jnp.argsort(distance, axis=-1, stable=True)
    mass = jnp.cumsum(jnp.take_along_axis(jnp.exp(logp), order, axis=-1), axis=-1)
    last = jnp.sum(mass < typical_p, axis=-1, keepdims=True, dtype=jnp.int32)
    last = jnp.take_along_axis(order, jnp.minimum(last, logits.shape[-1] - 1), axis=-1)
    return distance <= jnp.take_along_axis(distance, last, axis=-1)


def above(
    logits: Float[Array, "... V"], epsilon: Float[Array, " ..."] | float
) -> Bool[Array, "... V"]:
    """Tokens of at least this probability (Hewitt et al. 2022), the likeliest at least."""
    likeliest = logits == jnp.max(logits, axis=-1, keepdims=True)
    return likeliest | (jax.nn.softmax(logits, axis=-1) >= epsilon)


def above_entropy(
    logits: Float[Array, "... V"], epsilon: Float[Array, ""] | float
) -> Bool[Array, "... V"]:
    """Tokens above the lower of epsilon and sqrt(epsilon) exp(-entropy) (eta sampling, ibid.)."""
    share = jnp.exp(-entropy(logits))
    return above(logits, jnp.minimum(epsilon, jnp.sqrt(epsilon) * share)[..., None])


def _entropy(logp: Float[Array, "... V"]) -> Float[Array, " ..."]:
    """Entropy [...] of log-probabilities [..., V]."""
    return -jnp.sum(jnp.where(logp > -jnp.inf, jnp.exp(logp) * logp, 0.0), axis=-1)


CUTS = {
    "min_p": (above_share, 0.0),
    "typical_p": (typical, 1.0),
    "epsilon_cutoff": (above, 0.0),
    "eta_cutoff": (above_entropy, 0.0),
}
"""Further cuts in their order: what stays, and the bound at which all tokens do."""


MOST_TOKENS = 2**31 - 1
"""As many as no vocabulary has."""


class Sampling(struct.PyTreeNode):
    """How the next token is chosen from logits.

    `greedy` (temperature 0) skips everything else. `top_k` is None where it does not apply;
    `nucleus` says whether `top_p` does. `cuts` are the bounds of those of `CUTS` that apply.
    """

    temperature: jax.Array | float = 1.0
    top_p: jax.Array | float = 1.0
    top_k: jax.Array | int | None = None
    greedy: bool = struct.field(pytree_node=False, default=False)
    nucleus: bool = struct.field(pytree_node=False, default=False)
    cuts: dict[str, jax.Array | float] = struct.field(default_factory=dict)


def sampling(
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, **cuts: float
) -> Sampling:
    """Checked settings: temperature 0 is greedy, top_k 0 and top_p 1 disable the truncation.

    `cuts` are bounds by the names of `CUTS`, which the fields of a strategy have checked.

    Raises:
      ValueError: when a setting is out of range.
    """
    if not 0.0 <= temperature < float("inf"):
        raise ValueError(f"temperature is {temperature}; it must be 0 (greedy) or positive")
    if top_k < 0:
        raise ValueError(f"top_k is {top_k}; it must be 0 (off) or positive")
    if not 0.0 < top_p <= 1.0:
        raise ValueError(f"top_p is {top_p}; it must be in (0, 1], 1 is off")
    if temperature == 0.0:
        return Sampling(greedy=True)
    return Sampling(
        temperature=jnp.float32(temperature),
        top_p=jnp.float32(top_p),
        top_k=jnp.int32(min(top_k, MOST_TOKENS)) if top_k else None,
        nucleus=top_p < 1.0,
        cuts={name: jnp.float32(bound) for name, bound in cuts.items() if bound != CUTS[name][1]},
    )


def at_temperature(given: Sampling, temperature: float) -> Sampling:
    """The same truncations at another temperature; 0 is greedy."""
    if temperature == 0.0:
        return Sampling(greedy=True)
    return given.replace(temperature=jnp.float32(temperature), greedy=False)


def argmax(logits: Float[Array, "... V"]) -> Int[Array, " ..."]:
    """Ids [...] int32 of the largest of logits [..., V], the lowest on ties.

    A maximum and a search for it: XLA's own argmax, one fused reduction over pairs, is not
    vectorised on CPU and took 32 us against 3 us for 8,000 entries.
    """
    vocabulary = logits.shape[-1]
    most = jnp.max(logits, axis=-1, keepdims=True)
    ids = jnp.where(logits == most, jnp.arange(vocabulary, dtype=jnp.int32), vocabulary - 1)
    return jnp.min(ids, axis=-1)


def largest(logits: Float[Array, "... V"], count: int) -> Int[Array, "... {count}"]:
    """Ids [..., count] int32 of the largest of logits [..., V], in order, the lowest on ties.

    XLA's top-k sorts: for one id of 8,000 it took 12 us on CPU where a search took 5 us
    (`benchmarks/likeliest_child.py`).
    """
    return argmax(logits)[..., None] if count == 1 else jax.lax.top_k(logits, count)[1]


def adjust(logits: Float[Array, "... V"], settings: Sampling) -> Float32[Array, "... V"]:
    """Adjusted probabilities [..., V] float32 of logits [..., V].

    Greedy is certain of the argmax, lowest id on ties; decoding itself compares tokens and never
    asks for it.
    """
    logits = logits.astype(jnp.float32)
    vocabulary = logits.shape[-1]
    if settings.greedy:
        return jax.nn.one_hot(argmax(logits), vocabulary, dtype=jnp.float32)
    logits = logits / settings.temperature
    if settings.top_k is not None:
        logits = jnp.where(_ranks(logits) < settings.top_k, logits, -jnp.inf)
    if settings.nucleus:
        logits = jnp.where(_in_nucleus(logits, settings.top_p), logits, -jnp.inf)
    for name, (stays, _) in CUTS.items():
        if name in settings.cuts:
            logits = jnp.where(stays(logits, settings.cuts[name]), logits, -jnp.inf)
    return jax.nn.softmax(logits, axis=-1)


def _ranks(logits: Float[Array, "... V"]) -> Int[Array, "... V"]:
    """Rank of each entry, 0 the largest, ties to the lower id."""
    order = jnp.argsort(-logits, axis=-1, stable=True)
    return jnp.argsort(order, axis=-1)


def _in_nucleus(
    logits: Float[Array, "... V"], top_p: Float[Array, ""] | float
) -> Bool[Array, "... V"]:
    """Whether the probability mass ranked before an entry is below `top_p`."""
    probs = jax.nn.softmax(logits, axis=-1)
    order = jnp.argsort(-probs, axis=-1, stable=True)
    ranked = jnp.take_along_axis(probs, order, axis=-1)
    before = jnp.cumsum(ranked, axis=-1) - ranked
    # The first one stays even when rounding makes its own mass exceed top_p.
    keep = (before < top_p).at[..., 0].set(True)
    return jnp.take_along_axis(keep, jnp.argsort(order, axis=-1), axis=-1)


BLOCK = 128
"""Weights that a draw adds up at once."""


def draw(keys: Key[Array, " B"], weights: Float[Array, "B V"]) -> Int[Array, " B"]:
    """One token [B] int32 per row from weights [B, V]; each row consumes its own key.

    Weights need not be normalised, and a token of weight 0 is never drawn unless all are. First a
    block of tokens is drawn, then one of it, each by a uniform number of 23 bits: rounding moves
    less than 2**-24 of probability for each block and each token of one. Noise on every logarithm
    (Gumbel-max) took 92 us for 8,000 tokens on CPU where this takes 9 us, softmax included.
    """
    rows, vocabulary = weights.shape
    blocks = -(-vocabulary // BLOCK)
    parts = jnp.pad(weights, ((0, 0), (0, blocks * BLOCK - vocabulary)))
    parts = parts.reshape(rows, blocks, BLOCK)
    uniform = jax.vmap(lambda key: jax.random.uniform(key, (2,)))(keys)
    block = _reached(jnp.sum(parts, axis=-1), uniform[:, 0])
    inside = jnp.take_along_axis(parts, block[:, None, None], axis=1, mode="clip")[:, 0]
    return jnp.minimum(block * BLOCK + _reached(inside, uniform[:, 1]), vocabulary - 1)


def _reached(weights: Float[Array, "B N"], uniform: Float[Array, " B"]) -> Int[Array, " B"]:
    """The first place [B] int32 of weights [B, N] where their sum passes this part [B] of all.

    Its weight is not 0: rounded sums may stand still, fall, or never pass the part.
    """
    sums = jnp.cumsum(weights, axis=-1)
    places = jnp.arange(weights.shape[-1], dtype=jnp.int32)
    possible = weights > 0
    passed = possible & (sums > uniform[:, None] * sums[:, -1:])
    last = jnp.max(jnp.where(possible, places, 0), axis=-1)
    return jnp.minimum(jnp.min(jnp.where(passed, places, len(places)), axis=-1), last)


def confidence(logits: Float[Array, "... V"]) -> Float[Array, " ..."]:
    """Largest plain (temperature 1) probability [...] of logits [..., V]."""
    return jnp.exp(jnp.max(logits, axis=-1) - jax.nn.logsumexp(logits, axis=-1))


def entropy(logits: jax.Array) -> jax.Array:
    """Entropy [...] in nats of the plain (temperature 1) distribution of logits [..., V]."""
    return _entropy(jax.nn.log_softmax(logits, axis=-1))
