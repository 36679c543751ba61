"""Weights in fewer bits; arithmetic stays in the model's dtype.

int8 and int4 have scales and are qwix's; bfloat16 has none (`half_weights`).

A kernel [D, F] becomes a `qwix.QArray`: integers [D, F] and scales [G, F], one for each output
channel (G = 1) or for each group of D / G inputs of a channel. With the largest magnitude m of
what shares it, a scale is m / 127.5 (int8) or m / 7.5 (int4), so that no weight moves by more than
half a scale. Dettmers et al., "LLM.int8()" (2022), and Frantar et al., "GPTQ" (2023), have such
scales; here integers are nearest ones. Of experts [E, D, F] each matrix has scales of its own,
[E, G, F].

Embeddings, output layers, routers, norms, biases and tables of positions stay as they are.
Checkpoints may bring zero points too (`hf/packed.py`): a weight is then
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

INTEGERS = {"int8": jnp.int8, "int4": jnp.int4}
HALF = "bfloat16"
GROUPS = {"int8": 0, "int4": 32, HALF: 0}
"""Inputs that share a scale where nothing is said of it; 0: all of an output channel."""

WIDE = ("head", "project_in", "project_out", "logits")
"""Modules whose kernels stay: output layers, projections of embeddings into the states and of
states for the output, and routers, which choose where a token goes."""

TABLES = ("embedding", "source_embedding")
"""Parameters [V, D] that tokens are looked up in, the output layer too where it is tied."""

EXPERTS = ("gates", "ups", "downs")
"""Parameters that hold a kernel for each expert of a mixture, [E, in, out]."""

ALLOWED = (
    "bfloat16, int8, int4, or one of the latter and a group of inputs that share a scale, as"
    " int4:64 (0: all)"
)

_SPELLED = re.compile(r"(bfloat16|int8|int4)(?::(\d{1,6}))?")


@dataclasses.dataclass(frozen=True)
class SmallWeights:
    """How the kernels of a model's layers are stored."""

    kind: str  # int8, int4 or bfloat16
    group: int  # inputs that share a scale; 0: all of an output channel, or none has one

    @classmethod
    def spelled(cls, text: Any) -> SmallWeights:
        """What `bfloat16`, `int8`, `int4` or `int4:64` stands for.

        Raises:
          ValueError: saying what is allowed.
        """
        match = _SPELLED.fullmatch(text) if isinstance(text, str) else None
        if match is None or (match[1] == HALF and match[2]):
            raise ValueError(f"it must be {ALLOWED}")
        kind, group = match.groups()
        return cls(kind, GROUPS[kind] if group is None else int(group))

    def __str__(self) -> str:
        return self.kind if self.group == GROUPS[self.kind] else f"{self.kind}:{self.group}"

    def shrinks(self, where: tuple[str, ...], shape: tuple[int, ...]) -> bool:
        """Whether the parameter at a path becomes small.

        Of integers these are the kernels of layers, those of experts too; in bfloat16 all
        kernels, and tables of embeddings.
        """
        if self.kind == HALF:
            return len(shape) == 2 and where[-1] in ("kernel", *TABLES)
        if where[-1] in EXPERTS:
            return len(shape) == 3
        return len(shape) == 2 and where[-1] == "kernel" and where[-2] not in WIDE

    def check(self, shapes: Mapping[tuple[str, ...], tuple[int, ...]]) -> None:
        """Refuses kernels whose inputs the group does not divide.

        Raises:
          ValueError: naming the first one.
        """
        for where, shape in shapes.items():
            if self.group and self.shrinks(where, shape) and shape[-2] % self.group:
                raise ValueError(
                    f"weights {str(self)!r} do not fit: {'/'.join(where)} has {shape[-2]:,} inputs,"
                    f" which groups of {self.group} do not divide"
                )


def to_key_path(path: tuple[Any, ...]) -> tuple[str, ...]:
    """The path of a parameter, whichever of its arrays a path in JAX's words leads to."""
    return tuple(key.key for key in path if isinstance(key, jax.tree_util.DictKey))


