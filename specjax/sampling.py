"""Sampling settings: adjusted distributions of logits, and draws (docs/methods/sampling.md).

Which settings apply is static, their values are traced: another temperature does not recompile. The
order is temperature, top-k, top-p, the cuts of `CUTS`, softmax over the remaining tokens. A cut
returns which tokens [..., V] of logits [..., V] are kept; the most probable token, under typical
sampling the most typical one, always is. A token at -inf was cut before and has probability 0.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Float32, Int, Key


def keep_above_share(
    logits: Float[Array, "... V"], min_p: Float[Array, ""] | float
) -> Bool[Array, "... V"]:
    """Keeps tokens of at least `min_p` times the largest probability (Nguyen et al. 2024)."""
    probs = jax.nn.softmax(logits, axis=-1)
    return probs >= min_p * jnp.max(probs, axis=-1, keepdims=True)


def keep_typical(
    logits: Float[Array, "... V"], typical_p: Float[Array, ""] | float
) -> Bool[Array, "... V"]:
    """Keeps tokens with surprisal nearest to the entropy, up to mass `typical_p`.

    Locally typical sampling (Meister et al. 2023). Ties with the last token are kept too.
    """
    logp = jax.nn.log_softmax(logits, axis=-1)
    nearness = -jnp.abs(logp + _compute_logp_entropy(logp)[..., None])
    return nearness >= _find_last_kept(nearness, jnp.exp(logp), typical_p)


def keep_above(
    logits: Float[Array, "... V"], epsilon: Float[Array, " ..."] | float
) -> Bool[Array, "... V"]:
    """Keeps tokens of at least probability `epsilon`, and the most probable one.

    Epsilon sampling (Hewitt et al. 2022).
    """
    most_probable = logits == jnp.max(logits, axis=-1, keepdims=True)
    return most_probable | (jax.nn.softmax(logits, axis=-1) >= epsilon)


def keep_above_entropy(
    logits: Float[Array, "... V"], epsilon: Float[Array, ""] | float
) -> Bool[Array, "... V"]:
    """Keeps tokens of at least probability min(epsilon, sqrt(epsilon) exp(-entropy)).

    Eta sampling (Hewitt et al. 2022).
    """
    share = jnp.exp(-compute_entropy(logits))
    return keep_above(logits, jnp.minimum(epsilon, jnp.sqrt(epsilon) * share)[..., None])


def _compute_logp_entropy(logp: Float[Array, "... V"]) -> Float[Array, " ..."]:
    """Computes the entropy [...] in nats of log-probabilities [..., V]."""
    return -jnp.sum(jnp.where(logp > -jnp.inf, jnp.exp(logp) * logp, 0.0), axis=-1)


CUTS = {
    "min_p": (keep_above_share, 0.0),
    "typical_p": (keep_typical, 1.0),
    "epsilon_cutoff": (keep_above, 0.0),
    "eta_cutoff": (keep_above_entropy, 0.0),
}
"""Further cuts in order: the function, and the bound at which it keeps all tokens."""


MOST_TOKENS = 2**31 - 1
"""More tokens than any vocabulary has."""


class Sampling(struct.PyTreeNode):
    """Settings that turn logits into the distribution of the next token.

    With `greedy` (temperature 0) nothing else applies. `top_k` None is off; `nucleus` is whether
    `top_p` applies; `cuts` are the bounds of the `CUTS` that apply.
    """

    temperature: jax.Array | float = 1.0
    top_p: jax.Array | float = 1.0
    top_k: jax.Array | int | None = None
    greedy: bool = struct.field(pytree_node=False, default=False)
    nucleus: bool = struct.field(pytree_node=False, default=False)
    cuts: dict[str, jax.Array | float] = struct.field(default_factory=dict)


def make_sampling(
    temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, **cuts: float
) -> Sampling:
    """Builds settings; temperature 0 is greedy, top_k 0 and top_p 1 are off.

    `cuts` are bounds by name of `CUTS`, already checked as fields of a strategy.

    Raises:
      ValueError: if a setting is out of range.
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


def replace_temperature(settings: Sampling, temperature: float) -> Sampling:
    """Returns the settings with another temperature; 0 is greedy."""
    if temperature == 0.0:
        return Sampling(greedy=True)
    return settings.replace(temperature=jnp.float32(temperature), greedy=False)


def argmax(logits: Float[Array, "... V"]) -> Int[Array, " ..."]:
    """Returns the argmax [...] int32 of logits [..., V], the lowest id on ties."""
    return find_largest(logits, 1)[..., 0]


