"""Published EAGLE-3 layouts against what PyTorch computed once (tests/golden/make_eagle3.py)."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from published import logits
from safetensors.numpy import load_file
from slow_cases import some_slow

from specjax.hf.huggingface import load

GOLDEN = Path(__file__).parents[1] / "golden"
TOLERANCE = 1e-4  # logits have a deviation of 1.5; float32 in another order of sums
LAYOUTS = pytest.mark.parametrize("layout", ["eagle3", "eagle3_speculators"])


def read_expected(layout: str) -> dict[str, np.ndarray]:
    return load_file(GOLDEN / layout / "expected.safetensors")


def same(found: np.ndarray, wanted: np.ndarray) -> None:
    np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("layout", "tree"),
    some_slow(
        [("eagle3", False), ("eagle3", True), ("eagle3_speculators", False)], ("eagle3", True)
    ),
)
def test_logits_of_the_text_and_of_chained_steps_equal_pytorch(layout: str, tree: bool) -> None:
    checkpoint, wanted = load(GOLDEN / layout), read_expected(layout)
    given = (wanted[name] for name in ("tokens", "features", "drafted"))
    first, later = logits(checkpoint.model, checkpoint.params, *given, part=5, tree=tree)
    same(first, wanted["first"])
    same(later, wanted["later"])


@LAYOUTS
def test_training_unrolls_what_pytorch_computes(layout: str) -> None:
    """Step k behind the last token but k is the k-th of the steps that feed the same tokens."""
    checkpoint, wanted = load(GOLDEN / layout), read_expected(layout)
    text = np.concatenate([wanted["tokens"], wanted["drafted"]], axis=1)
    steps = wanted["drafted"].shape[1]
    # Of drafted tokens the target's states are not read: any will do.
    features = np.pad(wanted["features"], ((0, 0), (0, steps), (0, 0)), constant_values=7.0)
    model, size = checkpoint.model, wanted["tokens"].shape[1]
    unrolled = jax.jit(model.unroll_draft, static_argnums=(3, 4))
    made = unrolled(checkpoint.params, text, features, None, steps + 1)
    same(np.asarray(made[0])[:, 1:size], wanted["first"])
    for step in range(1, steps + 1):
        same(np.asarray(made[step])[:, size - 1 + step], wanted["later"][:, step - 1])