def is_small(weight: Any) -> bool:
    """Whether a leaf of a parameter tree is a kernel in fewer bits."""
    return isinstance(weight, HalfKernel) or hasattr(weight, "qvalue")


@functools.partial(jax.jit, static_argnames="weights")
def quantize(kernel: jax.Array, weights: SmallWeights) -> Any:
    """The kernel [D, F], or experts' [E, D, F], as integers, and scales of its dtype.

    The scales are found in float32. In bfloat16 a kernel's outputs are its rows.
    """
    if weights.kind == HALF:
        return HalfKernel.of(kernel)
    inputs = kernel.ndim - 2
    return _qwix().quantize(
        kernel.astype(jnp.float32),
        INTEGERS[weights.kind],
        channelwise_axes=tuple(axis for axis in range(kernel.ndim) if axis != inputs),
        tiled_axes={inputs: weights.group} if weights.group else {},
        scale_dtype=kernel.dtype,
    )


def make_kernel(
    integers: np.ndarray, scale: jax.Array, zero: np.ndarray | None, weights: SmallWeights
) -> Any:
    """A small kernel [D, F] of integers, scales and zero points [G, F] that are there already."""
    kind = INTEGERS[weights.kind]
    zeros = None if zero is None else jnp.asarray(zero, jnp.int8).astype(kind)
    return _qwix().QArray(jnp.asarray(integers, jnp.int8).astype(kind), scale, zeros)


def shrink_params(params: Any, weights: SmallWeights) -> Any:
    """A parameter tree with the kernels of its layers small; all else is that of `params` itself.

    Raises:
      ValueError: when groups do not divide the inputs of a kernel.
    """

    def one(path: tuple[Any, ...], leaf: Any) -> Any:
        where = to_key_path(path)
        if not weights.shrinks(where, leaf.shape):
            return leaf
        weights.check({where: leaf.shape})
        return store_small(where, _whole(leaf) if is_small(leaf) else leaf, weights)

    return jax.tree_util.tree_map_with_path(one, params, is_leaf=is_small)


def store_small(where: tuple[str, ...], array: jax.Array, weights: SmallWeights) -> Any:
    """A parameter that shrinks, made small."""
    return array.astype(HALF) if where[-1] in TABLES else quantize(array, weights)


def product(x: jax.Array, kernel: Any) -> jax.Array:
    """x [N, D] times a small kernel [D, F].

    The kernel comes from behind a barrier with x, and so differs from turn to turn of a loop: XLA
    would otherwise make the kernels of all layers wide before the loop, and keep them.
    """
    if isinstance(kernel, HalfKernel):
        return half_weights.product(x, kernel.rows)
    x, kernel = jax.lax.optimization_barrier((x, kernel))
    return _qwix().dot_general(x, kernel, (((1,), (0,)), ((), ())))


def widen(x: jax.Array, kernels: Any) -> jax.Array:
    """Kernels for a product with x, from behind the barrier of `product` where they are small."""
    if not is_small(kernels):
        return kernels
    return _qwix().dequantize(jax.lax.optimization_barrier((x, kernels))[1])


def _whole(kernel: Any) -> jax.Array:
    """A small kernel as an array."""
    return kernel.whole() if isinstance(kernel, HalfKernel) else _qwix().dequantize(kernel)


def count_numbers(params: Any) -> int:
    """Parameters in a tree; scales and zero points are none."""
    leaves = jax.tree.leaves(params, is_leaf=is_small)
    return sum(getattr(leaf, "qvalue", leaf).size for leaf in leaves)


def count_stored_bytes(array: Any) -> int:
    """Bytes of an array, or of its shape; of int4 two numbers take one."""
    bits = 4 if array.dtype == jnp.int4 else 8 * array.dtype.itemsize
    return -(-array.size * bits // 8)


def _qwix() -> Any:
    """The library, imported by those only who have such weights: it takes about a second."""
    import qwix

    return qwix
