"""The published DFlash layout against what PyTorch computed once (tests/golden/make_dflash.py)."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from published import GOLDEN, block_logits
from safetensors.numpy import load_file

from specjax.hf.huggingface import load
from specjax.models.target_shapes import complete_params

TOLERANCE = 1e-4  # logits have a deviation of 2; float32 in another order of sums


def golden():
    """The drafter, its parameters with the target's, and what PyTorch was given and computed."""
    found, wanted = load(GOLDEN / "dflash"), load_file(GOLDEN / "dflash" / "expected.safetensors")
    target = {"embedding": wanted["embedding"], "head": {"kernel": wanted["head"].T}}
    return found.model, complete_params(found.model.config, found.params, target), wanted


@pytest.mark.parametrize("part", [12, 5])
def test_logits_of_a_block_equal_pytorch(part: int) -> None:
    model, params, wanted = golden()
    given = wanted["tokens"], wanted["features"], model.config.block_size
    made = block_logits(model, params, *given, part)
    np.testing.assert_allclose(made, wanted["logits"], rtol=0, atol=TOLERANCE)


def test_training_computes_the_same_block() -> None:
    model, params, wanted = golden()
    tokens, features = wanted["tokens"], wanted["features"]
    last = np.full((len(tokens), 1), tokens.shape[1] - 1)
    # The target's states at the pending token are not there yet: any will do.
    features = np.pad(features, ((0, 0), (0, 1), (0, 0)), constant_values=7.0)
    blocks = jax.jit(model.compute_block_logits, static_argnums=5)
    made = blocks(params, tokens, features, None, last, model.config.block_size)
    np.testing.assert_allclose(made.logits[:, 0], wanted["logits"], rtol=0, atol=TOLERANCE)
