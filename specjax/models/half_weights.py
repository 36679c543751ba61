"""Weights stored in bfloat16, multiplied with the accuracy of float32.

This is exact for checkpoints published in bfloat16, at half the size. A product's float32 input is
written as a sum of three bfloat16 numbers, with the 24 bits of float32, which are multiplied as
additional rows and summed in float32. Such a product reads half the bytes, and on a CPU with
bfloat16 matrix units (AMX) it is faster than in float32 (docs/methods/quantized_weights.md).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

PARTS = 3
"""Number of bfloat16 parts, of 8 significant bits each, for the 24 bits of float32."""


class HalfKernel(struct.PyTreeNode):
    """A kernel [D, F] stored with outputs as rows, which CPUs multiply without a copy."""

    rows: jax.Array  # [F, D] bfloat16

    @classmethod
    def from_array(cls, kernel: jax.Array) -> HalfKernel:
        """Converts a kernel [D, F], rounded to bfloat16."""
        return cls(kernel.T.astype(jnp.bfloat16))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape[::-1]

    @property
    def size(self) -> int:
        return self.rows.size

    def astype(self, dtype: Any) -> HalfKernel:
        """Returns itself, because it is multiplied in the dtype of the input."""
        del dtype
        return self

    def to_array(self) -> jax.Array:
        """Returns the kernel [D, F] in float32."""
        return self.rows.T.astype(jnp.float32)


def split_parts(x: jax.Array) -> jax.Array:
    """Splits finite x [N, D] into P bfloat16 summands [P * N, D]; P is 1 for bfloat16, else 3."""
    if x.dtype == jnp.bfloat16:
        return x
    parts = []
    for _ in range(PARTS):
        # XLA may remove a conversion to bfloat16 and back.
        part = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
        parts.append(part.astype(jnp.bfloat16))
        x = x - part
    return jnp.concatenate(parts)


def multiply(x: jax.Array, rows: jax.Array) -> jax.Array:
    """Multiplies x [N, D] by the transpose of rows [F, D] bfloat16, in the dtype of x."""
    made = jax.lax.dot_general(
        split_parts(x), rows, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
    )
    # Summed one by one: XLA would pass a sum over an axis to a library, which is slower.
    # A call without logits has no rows.
    parts = [made[first : first + len(x)] for first in range(0, len(made), len(x) or 1)] or [made]
    return sum(parts[1:], parts[0]).astype(x.dtype)


@jax.custom_vjp
def multiply_bfloat16(rows: jax.Array, w: jax.Array) -> jax.Array:
    """Multiplies rows [N, D] by w [D, F], all bfloat16, summed in float32.

    XLA's CPU backend uses matrix units only for products with a float32 result: for a bfloat16
    result it converts both operands first, which takes four times as long.
    """
    return _multiply_over(rows, w, (1, 0))


def _multiply_over(x: jax.Array, y: jax.Array, over: tuple[int, int]) -> jax.Array:
    """Multiplies bfloat16 matrices over an axis of each."""
    dims = ((over[0],), (over[1],)), ((), ())

    def in_float32(x: jax.Array, y: jax.Array) -> jax.Array:
        made = jax.lax.dot_general(x, y, dims, preferred_element_type=jnp.float32)
        # Otherwise XLA fuses both into a product with a bfloat16 result.
        return jax.lax.optimization_barrier(made).astype(jnp.bfloat16)

    def plain(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.dot_general(x, y, dims)

    return jax.lax.platform_dependent(x, y, cpu=in_float32, default=plain)


def _forward(rows: jax.Array, w: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return multiply_bfloat16(rows, w), (rows, w)


def _backward(kept: tuple[jax.Array, jax.Array], g: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows, w = kept
    return _multiply_over(g, w, (1, 1)), _multiply_over(rows, g, (0, 0))


multiply_bfloat16.defvjp(_forward, _backward)
