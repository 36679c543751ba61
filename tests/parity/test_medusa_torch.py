"""Published Medusa heads against PyTorch, on targets of transformers."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from published import GOLDEN as FOLDER

torch = pytest.importorskip("torch")

from specjax.contracts.env import Bound  # noqa: E402
from specjax.hf import heads, huggingface  # noqa: E402

pytestmark = pytest.mark.slow

GOLDEN = runpy.run_path(str(FOLDER / "make_medusa.py"))
TARGETS = runpy.run_path(str(FOLDER / "make_causal.py"))
TOLERANCE = 1e-4  # logits have a deviation of about 4


@pytest.mark.parametrize(
    ("family", "tied", "count", "layers", "own"),
    [
        ("llama", False, 5, 1, True),
        ("qwen3", True, 2, 3, True),
        ("qwen2", True, 3, 1, False),
        ("llama", False, 3, 1, False),
    ],
)
def test_logits_of_random_heads_equal_pytorch(
    family: str, tied: bool, count: int, layers: int, own: bool, tmp_path: Path
) -> None:
    shape = TARGETS["LLAMA"] | {"tie_word_embeddings": tied}
    theirs = TARGETS["build"](family, shape, seed=3)
    theirs.save_pretrained(tmp_path / "target")
    width, vocabulary = theirs.config.hidden_size, theirs.config.vocab_size
    tensors = GOLDEN["weights"](width, vocabulary if own else None, 9, count, layers)
    GOLDEN["save"](tmp_path / "heads", tensors, count, layers)
    tokens = np.random.default_rng(1).integers(2, vocabulary, (2, 11)).astype(np.int32)
    wanted = GOLDEN["logits"](theirs, tensors, tokens, count, layers)

    target, loaded = huggingface.load(tmp_path / "target"), heads.load(tmp_path / "heads")
    batch = {"inputs": tokens, "length": np.full(2, 11, np.int32)}
    states = target.model.states(target.params, batch)
    made = loaded.heads.compute_logits(loaded.params, states, Bound(target.model, target.params))
    np.testing.assert_allclose(made, wanted, rtol=0, atol=TOLERANCE)
