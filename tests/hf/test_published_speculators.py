"""Drafters in the layout of vLLM's speculators: defaults of classes, reduced vocabularies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from published import edited, words

from specjax.hf.huggingface import load, parse_config
from specjax.runtime.errors import UserError

EAGLE3 = "eagle3_speculators"


def read_layer(layer: dict[str, Any]) -> Any:
    """The shape of the golden EAGLE-3 drafter with such a layer."""
    return parse_config("it", words(EAGLE3) | {"transformer_layer_config": layer}, None, None)[1]


@pytest.mark.parametrize(
    ("kind", "width", "heads", "vocabulary"),
    [("llama", 2, 64, 32000), ("qwen3", 128, 32, 151936), (None, 128, 32, 151936)],
)
def test_a_field_that_is_left_out_has_the_default_of_its_class(
    kind: str | None, width: int, heads: int, vocabulary: int
) -> None:
    layer = {"hidden_size": 128, "num_attention_heads": 64} | ({"model_type": kind} if kind else {})
    shape = read_layer(layer)
    assert (shape.d_head, shape.num_kv_heads, shape.vocab_size) == (width, heads, vocabulary)
    assert shape.qk_norm == (kind != "llama") and shape.rope.theta == 10_000.0


def test_a_layer_of_another_class_is_refused() -> None:
    with pytest.raises(UserError, match="model_type in .* is 'gemma4'; .* of llama, qwen3"):
        read_layer({"model_type": "gemma4"})


def moved(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A mask that has another id than the first of the drafter's."""
    first, other = tensors["d2t"][0], int(np.flatnonzero(~tensors["t2d"])[-1])
    mask = tensors["t2d"].copy()
    mask[first], mask[other] = False, True
    return tensors | {"t2d": mask}


def fewer(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    mask = tensors["t2d"].copy()
    mask[int(tensors["d2t"][0])] = False
    return tensors | {"t2d": mask}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (moved, r"has a 't2d' whose id number 0 is \d+; it must be \d+, that of its drafter"),
        (fewer, "has a 't2d' that selects 39 ids; its drafter has 40"),
    ],
)
def test_both_tensors_of_a_reduced_vocabulary_must_agree(change, sentence, tmp_path: Path) -> None:
    assert load(edited(tmp_path / "same", EAGLE3), jnp.float32).model.config.draft_vocab == 40
    with pytest.raises(UserError, match=sentence):
        load(edited(tmp_path / "it", EAGLE3, change))
