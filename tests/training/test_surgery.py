"""Layers taken out of a model whose layers differ."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from feature_drafters import TARGETS, V, on_t5, without_encoder
from slow_cases import some_slow

from specjax.hf.huggingface import load, save
from specjax.runtime.errors import UserError
from specjax.training.surgery import take, take_layers_shape

GOLDEN = Path(__file__).parents[1] / "golden"


def test_queries_are_scaled_for_their_new_place(tmp_path: Path) -> None:
    """GPT-2's scale falls with the layer's number, so that the export can say no other."""
    loaded = load(GOLDEN / "gpt2_scaled")
    assert loaded.model.config.query_scales == (1.0, 1 / 2, 1 / 3)
    tokens = np.random.default_rng(0).integers(2, 96, (2, 9)).astype(np.int32)
    batch = {"inputs": tokens, "length": np.array([9, 9], np.int32)}
    kept = [2, 1, 1]
    model, params = take(loaded.model, loaded.params, kept)
    assert model.config.query_scales == (1.0, 1 / 2, 1 / 3)
    for place, layer in enumerate(kept):
        scales = loaded.model.config.query_scales
        for name in ("kernel", "bias"):
            own = params[f"layers_{place}"]["attention"]["q"][name] * scales[place]
            was = loaded.params[f"layers_{layer}"]["attention"]["q"][name] * scales[layer]
            np.testing.assert_allclose(own, was, rtol=1e-6)
    save(tmp_path / "out", model, params)
    again = load(tmp_path / "out")
    assert again.model == model
    jax.tree.map(np.testing.assert_array_equal, again.params, params)
    np.testing.assert_array_equal(again.model.teach(params, batch), model.teach(params, batch))


@pytest.mark.parametrize("name", some_slow(["t5", "llama"], "llama"))
def test_a_feature_drafter_is_taken_whole(name: str) -> None:
    """A run that goes on with one names no layers, and is refused when it does."""
    ids = tuple(range(5))
    if name == "t5":
        drafter, _ = on_t5(TARGETS["t5"].config, (1, 2), ids)
    else:
        drafter, _ = without_encoder(V, 8, (1, 2), ids, None)
    assert take_layers_shape(drafter, ()) is drafter
    with pytest.raises(UserError, match=r"decoder_layers is \(0,\) .*must be empty for a feature"):
        take_layers_shape(drafter, (0,))


def test_layers_that_share_caches_are_not_taken_one_by_one() -> None:
    model = load(GOLDEN / "gemma4_small").model
    with pytest.raises(
        UserError, match=r"decoder_layers is \(0,\); it must be empty for a model wh"
    ):
        take_layers_shape(model, (0,))


def test_layers_of_a_hybrid_keep_their_kinds() -> None:
    model = load(GOLDEN / "qwen3_5_text").model
    kinds = model.config.layer_recurrences
    plain = kinds.index(None)
    taken = take_layers_shape(model, (plain, 0)).config.layer_recurrences
    assert taken == (None, kinds[0]) and kinds[0] is not None
