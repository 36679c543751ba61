"""Building blocks shared by the model families: projections, norms, attention, masks.

Layout choices live here because only whole programs can judge them (docs/decisions.md): weights are
`[in, out]` and applied as `x @ w` (`half_weights` has outputs first), caches are head-major
`[B, H, C, d]`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int

from specjax.models import half_weights, small_weights
from specjax.models.half_weights import HalfKernel

MASKED = -1e9
"""Added to the score of a position that must not be attended; finite, so that no row is NaN."""


def product(x: Float[Array, "... D"], w: Any) -> Float[Array, "... F"]:
    """x [..., D] times w [D, F], an array or a small weight, with the leading axes as one.

    The gradient of w is then a product of matrices as they lie; over several axes XLA's CPU
    backend transposes the incoming gradient first (docs/decisions.md).
    """
    rows = x.reshape(-1, x.shape[-1])
    made = small_weights.product(rows, w) if small_weights.is_small(w) else _whole_product(rows, w)
    return made.reshape(*x.shape[:-1], w.shape[1])


FEW_ROWS = range(3, 8)
"""Rows of a product whose weights XLA must not pack on a CPU, where packing is the cost."""

LARGE = 1 << 19
"""Least elements of such weights: 2 MB in float32. Smaller ones stay in a core's cache."""


def _whole_product(rows: Float[Array, "N D"], w: Float[Array, "D F"]) -> Float[Array, "N F"]:
    """rows [N, D] times w [D, F].

    On a CPU XLA gives products of several rows to a library that copies all of w at every call.
    It takes none whose left side is transposed, and the barrier keeps XLA from turning it back.
    """
    if rows.dtype == w.dtype == jnp.bfloat16:
        return half_weights.matmul(rows, w)
    if len(rows) not in FEW_ROWS or w.size < LARGE:
        return rows @ w

    def unpacked(rows: jax.Array, w: jax.Array) -> jax.Array:
        transposed = jax.lax.optimization_barrier(rows.T)
        return jax.lax.dot_general(transposed, w, (((0,), (0,)), ((), ())))

    return jax.lax.platform_dependent(rows, w, cpu=unpacked, default=jnp.matmul)


class Dense(nn.Module):
    """`x @ w`, plus a bias when asked for; arithmetic runs in `dtype`."""

    features: int
    dtype: jnp.dtype = jnp.float32
    init_scale: float = 1.0
    bias: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... F"]:
        init = nn.initializers.variance_scaling(self.init_scale, "fan_in", "normal")
        kernel = self._kernel(init, (x.shape[-1], self.features))
        y = product(x.astype(self.dtype), kernel.astype(self.dtype))
        if not self.bias:
            return y
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        return y + bias.astype(self.dtype)

    def _kernel(self, init: Any, shape: tuple[int, int]) -> Any:
        """The kernel as it is stored, which Flax knows by its own shape only."""
        stored = self.get_variable("params", "kernel")
        known = isinstance(stored, HalfKernel) and stored.shape == shape
        return stored if known else self.param("kernel", init, shape, jnp.float32)


def tied_logits(
    x: Float[Array, "... D"], table: Float[Array, "V D"], training: bool
) -> Float32[Array, "... V"]:
    """Float32 logits [B, T, V] of states [B, T, D] under the embedding table [V, D].

    The table is multiplied in the dtype of the states; where it is stored in bfloat16 under float32
    states, without a copy (`half_weights`). It is the left operand when decoding: on CPU the other
    order repacks it at every call. Training has so many states that moving [V, B, T] to its place
    and back costs more.
    """
    if (table.dtype, x.dtype) == (jnp.bfloat16, jnp.float32):
        made = half_weights.product(x.reshape(-1, x.shape[-1]), table)
        return made.reshape(*x.shape[:-1], len(table))
    table = table.astype(x.dtype)
    if training:
        return product(x, table.T).astype(jnp.float32)

    def table_first(table: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.moveaxis(jnp.einsum("vd,...d->v...", table, x), 0, -1).astype(jnp.float32)

    def summed_in_float32(table: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.einsum("...d,vd->...v", x, table, preferred_element_type=jnp.float32)

    if x.dtype != jnp.bfloat16:
        return table_first(table, x)
    return jax.lax.platform_dependent(table, x, cpu=summed_in_float32, default=table_first)


class RMSNorm(nn.Module):
    """Scale by the root mean square, computed in float32 (T5 and Llama norm, no bias)."""

    eps: float = 1e-6
    unit_offset: bool = False  # the parameter is what the scale exceeds 1 by (Gemma)

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... D"]:
        init = nn.initializers.zeros if self.unit_offset else nn.initializers.ones
        scale = self.param("scale", init, (x.shape[-1],), jnp.float32)
        if self.unit_offset:
            # In float32 whatever the parameter's dtype: half precision has no digits left beside 1.
            scale = 1.0 + scale.astype(jnp.float32)
        x32 = x.astype(jnp.float32)
        mean_square = jnp.mean(x32 * x32, axis=-1, keepdims=True)
        return (x32 * jax.lax.rsqrt(mean_square + self.eps) * scale).astype(x.dtype)


class LayerNorm(nn.Module):
    """Zero mean, unit variance, then scale and bias; computed in float32 (GPT-2's norm)."""

    eps: float = 1e-5

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... D"]:
        scale = self.param("scale", nn.initializers.ones, (x.shape[-1],), jnp.float32)
        bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],), jnp.float32)
        centered = x.astype(jnp.float32) - jnp.mean(x, axis=-1, keepdims=True, dtype=jnp.float32)
        variance = jnp.mean(centered * centered, axis=-1, keepdims=True)
        return (centered * jax.lax.rsqrt(variance + self.eps) * scale + bias).astype(x.dtype)


ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_new": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_fast": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_accurate": lambda x: jax.nn.gelu(x, approximate=True),
    "gelu_python": lambda x: jax.nn.gelu(x, approximate=False),
    "gelu_python_tanh": lambda x: jax.nn.gelu(x, approximate=True),
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
    "swish": jax.nn.silu,
    "mish": jax.nn.mish,
    "relu2": lambda x: jnp.square(jax.nn.relu(x)),
    "relu6": jax.nn.relu6,
    "leaky_relu": jax.nn.leaky_relu,
    "hardswish": jax.nn.hard_silu,
    "sigmoid": jax.nn.sigmoid,
    "tanh": jnp.tanh,
    "linear": lambda x: x,
}
"""Activations by Hugging Face's names; several have more than one."""


