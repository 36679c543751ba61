"""Pix2Struct against transformers' PyTorch class on fresh random models."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from input_parity import (
    check_beams,
    check_exports,
    check_logits,
    check_refusal,
    each_strategy,
    write_texts,
)

torch = pytest.importorskip("torch")

from specjax.loading import load  # noqa: E402

pytestmark = pytest.mark.slow

GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_pix2struct.py"))
NEW_TOKENS = 40
SIZES = (50, 31), (7, 64), (100, 9), (16, 16), (3, 4)
SHAPES: dict[str, dict[str, Any]] = {
    "even": {},
    "one narrow head": {
        "text": {"hidden_size": 7, "d_kv": 7, "num_heads": 1, "num_layers": 1, "d_ff": 5,
                 "vocab_size": 61, "relative_attention_num_buckets": 3},
        "vision": {"hidden_size": 7, "d_kv": 11, "num_attention_heads": 1, "layer_norm_eps": 0.1},
    },
    "tied": {
        "text": {"hidden_size": 30, "d_kv": 6, "num_heads": 5, "dense_act_fn": "relu",
                 "layer_norm_epsilon": 0.01, "num_layers": 2, "vocab_size": 97},
        "vision": {"hidden_size": 30, "dense_act_fn": "silu", "d_ff": 5, "num_hidden_layers": 1},
        "tie_word_embeddings": True,
    },
    "far positions": {
        "text": {"hidden_size": 12, "d_kv": 2, "num_heads": 6, "d_ff": 31, "num_layers": 2,
                 "relative_attention_num_buckets": 32, "relative_attention_max_distance": 17},
        "vision": {"hidden_size": 12, "d_kv": 1, "num_attention_heads": 7, "num_hidden_layers": 3},
    },
    "deep encoder, two buckets": {
        "text": {"hidden_size": 15, "d_kv": 5, "num_heads": 3, "num_layers": 1,
                 "relative_attention_num_buckets": 2, "relative_attention_max_distance": 5},
        "vision": {"hidden_size": 15, "num_hidden_layers": 4, "seq_len": 25},
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: Any, tmp_path_factory: Any) -> Any:
    """A random PyTorch model and the same one loaded here."""
    theirs = GOLDEN["build"](list(SHAPES).index(request.param) + 20, **SHAPES[request.param])
    folder = tmp_path_factory.mktemp("pix2struct")
    theirs.save_pretrained(folder)
    GOLDEN["processor"]().save_pretrained(folder)
    return theirs, load(folder)


def test_logits_of_random_models_equal_pytorch(pair):
    theirs, ours = pair
    pixels = GOLDEN["images"](1, SIZES)
    target = np.random.default_rng(2).integers(2, ours.model.info.vocab_size, (len(pixels), 30))
    expected = GOLDEN["logits"](theirs, GOLDEN["patches"](pixels), target)
    check_logits(ours, pixels, target, expected)


@each_strategy
def test_texts_equal_those_of_generate(pair, strategy):
    theirs, ours = pair
    pixels = GOLDEN["images"](3, SIZES)
    expected = GOLDEN["greedy"](theirs, GOLDEN["patches"](pixels), NEW_TOKENS)
    assert write_texts(ours, pixels, strategy, NEW_TOKENS) == expected


@pytest.mark.parametrize("drafter", ["none", "neural"])
def test_beams_equal_those_of_generate(pair, drafter):
    theirs, ours = pair
    pixels = GOLDEN["images"](4, SIZES[:3])
    made = theirs.generate(
        **GOLDEN["patches"](pixels), max_new_tokens=12, num_beams=3, do_sample=False,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    rows = made.sequences[:, 1:].tolist()
    texts = [row[: row.index(1) + 1] if 1 in row else row for row in rows]
    check_beams(ours, pixels, drafter, texts, made.sequences_scores.tolist())


def test_an_exported_model_loads_in_transformers_unchanged(pair, tmp_path):
    given, target = GOLDEN["patches"](GOLDEN["images"](5, SIZES[:2])), np.full((2, 9), 5, np.int64)
    check_exports(*pair, tmp_path, lambda model: GOLDEN["logits"](model, given, target))


REFUSED = [
    ({"vision_config": {"hidden_size": 20}}, "vision_config: hidden_size is 20; .* 24"),
    ({"text_config": {"d_kv": 5}}, "text_config: d_kv is 5; times num_heads, 3, it must be"),
    ({"text_config": {"is_decoder": False}}, "is_decoder is False; it must be true"),
    ({"text_config": {"relative_attention_max_distance": 4}}, "must be above half of .*, 4"),
    ({"text_config": {"num_hidden_layers": 7}}, "both name the same field and must agree"),
    ({"vision_config": {"dense_act_fn": "maxout"}}, "dense_act_fn is 'maxout'; it must be one of"),
    ({"vision_config": {"seq_len": 1}}, "seq_len is 1; it must be an integer from 2"),
    ({"vision_config": {"sliding_window": 3}}, "sliding_window is 3; it must be null"),
    ({"text_config": None}, "text_config is None; it must be an object"),
]


@pytest.mark.parametrize(("change", "said"), REFUSED)
def test_fields_that_change_what_is_computed_are_obeyed_or_refused(change, said, tmp_path):
    check_refusal(Path(GOLDEN["FOLDER"]), change, said, tmp_path)


@pytest.mark.parametrize("changes", [{}, {"max_patches": 7}, {"do_normalize": False}], ids=str)
def test_patches_are_those_of_transformers_for_images_of_any_size(changes):
    from specjax.hf.patches import PatchProcessor

    fields = GOLDEN["PROCESSOR"] | {"do_normalize": True} | changes
    size = fields["patch_size"]
    ours = PatchProcessor(
        fields["max_patches"], size["height"], size["width"], fields["do_normalize"], {}
    )
    draw = np.random.default_rng(8)
    sizes = tuple((int(height), int(width)) for height, width in draw.integers(1, 200, (20, 2)))
    pixels = GOLDEN["images"](9, sizes)
    given = [GOLDEN["patches"]([one], **changes)["flattened_patches"][0].numpy() for one in pixels]
    scale = 1.0 if fields["do_normalize"] else 255.0
    for image, expected in zip(pixels, given, strict=True):
        found = ours(image)
        assert len(found) == expected.any(axis=1).sum()
        np.testing.assert_allclose(found, expected[: len(found)], rtol=0, atol=2e-5 * scale)