SEARCH_WIDTHS = range(16, 513)
"""Entries of a block of `find_largest`; the width nearest to `BEST_WIDTH` is taken."""

BEST_WIDTH = 64

LEAST_SEARCHED = 1024
"""Rows of fewer entries are searched at once."""


def find_largest(logits: Float[Array, "... V"], count: int) -> Int[Array, "... {count}"]:
    """Returns the top `count` ids [..., count] int32 of logits [..., V], lowest first on ties.

    On CPUs, where XLA's top-k sorts, only the `count` blocks with the largest maxima are searched,
    in which all of them are (`benchmarks/likeliest_child.py`).
    """
    width = _search_width(logits.shape[-1])
    if not width or 2 * count * width > logits.shape[-1]:
        return _find_at_once(logits, count)
    return jax.lax.platform_dependent(
        logits,
        cpu=functools.partial(_find_in_blocks, count=count, width=width),
        default=functools.partial(_find_at_once, count=count),
    )


@functools.cache
def _search_width(vocabulary: int) -> int:
    """The width of blocks that a vocabulary divides into; 0 if there is none."""
    widths = (width for width in SEARCH_WIDTHS if vocabulary % width == 0)
    nearest = min(widths, key=lambda width: abs(width - BEST_WIDTH), default=0)
    return nearest if vocabulary >= LEAST_SEARCHED else 0


def _find_at_once(logits: Float[Array, "... V"], count: int) -> Int[Array, "... {count}"]:
    """One id is a maximum and a search for it: XLA's argmax is not vectorized on CPUs."""
    if count > 1:
        return jax.lax.top_k(logits, count)[1]
    last = logits.shape[-1] - 1
    most = jnp.max(logits, axis=-1, keepdims=True)
    ids = jnp.where(logits == most, jnp.arange(last + 1, dtype=jnp.int32), last)
    return jnp.min(ids, axis=-1, keepdims=True)