class FeedForward(nn.Module):
    """Two-matrix or gated (three-matrix) feed-forward network, of `features` outputs."""

    width: int
    activation: str
    gated: bool
    dtype: jnp.dtype = jnp.float32
    dropout: float = 0.0
    bias: bool = False
    features: int | None = None  # None: as many as inputs

    @nn.compact
    def __call__(
        self, x: Float[Array, "... D"], deterministic: bool = True
    ) -> Float[Array, "... F"]:
        act = ACTIVATIONS[self.activation]
        dense = functools.partial(Dense, dtype=self.dtype, bias=self.bias)
        hidden = act(dense(self.width, name="gate" if self.gated else "up")(x))
        if self.gated:
            hidden = hidden * dense(self.width, name="up")(x)
        hidden = nn.Dropout(self.dropout)(hidden, deterministic=deterministic)
        return dense(self.features or x.shape[-1], name="down")(hidden)


def call(module: nn.Module, method: str, params: Any, *args: Any, **how: Any) -> Any:
    """`module.method(*args)`, which changes no variables and so returns none."""
    return module.apply({"params": params}, *args, method=method, **how)


@functools.partial(jax.jit, static_argnames=("module", "method", "layers", "features"), inline=True)
def apply(
    module: nn.Module,
    method: str,
    params: Any,
    *args: Any,
    layers: tuple[int, int] | None = None,
    features: tuple[int, ...] | None = None,
) -> Any:
    """`module.method(*args)`, traced once per shape however many programs it becomes part of.

    Inlined, so the programs are those of a direct call. `layers` and `features` are handed on where
    they are given.
    """
    which = {"layers": layers, "features": features}
    which = {name: value for name, value in which.items() if value is not None}
    return call(module, method, params, *args, **which)


def initial(module: nn.Module, key: jax.Array, *shapes: tuple[int, ...]) -> Any:
    """Fresh parameters of a module that is called with int32 arrays of these shapes.

    Only the parameters are computed, one by one: in one program their compilation takes longer.
    """
    args = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes)
    return module.lazy_init(key, *args)["params"]


def rematerialize(call: Callable[..., Any], on: bool) -> Callable[..., Any]:
    """`call(module, *arrays)`; when `on`, what it computes is not kept for the gradient.

    The gradient then runs the call once more (Chen et al. 2016, "Training Deep Nets with Sublinear
    Memory Cost"): memory of one layer instead of all for about a third more arithmetic. On CPU
    it saves memory only with `XLA_FLAGS=--xla_disable_hlo_passes=cse_barrier_expander`.
    """
    return nn.remat(call) if on else call


def split_heads(x: Float[Array, "B T D"], heads: int) -> Float[Array, "B {heads} T d"]:
    """[B, T, H*d] -> head-major [B, H, T, d].

    On a TPU several tokens are split only after the product that made x: XLA would fold the split
    into the product, which then wants its weights in another layout (docs/decisions.md).
    """
    if x.shape[1] > 1:
        barrier = jax.lax.optimization_barrier
        x = jax.lax.platform_dependent(x, tpu=barrier, default=lambda x: x)
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).swapaxes(1, 2)


def merge_heads(x: Float[Array, "B H T d"]) -> Float[Array, "B T H*d"]:
    """[B, H, T, d] -> [B, T, H*d]."""
    batch, heads, length, width = x.shape
    return x.swapaxes(1, 2).reshape(batch, length, heads * width)


def soft_cap(x: jax.Array, cap: float) -> jax.Array:
    """x squeezed smoothly into (-cap, cap); as it is where `cap` is 0.

    Bello et al. 2017, "Neural Combinatorial Optimization with Reinforcement Learning", eq. 17;
    Gemma 2 does it to attention scores and to logits.
    """
    return cap * jnp.tanh(x / cap) if cap else x


