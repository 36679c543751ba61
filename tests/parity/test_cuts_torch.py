"""Cuts of a distribution against transformers: its warpers, in the order of its `generate`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.decoding.strategy import drawing_fields, strategy
from specjax.sampling import adjust, make_sampling

torch = pytest.importorskip("torch")

from transformers import GenerationConfig  # noqa: E402
from transformers.generation import GenerationMixin  # noqa: E402

CUTS: dict[str, dict[str, Any]] = {
    "share": {"min_p": 0.1},
    "only the likeliest": {"min_p": 1.0},
    "typical": {"typical_p": 0.7},
    "the most typical": {"typical_p": 0.01},
    "nearly all typical": {"typical_p": 0.999},
    "probability": {"epsilon_cutoff": 0.01},
    "more than any has": {"epsilon_cutoff": 0.9},
    "entropy": {"eta_cutoff": 0.02},
    "entropy, high": {"eta_cutoff": 0.9},
    "all": {
        "temperature": 0.8, "top_k": 60, "top_p": 0.95, "min_p": 0.01, "typical_p": 0.9,
        "epsilon_cutoff": 3e-3, "eta_cutoff": 5e-3,
    },
}  # fmt: skip


def their_distribution(logits: np.ndarray, drawn: dict[str, Any]) -> np.ndarray:
    config = GenerationConfig(do_sample=True, **{"top_k": 0, **drawn})
    warpers = GenerationMixin()._get_logits_processor(config)
    made = warpers(torch.zeros(len(logits), 1, dtype=torch.long), torch.tensor(logits))
    return torch.softmax(made, dim=-1).numpy()


@pytest.mark.parametrize("spread", [0.3, 2.0, 6.0], ids=lambda spread: f"spread {spread}")
@pytest.mark.parametrize("drawn", CUTS.values(), ids=CUTS)
def test_the_law_is_that_of_transformers(drawn: dict[str, Any], spread: float) -> None:
    logits = np.random.default_rng(5).normal(size=(40, 200)).astype(np.float32) * spread
    settings = strategy(**{"temperature": 1.0, **drawn}).settings
    distribution = np.asarray(
        adjust(jnp.asarray(logits), make_sampling(**drawing_fields(settings)))
    )
    theirs = their_distribution(logits, drawn)
    np.testing.assert_array_equal(distribution > 0.0, theirs > 0.0)
    np.testing.assert_allclose(distribution, theirs, atol=2e-6)
    assert np.any(distribution == 0.0) or spread < 1
