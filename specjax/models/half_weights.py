"""Weights stored in bfloat16 whose products are those of float32.

A checkpoint that was published in bfloat16 loses nothing by it, and is half as large. The float32
input of a product is written as a sum of three bfloat16 numbers, 24 bits as float32 has, which are
multiplied as further rows and added up in float32. Such a product reads half the bytes, and a CPU
with bfloat16 matrix units (AMX) does it faster than float32's (docs/methods/small_weights.md).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

PARTS = 3
"""Numbers of 8 significant bits that the 24 bits of float32 need."""


class HalfKernel(struct.PyTreeNode):
    """A kernel [D, F], its outputs as rows: no other order is multiplied without a copy on CPUs."""

    rows: jax.Array  # [F, D] bfloat16

    @classmethod
    def of(cls, kernel: jax.Array) -> HalfKernel:
        """A kernel [D, F], rounded where it is not of bfloat16."""
        return cls(kernel.T.astype(jnp.bfloat16))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.rows.shape[::-1]

    @property
    def size(self) -> int:
        return self.rows.size

    def astype(self, dtype: Any) -> HalfKernel:
        """Itself: it is multiplied in the dtype of its input."""
        del dtype
        return self

    def whole(self) -> jax.Array:
        """The kernel [D, F] in float32."""
        return self.rows.T.astype(jnp.float32)


def split_parts(x: jax.Array) -> jax.Array:
    """bfloat16 [P * N, D]: finite x [N, D] as a sum of P parts, 1 where it is bfloat16, else 3."""
    if x.dtype == jnp.bfloat16:
        return x
    parts = []
    for _ in range(PARTS):
        # A conversion there and back is one that XLA may leave out.
        part = jax.lax.reduce_precision(x, exponent_bits=8, mantissa_bits=7)
        parts.append(part.astype(jnp.bfloat16))
        x = x - part
    return jnp.concatenate(parts)


def product(x: jax.Array, rows: jax.Array) -> jax.Array:
    """x [N, D] times the transpose of rows [F, D] bfloat16, in the dtype of x."""
    made = jax.lax.dot_general(
        split_parts(x), rows, (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
    )
    # One by one: XLA gives a sum over an axis to the library of the product, which is slower then.
    # A call without logits reads out no row.
    parts = [made[first : first + len(x)] for first in range(0, len(made), len(x) or 1)] or [made]
    return sum(parts[1:], parts[0]).astype(x.dtype)


@jax.custom_vjp
def matmul(rows: jax.Array, w: jax.Array) -> jax.Array:
    """rows [N, D] times w [D, F], all bfloat16, summed in float32.

    XLA's CPU backend gives matrix units only products of a float32 result: asked for bfloat16 it
    widens both sides first, which takes four times as long.
    """
    return _summed(rows, w, (1, 0))


def _summed(x: jax.Array, y: jax.Array, over: tuple[int, int]) -> jax.Array:
    """The product of matrices over an axis of each, bfloat16."""
    dims = ((over[0],), (over[1],)), ((), ())

    def in_float32(x: jax.Array, y: jax.Array) -> jax.Array:
        made = jax.lax.dot_general(x, y, dims, preferred_element_type=jnp.float32)
        # Else XLA makes of both a product of a bfloat16 result.
        return jax.lax.optimization_barrier(made).astype(jnp.bfloat16)

    def plain(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.lax.dot_general(x, y, dims)

    return jax.lax.platform_dependent(x, y, cpu=in_float32, default=plain)


def _forward(rows: jax.Array, w: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return matmul(rows, w), (rows, w)


def _backward(kept: tuple[jax.Array, jax.Array], g: jax.Array) -> tuple[jax.Array, jax.Array]:
    rows, w = kept
    return _summed(g, w, (1, 1)), _summed(rows, g, (0, 0))


matmul.defvjp(_forward, _backward)
