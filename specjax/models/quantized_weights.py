"""Quantized weights (int8, int4, bfloat16, MXFP4); arithmetic is in the model's dtype.

int8, int4 and MXFP4 have scales and use qwix; bfloat16 has none (`half_weights`). MXFP4 is read of
checkpoints alone, whose experts it stores (`hf/mxfp4.py`).

A kernel [D, F] becomes a `qwix.QArray`: integers [D, F] and scales [G, F], one for each output
channel (G = 1) or for each group of D / G inputs of a channel. With the largest magnitude m in its
group, a scale is m / 127.5 (int8) or m / 7.5 (int4), so that no weight changes by more than half a
scale. Dettmers et al., "LLM.int8()" (2022), and Frantar et al., "GPTQ" (2023), use such
scales; here weights are rounded to nearest. Each matrix of experts [E, D, F] has its own scales,
[E, G, F].

Embeddings, output layers, routers, norms, biases and tables of positions are not quantized.
Checkpoints may also have zero points (`hf/packed.py`): a weight is then
(integer - zero point) * scale.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models import half_weights
from specjax.models.half_weights import HalfKernel

HALF, MXFP4 = "bfloat16", "mxfp4"
NUMBERS = {"int8": jnp.int8, "int4": jnp.int4, MXFP4: jnp.float4_e2m1fn}
"""Dtypes of the numbers of formats with scales."""

GROUPS = {"int8": 0, "int4": 32, HALF: 0, MXFP4: 32}
"""Default number of inputs that share a scale; 0: all inputs of an output channel."""

WIDE = (
    "head", "project_in", "project_out", "logits", "token_gate", "router", "prediction",
    "correction",
)  # fmt: skip
"""Modules that are not quantized: output layers, projections between embeddings and states,
routers, gates of shared experts, and coefficients of residual streams."""

TABLES = ("embedding", "source_embedding")
"""Embedding tables [V, D], which are also the output layer if tied."""

EXPERTS = ("gates", "ups", "downs")
"""Parameters that hold a kernel for each expert of a mixture, [E, in, out]."""

ALLOWED = (
    "bfloat16, int8, int4, or one of the latter and a group of inputs that share a scale, as"
    " int4:64 (0: all)"
)

_PATTERN = re.compile(r"(bfloat16|int8|int4)(?::(\d{1,6}))?")


@dataclasses.dataclass(frozen=True)
class WeightFormat:
    """Storage format of the kernels of a model's layers."""

    kind: str  # int8, int4, bfloat16 or mxfp4
    group: int  # inputs that share a scale; 0: all, or no scales

    @classmethod
    def parse(cls, text: Any) -> WeightFormat:
        """Parses `bfloat16`, `int8`, `int4` or `int4:64`.

        Raises:
          ValueError: naming what is allowed.
        """
        match = _PATTERN.fullmatch(text) if isinstance(text, str) else None
        if match is None or (match[1] == HALF and match[2]):
            raise ValueError(f"it must be {ALLOWED}")
        kind, group = match.groups()
        return cls(kind, GROUPS[kind] if group is None else int(group))

    def __str__(self) -> str:
        return self.kind if self.group == GROUPS[self.kind] else f"{self.kind}:{self.group}"

    def applies_to(self, where: tuple[str, ...], shape: tuple[int, ...]) -> bool:
        """Returns whether the parameter at a path is stored in this format.

        Integer formats apply to the kernels of layers, experts included, MXFP4 to experts only;
        bfloat16 applies to all kernels and embedding tables.
        """
        if self.kind == HALF:
            return len(shape) == 2 and where[-1] in ("kernel", *TABLES)
        if where[-1] in EXPERTS:
            return len(shape) == 3
        whole = len(shape) == 2 and where[-1] == "kernel" and where[-2] not in WIDE
        return whole and self.kind != MXFP4

    def check(self, shapes: Mapping[tuple[str, ...], tuple[int, ...]]) -> None:
        """Checks that the group divides the inputs of all kernels.

        Raises:
          ValueError: naming the first kernel that does not fit.
        """
        for where, shape in shapes.items():
            if self.group and self.applies_to(where, shape) and shape[-2] % self.group:
                raise ValueError(
                    f"weights {str(self)!r} do not fit: {'/'.join(where)} has {shape[-2]:,} inputs,"
                    f" which groups of {self.group} do not divide"
                )


def to_key_path(path: tuple[Any, ...]) -> tuple[str, ...]:
    """Converts a JAX key path of a parameter, or of one of its arrays, to names."""
    return tuple(key.key for key in path if isinstance(key, jax.tree_util.DictKey))