def _find_in_blocks(
    logits: Float[Array, "... V"], count: int, width: int
) -> Int[Array, "... {count}"]:
    """Searches `count` blocks; in the order of their ids, so that ties go to the lowest one."""
    blocks = logits.reshape(*logits.shape[:-1], -1, width)
    chosen = jnp.sort(_find_at_once(jnp.max(blocks, axis=-1), count), axis=-1)
    inside = jnp.take_along_axis(blocks, chosen[..., None], axis=-2, mode="clip")
    place = _find_at_once(inside.reshape(*logits.shape[:-1], count * width), count)
    block = jnp.take_along_axis(chosen, place // width, axis=-1, mode="clip")
    return block * width + place % width


def adjust(logits: Float[Array, "... V"], settings: Sampling) -> Float32[Array, "... V"]:
    """Computes the adjusted probabilities [..., V] float32 of logits [..., V].

    Greedy settings give a one-hot distribution at the argmax; greedy decoding itself compares
    tokens and never computes it.
    """
    logits = logits.astype(jnp.float32)
    vocabulary = logits.shape[-1]
    if settings.greedy:
        return jax.nn.one_hot(argmax(logits), vocabulary, dtype=jnp.float32)
    logits = logits / settings.temperature
    if settings.top_k is not None:
        logits = jnp.where(_keep_largest(logits, 1, settings.top_k), logits, -jnp.inf)
    if settings.nucleus:
        probs = jax.nn.softmax(logits, axis=-1)
        logits = jnp.where(_keep_largest(logits, probs, settings.top_p), logits, -jnp.inf)
    for name, (keep, _) in CUTS.items():
        if name in settings.cuts:
            logits = jnp.where(keep(logits, settings.cuts[name]), logits, -jnp.inf)
    return jax.nn.softmax(logits, axis=-1)


def _keep_largest(
    values: Float32[Array, "... V"], weights: jax.Array | int, bound: jax.Array | float
) -> Bool[Array, "... V"]:
    """Keeps entries before which less than `bound` is ranked, on ties the lower ids first.

    Equal values have equal `weights`, [..., V] or one number.
    """
    last = _find_last_kept(values, weights, bound)
    larger, equal = values > last, values == last
    room = bound - jnp.sum(jnp.where(larger, weights, 0), axis=-1, keepdims=True)
    each = jnp.max(jnp.where(equal, weights, 0), axis=-1, keepdims=True)

    def keep_first() -> Bool[Array, "... V"]:
        before = jnp.cumsum(equal, axis=-1) - 1
        return larger | (equal & (before * each < room))

    # A sum along rows takes as long on CPUs as all the rest, and logits seldom are equal.
    cut = (jnp.sum(equal, axis=-1, keepdims=True) - 1) * each >= room
    return jax.lax.cond(jnp.any(cut), keep_first, lambda: larger | equal)


def _find_last_kept(
    values: Float32[Array, "... V"], weights: jax.Array | int, bound: jax.Array | float
) -> Float32[Array, "... 1"]:
    """Finds the smallest number [..., 1] such that what is larger weighs less than `bound`.

    By bisection over the numbers' bits, which takes no sort: 0.4 ms for 49,152 entries on a CPU
    where three sorts took 40.
    """
    high = _order(jnp.max(values, axis=-1, keepdims=True))
    low = jnp.full_like(high, _order(jnp.float32(-jnp.inf)))

    def halve(_: int, bounds: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = bounds
        middle = (low & high) + ((low ^ high) >> 1)  # their mean, without overflow
        larger = jnp.where(values > _number(middle), weights, 0)
        enough = jnp.sum(larger, axis=-1, keepdims=True) < bound
        return jnp.where(enough, low, middle + 1), jnp.where(enough, middle, high)

    return _number(jax.lax.fori_loop(0, 32, halve, (low, high))[1])


def _order(numbers: Float32[Array, " ..."]) -> Int[Array, " ..."]:
    """Integers in the order of floating-point numbers."""
    return _flip(jax.lax.bitcast_convert_type(numbers, jnp.int32))


def _number(order: Int[Array, " ..."]) -> Float32[Array, " ..."]:
    """The numbers of `_order`."""
    return jax.lax.bitcast_convert_type(_flip(order), jnp.float32)


def _flip(bits: Int[Array, " ..."]) -> Int[Array, " ..."]:
    """Reverses the order of negative numbers, whose bits grow with their size."""
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


BLOCK = 128
"""Weights per block of a draw."""


def draw(keys: Key[Array, " B"], weights: Float[Array, "B V"]) -> Int[Array, " B"]:
    """Draws one token [B] int32 per row from weights [B, V]; consumes each row's key.

    Weights need not be normalized, and a token of weight 0 is never drawn unless all are 0. First a
    block of tokens is drawn, then a token of the block, each by a uniform number of 23 bits:
    rounding moves less than 2**-24 of probability per block and per token of a block. Noise on
    every logarithm (Gumbel-max) took 92 us for 8,000 tokens on CPU where this takes 9 us, softmax
    included.
    """
    rows, vocabulary = weights.shape
    blocks = -(-vocabulary // BLOCK)
    parts = jnp.pad(weights, ((0, 0), (0, blocks * BLOCK - vocabulary)))
    parts = parts.reshape(rows, blocks, BLOCK)
    uniform = jax.vmap(lambda key: jax.random.uniform(key, (2,)))(keys)
    block = _find_quantile(jnp.sum(parts, axis=-1), uniform[:, 0])
    inside = jnp.take_along_axis(parts, block[:, None, None], axis=1, mode="clip")[:, 0]
    return jnp.minimum(block * BLOCK + _find_quantile(inside, uniform[:, 1]), vocabulary - 1)


def _find_quantile(weights: Float[Array, "B N"], uniform: Float[Array, " B"]) -> Int[Array, " B"]:
    """Returns the first index [B] int32 where cumulative weights exceed a share of the total.

    `weights` are [B, N], the share is `uniform` [B]. The weight at the index is not 0: rounded sums
    may stay constant, decrease, or never exceed the share.
    """
    sums = jnp.cumsum(weights, axis=-1)
    places = jnp.arange(weights.shape[-1], dtype=jnp.int32)
    possible = weights > 0
    passed = possible & (sums > uniform[:, None] * sums[:, -1:])
    last = jnp.max(jnp.where(possible, places, 0), axis=-1)
    return jnp.minimum(jnp.min(jnp.where(passed, places, len(places)), axis=-1), last)


def compute_confidence(logits: Float[Array, "... V"]) -> Float[Array, " ..."]:
    """Computes the largest plain (temperature 1) probability [...] of logits [..., V]."""
    return jnp.exp(jnp.max(logits, axis=-1) - jax.nn.logsumexp(logits, axis=-1))


def compute_entropy(logits: jax.Array) -> jax.Array:
    """Computes the plain (temperature 1) entropy [...] in nats of logits [..., V]."""
    return _compute_logp_entropy(jax.nn.log_softmax(logits, axis=-1))
