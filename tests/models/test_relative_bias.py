"""T5's bias of several queries: row by row, and cut from one band as on TPUs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import positions
from specjax.models.positions import FEW, compute_bias_rows

CAPACITY = 20
TABLE = jax.random.normal(jax.random.key(0), (3, 2 * CAPACITY))


def by_distance(start: int, count: int, keys: int) -> np.ndarray:
    """One number at a time; of queries behind the last slot nothing."""
    rows = []
    for position in range(start, min(start + count, CAPACITY)):
        distance = np.arange(keys) - position
        rows.append(np.asarray(TABLE)[:, CAPACITY - 1 + distance])
    return np.stack(rows, axis=1)


@pytest.mark.parametrize("way", ["compute_bias_rows", "_slice_rows", "_slice_band"])
@pytest.mark.parametrize(("count", "keys"), [(1, None), (2, None), (5, None), (5, 7)])
def test_rows_are_those_of_each_querys_distances(way: str, count: int, keys: int | None) -> None:
    """To the bit, also at both ends of the buffer, where the last queries lie behind it."""
    start = jnp.array([0, 6, CAPACITY - 5, CAPACITY - 1])
    found = getattr(positions, way)(TABLE, start, count, keys)
    assert found.shape == (4, 3, count, keys or CAPACITY)
    for row, begin in enumerate(start.tolist()):
        expected = by_distance(begin, count, keys or CAPACITY)
        np.testing.assert_array_equal(found[row, :, : expected.shape[1]], expected)


@pytest.mark.parametrize("count", [2, FEW])
def test_a_tpus_program_slices_the_table_once_for_a_text(count: int) -> None:
    """A gather of one slice for each text, not for each of its queries."""
    rows = jax.ShapeDtypeStruct((4,), jnp.int32)

    def gather_bias(platform: str) -> bool:
        traced = jax.jit(compute_bias_rows, static_argnums=2).trace(TABLE, rows, count)
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert "stablehlo.gather" in text
        return f"tensor<4x{count}x1xi32>" in text or f"tensor<{4 * count}x1xi32>" in text

    assert gather_bias("cpu") and not gather_bias("tpu")
