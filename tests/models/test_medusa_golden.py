"""Published Medusa heads against what PyTorch computed once (tests/golden/make_medusa.py)."""

from __future__ import annotations

import jax
import numpy as np
from published import GOLDEN
from safetensors.numpy import load_file

from specjax.contracts.env import Bound
from specjax.hf import heads, huggingface

TOLERANCE = 1e-4  # logits have a deviation of 3; float32 in another order of sums


def test_logits_of_heads_equal_pytorch() -> None:
    wanted = load_file(GOLDEN / "medusa" / "expected.safetensors")
    target, loaded = huggingface.load(GOLDEN / "llama"), heads.load(GOLDEN / "medusa")
    tokens = wanted["tokens"]
    length = np.full(len(tokens), tokens.shape[1], np.int32)

    @jax.jit
    def laws(params, own):
        states = target.model.states(params, {"inputs": tokens, "length": length})
        return loaded.heads.compute_logits(own, states, Bound(target.model, params))

    made = laws(target.params, loaded.params)
    np.testing.assert_allclose(made, wanted["logits"], rtol=0, atol=TOLERANCE)
