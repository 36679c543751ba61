"""Layers shared by the model families: projections, norms, attention, masks.

Layouts were chosen by measurements of whole programs (docs/decisions.md): weights are
`[in, out]` and applied as `x @ w` (`half_weights` has outputs first), caches are head-major
`[B, H, C, d]`.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Float32, Int

from specjax.models import half_weights, quantized_weights
from specjax.models.half_weights import HalfKernel

MASKED = -1e9
"""Score offset of masked positions; finite, so that no row becomes NaN."""


def multiply(x: Float[Array, "... D"], w: Any) -> Float[Array, "... F"]:
    """Multiplies x [..., D] by w [D, F], an array or a quantized kernel, over merged axes.

    With the leading axes merged, the gradient of w needs no transposition; over several axes XLA's
    CPU backend transposes the incoming gradient first (docs/decisions.md).
    """
    rows = x.reshape(-1, x.shape[-1])
    made = (
        quantized_weights.multiply(rows, w)
        if quantized_weights.is_quantized(w)
        else _multiply_arrays(rows, w)
    )
    return made.reshape(*x.shape[:-1], w.shape[1])


FEW_ROWS = range(3, 8)
"""Numbers of rows for which packing the weights dominates a product's cost on CPUs."""

LARGE = 1 << 19
"""Minimum elements of such weights, 2 MB in float32; smaller ones fit into a core's cache."""


def _multiply_arrays(rows: Float[Array, "N D"], w: Float[Array, "D F"]) -> Float[Array, "N F"]:
    """Multiplies rows [N, D] by arrays w [D, F].

    On a CPU XLA passes products of several rows to a library that copies all of w at every call,
    but not products with a transposed left operand. The barrier prevents XLA from undoing the
    transposition.
    """
    if rows.dtype == w.dtype == jnp.bfloat16:
        return half_weights.multiply_bfloat16(rows, w)
    if len(rows) not in FEW_ROWS or w.size < LARGE:
        return rows @ w

    def multiply_unpacked(rows: jax.Array, w: jax.Array) -> jax.Array:
        transposed = jax.lax.optimization_barrier(rows.T)
        return jax.lax.dot_general(transposed, w, (((0,), (0,)), ((), ())))

    return jax.lax.platform_dependent(rows, w, cpu=multiply_unpacked, default=jnp.matmul)


class Dense(nn.Module):
    """Linear layer `x @ w`, with an optional bias; computes in `dtype`."""

    features: int
    dtype: jnp.dtype = jnp.float32
    init_scale: float = 1.0
    bias: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... F"]:
        init = nn.initializers.variance_scaling(self.init_scale, "fan_in", "normal")
        kernel = self._kernel(init, (x.shape[-1], self.features))
        y = multiply(x.astype(self.dtype), kernel.astype(self.dtype))
        if not self.bias:
            return y
        bias = self.param("bias", nn.initializers.zeros, (self.features,), jnp.float32)
        return y + bias.astype(self.dtype)

    def _kernel(self, init: Any, shape: tuple[int, int]) -> Any:
        """Returns the stored kernel; Flax itself only knows arrays of its shape."""
        stored = self.get_variable("params", "kernel")
        known = isinstance(stored, HalfKernel) and stored.shape == shape
        return stored if known else self.param("kernel", init, shape, jnp.float32)