def attend(
    q: Float[Array, "B H T d"],
    k: Float[Array, "B G C d"],
    v: Float[Array, "B G C d"],
    bias: Float[Array, "#B #H #T #C"],
    softcap: float = 0.0,
) -> Float[Array, "B H T d"]:
    """Softmax attention of q [B, H, T, d] over k, v [B, H, C, d]; softmax in float32.

    Scores are not scaled: T5 keeps the scale in its weights, others scale `q` first. They are soft
    capped at `softcap`, if it is not 0, before `bias` is added, which is broadcast to [B, H, T, C]
    and carries the mask. With fewer heads in k and v (G), groups of query heads share one
    (grouped-query attention) and `bias` must be [B, 1, T, C] or [B, 1, 1, C].
    """
    if q.shape[1] != k.shape[1]:
        return _attend_grouped(q, k, v, bias, softcap)
    scores = jnp.einsum("bhtd,bhcd->bhtc", q, k, preferred_element_type=jnp.float32)
    weights = jax.nn.softmax(soft_cap(scores, softcap) + bias, axis=-1).astype(v.dtype)
    return jnp.einsum("bhtc,bhcd->bhtd", weights, v)


def _attend_grouped(
    q: Float[Array, "B H T d"],
    k: Float[Array, "B G C d"],
    v: Float[Array, "B G C d"],
    bias: Float[Array, "#B #H #T #C"],
    softcap: float,
) -> Float[Array, "B H T d"]:
    """Attention with the query heads of a group laid out as more queries of its one key head."""
    batch, heads, length, width = q.shape
    groups = heads // k.shape[1]
    queries = q.reshape(batch, k.shape[1], groups * length, width)
    if bias.shape[2] > 1:  # else it is the same for all queries
        bias = jnp.tile(bias, (1, 1, groups, 1))
    mixed = attend(queries, k, v, bias, softcap)
    return mixed.reshape(batch, heads, length, width)


Tree = tuple[Int[Array, "B N"], Bool[Array, "B T N"]]
"""Positions of the last N slots, and which of them the T fed tokens see."""


def tree_slots(
    tree: Tree, start: Int[Array, " B"], slots: Int[Array, " C"] | Int[Array, "B C"]
) -> tuple[Int[Array, "B C"], Bool[Array, "B T C"]]:
    """The position [B, C] of `slots`, and whether the fed tokens see them, [B, T, C].

    `slots` are [C] or [B, C]; `start` [B] is the first fed token's.
    """
    position, visible = tree
    first = start - (position.shape[1] - visible.shape[1])
    place = slots - first[:, None]
    inside = (place >= 0) & (place < position.shape[1])
    place = jnp.clip(place, 0, position.shape[1] - 1)
    at = jnp.where(inside, jnp.take_along_axis(position, place, axis=1), slots)
    among = jnp.take_along_axis(visible, place[:, None], axis=2)
    return at, jnp.where(inside[:, None], among, (slots < first[:, None])[:, None])


def tree_mask(
    tree: Tree,
    start: Int[Array, " B"],
    slots: Int[Array, " C"] | Int[Array, "B C"],
    window: int = 0,
) -> Float32[Array, "B 1 T C"]:
    """`causal_mask` [B, 1, T, C] of a tree; windows count positions in the text."""
    at, seen = tree_slots(tree, start, slots)
    if window:
        fed = tree[0][:, -tree[1].shape[1] :]
        seen &= fed[..., None] - at[:, None] < window
    return jnp.where(seen, 0.0, MASKED).astype(jnp.float32)[:, None]


def causal_mask(
    position: Int[Array, "B T"], slots: Int[Array, " C"] | Int[Array, "B C"], window: int = 0
) -> Float32[Array, "B 1 T C"]:
    """Additive mask [B, 1, T, C] of keys after each query's `position` [B, T].

    Keys are at `slots`, [C] or [B, C]. With a `window`, those that many or more positions before
    the query are hidden too.
    """
    distance = position[..., None] - slots[..., None, :]
    hidden = distance < 0
    if window:
        hidden |= distance >= window
    return jnp.where(hidden, MASKED, 0.0).astype(jnp.float32)[:, None]


def key_mask(length: Int[Array, " B"], size: int) -> Float32[Array, "B 1 1 {size}"]:
    """Additive mask [B, 1, 1, size] that hides keys at and beyond each row's `length` [B]."""
    hidden = jnp.arange(size) >= length[:, None]
    return jnp.where(hidden, MASKED, 0.0).astype(jnp.float32)[:, None, None, :]


def masked_mean(x: Float[Array, "B S D"], length: Int[Array, " B"]) -> Float32[Array, "B D"]:
    """Float32 mean [B, D] of the first `length` [B] of the states x [B, S, D]."""
    inside = jnp.arange(x.shape[1]) < length[:, None]
    total = jnp.sum(jnp.where(inside[..., None], x.astype(jnp.float32), 0.0), axis=1)
    return total / length[:, None]