def is_quantized(weight: Any) -> bool:
    """Returns whether a leaf of a parameter tree is a quantized kernel."""
    return isinstance(weight, HalfKernel) or hasattr(weight, "qvalue")


@functools.partial(jax.jit, static_argnames="weights")
def quantize(kernel: jax.Array, weights: WeightFormat) -> Any:
    """Quantizes a kernel [D, F], or experts' [E, D, F], with scales of its dtype.

    Scales are computed in float32. A bfloat16 kernel is stored with outputs as rows.
    """
    if weights.kind == HALF:
        return HalfKernel.from_array(kernel)
    inputs = kernel.ndim - 2
    return _qwix().quantize(
        kernel.astype(jnp.float32),
        NUMBERS[weights.kind],
        channelwise_axes=tuple(axis for axis in range(kernel.ndim) if axis != inputs),
        tiled_axes={inputs: weights.group} if weights.group else {},
        scale_dtype=kernel.dtype,
    )


def make_quantized_kernel(
    integers: np.ndarray, scale: jax.Array, zero: np.ndarray | None, weights: WeightFormat
) -> Any:
    """Builds a quantized kernel [D, F] from integers, scales and zero points [G, F]."""
    kind = NUMBERS[weights.kind]
    zeros = None if zero is None else jnp.asarray(zero, jnp.int8).astype(kind)
    return _qwix().QArray(jnp.asarray(integers, jnp.int8).astype(kind), scale, zeros)


def make_mxfp4_kernel(numbers: np.ndarray, scale: np.ndarray) -> Any:
    """Builds a kernel [E, D, F] from float4_e2m1fn numbers and scales [E, G, F]."""
    return _qwix().QArray(jnp.asarray(numbers), jnp.asarray(scale))


def quantize_params(params: Any, weights: WeightFormat) -> Any:
    """Quantizes the kernels of the layers in a parameter tree; shares all other arrays.

    Raises:
      ValueError: if groups do not divide the inputs of a kernel.
    """

    def one(path: tuple[Any, ...], leaf: Any) -> Any:
        where = to_key_path(path)
        if not weights.applies_to(where, leaf.shape):
            return leaf
        weights.check({where: leaf.shape})
        return quantize_parameter(where, _dequantize(leaf) if is_quantized(leaf) else leaf, weights)

    return jax.tree_util.tree_map_with_path(one, params, is_leaf=is_quantized)


def quantize_parameter(where: tuple[str, ...], array: jax.Array, weights: WeightFormat) -> Any:
    """Converts a parameter to the format."""
    return array.astype(HALF) if where[-1] in TABLES else quantize(array, weights)


def multiply(x: jax.Array, kernel: Any) -> jax.Array:
    """Multiplies x [N, D] by a quantized kernel [D, F].

    A barrier ties the kernel to x, which changes in each iteration of a loop: XLA would otherwise
    dequantize the kernels of all layers before the loop and keep them in memory.
    """
    if isinstance(kernel, HalfKernel):
        return half_weights.multiply(x, kernel.rows)
    x, kernel = jax.lax.optimization_barrier((x, kernel))
    return _qwix().dot_general(x, kernel, (((1,), (0,)), ((), ())))


def dequantize(x: jax.Array, kernels: Any) -> jax.Array:
    """Dequantizes kernels for a product with x, after the barrier of `multiply`."""
    if not is_quantized(kernels):
        return kernels
    return _qwix().dequantize(jax.lax.optimization_barrier((x, kernels))[1])


def _dequantize(kernel: Any) -> jax.Array:
    """Converts a quantized kernel to an array."""
    return kernel.to_array() if isinstance(kernel, HalfKernel) else _qwix().dequantize(kernel)


def count_numbers(params: Any) -> int:
    """Counts parameters in a tree, without scales and zero points."""
    leaves = jax.tree.leaves(params, is_leaf=is_quantized)
    return sum(getattr(leaf, "qvalue", leaf).size for leaf in leaves)


def count_stored_bytes(array: Any) -> int:
    """Counts the bytes of an array or shape; two numbers of four bits take one byte."""
    four = array.dtype in (jnp.int4, jnp.float4_e2m1fn)
    bits = 4 if four else 8 * array.dtype.itemsize
    return -(-array.size * bits // 8)


def _qwix() -> Any:
    """Imports qwix on first use, which takes about a second."""
    import qwix

    return qwix