def compute_tied_logits(
    x: Float[Array, "... D"], table: Float[Array, "V D"], training: bool
) -> Float32[Array, "... V"]:
    """Computes float32 logits [..., V] of states [..., D] with the embedding table [V, D].

    The product is in the dtype of the states; a bfloat16 table with float32 states is not copied
    (`half_weights`). When decoding the table is the left operand, because in the other order a CPU
    repacks it at every call. Training has so many states that transposing [V, B, T] costs more.
    """
    if (table.dtype, x.dtype) == (jnp.bfloat16, jnp.float32):
        made = half_weights.multiply(x.reshape(-1, x.shape[-1]), table)
        return made.reshape(*x.shape[:-1], len(table))
    table = table.astype(x.dtype)
    if training:
        return multiply(x, table.T).astype(jnp.float32)

    def table_first(table: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.moveaxis(jnp.einsum("vd,...d->v...", table, x), 0, -1).astype(jnp.float32)

    def sum_in_float32(table: jax.Array, x: jax.Array) -> jax.Array:
        return jnp.einsum("...d,vd->...v", x, table, preferred_element_type=jnp.float32)

    if x.dtype != jnp.bfloat16:
        return table_first(table, x)
    return jax.lax.platform_dependent(table, x, cpu=sum_in_float32, default=table_first)


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
"""Activations by their names in Hugging Face transformers."""


def cut_low_gates(x: Float[Array, "... F"], share: float) -> Float[Array, "... F"]:
    """Subtracts from x [..., F] the quantile `share` of its normal distribution; cuts at 0.

    That has the mean and deviation of a state's F numbers, so that about 1 - `share` of them remain
    (You et al. 2025, "Spark Transformer", statistical top-k).
    """
    x32 = x.astype(jnp.float32)
    deviation = jnp.std(x32, axis=-1, keepdims=True)
    quantile = statistics.NormalDist().inv_cdf(share)
    cut = jnp.mean(x32, axis=-1, keepdims=True) + quantile * deviation
    return jax.nn.relu(x32 - cut).astype(x.dtype)


class FeedForward(nn.Module):
    """Two-matrix or gated (three-matrix) feed-forward network, of `features` outputs."""

    width: int
    activation: str
    gated: bool
    dtype: jnp.dtype = jnp.float32
    dropout: float = 0.0
    bias: bool = False
    features: int | None = None  # None: as many as inputs
    sparsity: float = 0.0  # share of gates that are cut (`cut_low_gates`)

    @nn.compact
    def __call__(
        self, x: Float[Array, "... D"], deterministic: bool = True
    ) -> Float[Array, "... F"]:
        act = ACTIVATIONS[self.activation]
        dense = functools.partial(Dense, dtype=self.dtype, bias=self.bias)
        gate = dense(self.width, name="gate" if self.gated else "up")(x)
        hidden = act(cut_low_gates(gate, self.sparsity) if self.sparsity else gate)
        if self.gated:
            hidden = hidden * dense(self.width, name="up")(x)
        hidden = nn.Dropout(self.dropout)(hidden, deterministic=deterministic)
        return dense(self.features or x.shape[-1], name="down")(hidden)


def call(module: nn.Module, method: str, params: Any, *args: Any, **how: Any) -> Any:
    """Calls `module.method(*args)` without mutable variables."""
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
    """Calls `module.method(*args)`, traced once per shape for all programs that contain it.

    Inlined, so the programs equal those of a direct call. `layers` and `features` are passed on if
    they are given.
    """
    which = {"layers": layers, "features": features}
    which = {name: value for name, value in which.items() if value is not None}
    return call(module, method, params, *args, **which)


def init_params(module: nn.Module, key: jax.Array, *shapes: tuple[int, ...]) -> Any:
    """Initializes parameters of a module that is called with int32 arrays of these shapes.

    Parameters are computed one by one, because one program for all takes longer to compile.
    """
    args = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in shapes)
    return module.lazy_init(key, *args)["params"]


def rematerialize(call: Callable[..., Any], on: bool) -> Callable[..., Any]:
    """Returns `call` with rematerialization for the gradient, if `on`.

    The gradient then repeats the call (Chen et al. 2016, "Training Deep Nets with Sublinear
    Memory Cost"): memory of one layer instead of all for about a third more arithmetic. On CPU
    it saves memory only with `XLA_FLAGS=--xla_disable_hlo_passes=cse_barrier_expander`.
    """
    return nn.remat(call) if on else call


def split_heads(x: Float[Array, "B T D"], heads: int) -> Float[Array, "B {heads} T d"]:
    """Splits x [B, T, H*d] into heads, head-major [B, H, T, d].

    On a TPU a barrier separates the split from the product that computed x: XLA would otherwise
    fuse them, and the product would need its weights in another layout (docs/decisions.md).
    """
    if x.shape[1] > 1:
        barrier = jax.lax.optimization_barrier
        x = jax.lax.platform_dependent(x, tpu=barrier, default=lambda x: x)
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).swapaxes(1, 2)


def merge_heads(x: Float[Array, "B H T d"]) -> Float[Array, "B T H*d"]:
    """Merges heads x [B, H, T, d] into [B, T, H*d]."""
    batch, heads, length, width = x.shape
    return x.swapaxes(1, 2).reshape(batch, length, heads * width)


def soft_cap(x: jax.Array, cap: float) -> jax.Array:
    """Limits x smoothly to (-cap, cap), without effect if `cap` is 0.

    Bello et al. 2017, "Neural Combinatorial Optimization with Reinforcement Learning", eq. 17;
    Gemma 2 does it to attention scores and to logits.
    """
    return cap * jnp.tanh(x / cap) if cap else x


Sinks = Float32[Array, "1 H #T 1"]
"""A logit of each head that counts in the softmax's denominator, as a key without a value."""


def attend(
    q: Float[Array, "B H T d"],
    k: Float[Array, "B G C d"],
    v: Float[Array, "B G C d"],
    bias: Float[Array, "#B #H #T #C"],
    softcap: float = 0.0,
    sinks: Sinks | None = None,
) -> Float[Array, "B H T d"]:
    """Attends q [B, H, T, d] to k, v [B, H, C, d] with softmax in float32.

    Scores are not scaled: T5's weights include the scale, other models scale `q` before. Scores are
    soft-capped at `softcap`, if it is not 0; then `bias`, which includes the mask and broadcasts to
    [B, H, T, C], is added. With fewer heads G in k and v, groups of query heads share one
    (grouped-query attention), and `bias` must be [B, 1, T, C] or [B, 1, 1, C]. `sinks` take their
    part of the weights (Xiao et al. 2023, "Efficient Streaming Language Models with Attention
    Sinks"; gpt-oss learns them).
    """
    if q.shape[1] != k.shape[1]:
        return _attend_grouped(q, k, v, bias, softcap, sinks)
    scores = jnp.einsum("bhtd,bhcd->bhtc", q, k, preferred_element_type=jnp.float32)
    scores = soft_cap(scores, softcap) + bias
    weights = jax.nn.softmax(scores, axis=-1)
    if sinks is not None:
        largest = jax.nn.logsumexp(scores, axis=-1, keepdims=True)
        weights *= jax.nn.sigmoid(largest - sinks)
    return jnp.einsum("bhtc,bhcd->bhtd", weights.astype(v.dtype), v)


def _attend_grouped(
    q: Float[Array, "B H T d"],
    k: Float[Array, "B G C d"],
    v: Float[Array, "B G C d"],
    bias: Float[Array, "#B #H #T #C"],
    softcap: float,
    sinks: Sinks | None,
) -> Float[Array, "B H T d"]:
    """Attends with a group's query heads as additional queries of its key head."""
    batch, heads, length, width = q.shape
    groups = heads // k.shape[1]
    queries = q.reshape(batch, k.shape[1], groups * length, width)
    if bias.shape[2] > 1:  # else it is the same for all queries
        bias = jnp.tile(bias, (1, 1, groups, 1))
    if sinks is not None:
        sinks = jnp.broadcast_to(sinks, (1, heads, length, 1)).reshape(1, k.shape[1], -1, 1)
    mixed = attend(queries, k, v, bias, softcap, sinks)
    return mixed.reshape(batch, heads, length, width)


Tree = tuple[Int[Array, "B N"], Bool[Array, "B T N"]]
"""Positions of the last N slots, and which of them the T fed tokens attend to."""


def locate_tree_slots(
    tree: Tree, start: Int[Array, " B"], slots: Int[Array, " C"] | Int[Array, "B C"]
) -> tuple[Int[Array, "B C"], Bool[Array, "B T C"]]:
    """Returns positions [B, C] of `slots`, and whether fed tokens attend to them, [B, T, C].

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


def make_tree_mask(
    tree: Tree,
    start: Int[Array, " B"],
    slots: Int[Array, " C"] | Int[Array, "B C"],
    window: int = 0,
    chunked: bool = False,
) -> Float32[Array, "B 1 T C"]:
    """Builds the additive mask [B, 1, T, C] of a tree; windows and chunks count positions."""
    at, visible = locate_tree_slots(tree, start, slots)
    if window:
        fed = tree[0][:, -tree[1].shape[1] :]
        visible &= ~is_before_window(fed[..., None], at[:, None], window, chunked)
    return jnp.where(visible, 0.0, MASKED).astype(jnp.float32)[:, None]


def make_causal_mask(
    position: Int[Array, "B T"],
    slots: Int[Array, " C"] | Int[Array, "B C"],
    window: int = 0,
    chunked: bool = False,
) -> Float32[Array, "B 1 T C"]:
    """Builds the additive mask [B, 1, T, C] of keys after each query's `position` [B, T].

    Keys are at `slots`, [C] or [B, C]. Those before a `window` are masked too
    (`is_before_window`).
    """
    query, key = position[..., None], slots[..., None, :]
    hidden = key > query
    if window:
        hidden |= is_before_window(query, key, window, chunked)
    return jnp.where(hidden, MASKED, 0.0).astype(jnp.float32)[:, None]


def is_before_window(query: jax.Array, key: jax.Array, window: int, chunked: bool) -> jax.Array:
    """Returns whether positions of keys are before the window of queries' positions.

    That begins `window` - 1 positions before the query, or if `chunked` at the last multiple of
    `window` (Llama 4).
    """
    return key < query - query % window if chunked else query - key >= window


def make_key_mask(length: Int[Array, " B"], size: int) -> Float32[Array, "B 1 1 {size}"]:
    """Builds the additive mask [B, 1, 1, size] of keys from each row's `length` [B] on."""
    hidden = jnp.arange(size) >= length[:, None]
    return jnp.where(hidden, MASKED, 0.0).astype(jnp.float32)[:, None, None, :]


def pad_positions(x: Float[Array, "B T D"], size: int) -> Float[Array, "B {size} D"]:
    """Pads states x [B, T, D] with zeros to `size` positions."""
    return jnp.pad(x, ((0, 0), (0, size - x.shape[1]), (0, 0)))


def compute_masked_mean(
    x: Float[Array, "B S D"], length: Int[Array, " B"]
) -> Float32[Array, "B D"]:
    """Computes the float32 mean [B, D] of the first `length` [B] states of x [B, S, D]."""
    inside = jnp.arange(x.shape[1]) < length[:, None]
    total = jnp.sum(jnp.where(inside[..., None], x.astype(jnp.float32), 0.0), axis=1)
    return total / length[:, None]
