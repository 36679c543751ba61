"""Image-to-text models against transformers' PyTorch classes on fresh random models."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from input_parity import check_beams

torch = pytest.importorskip("torch")

import specjax  # noqa: E402
from specjax.loading import load  # noqa: E402

pytestmark = pytest.mark.slow

GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_trocr.py"))
ROWS, NEW_TOKENS = 6, 40
WIDE = {"hidden_size": 30, "num_attention_heads": 5, "num_hidden_layers": 1}
SHAPES: dict[str, dict[str, Any]] = {
    "vit": {},
    "distilled and projected": {"kind": "deit", "decoder": {"cross_attention_hidden_size": None}},
    "sinusoids": {
        "encoder": {"patch_size": [4, 12], "hidden_act": "relu", "layer_norm_eps": 0.1},
        "decoder": {
            "use_learned_position_embeddings": False, "layernorm_embedding": False,
            "scale_embedding": True, "activation_function": "relu", "tie_word_embeddings": False,
        },
    },
    "gray and odd": {
        "encoder": WIDE | {"num_channels": 1, "qkv_bias": False, "image_size": 21, "patch_size": 7},
        "decoder": {"cross_attention_hidden_size": 30, "d_model": 21, "decoder_attention_heads": 3,
                    "decoder_layers": 3, "decoder_ffn_dim": 5},
    },
    "donut": {
        "kind": "donut-swin", "writer": "mbart",
        "decoder": {"cross_attention_hidden_size": None, "scale_embedding": True,
                    "is_encoder_decoder": False, "add_cross_attention": True},
    },
    "donut of one width, deep": {
        "kind": "donut-swin", "writer": "mbart",
        "encoder": {"embed_dim": 4, "depths": [2, 3, 2], "num_heads": [1, 2, 4], "window_size": 2,
                    "image_size": [36, 28], "qkv_bias": False, "mlp_ratio": 1.5,
                    "layer_norm_eps": 0.01},
        "decoder": {"cross_attention_hidden_size": None, "is_encoder_decoder": False,
                    "tie_word_embeddings": False},
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: Any, tmp_path_factory: Any) -> Any:
    """A random PyTorch model and the same one loaded here."""
    theirs = GOLDEN["build"](list(SHAPES).index(request.param) + 20, **SHAPES[request.param])
    folder = tmp_path_factory.mktemp("images")
    theirs.save_pretrained(folder)
    return theirs, load(folder)


def test_logits_of_random_models_equal_pytorch(pair):
    theirs, ours = pair
    pixels = GOLDEN["images"](theirs, 1, ROWS)
    target = np.random.default_rng(2).integers(2, ours.model.info.vocab_size, (ROWS, 30))
    expected = GOLDEN["logits"](theirs, pixels, target)
    patches = np.stack([ours.extractor("image", image) for image in pixels])
    length = np.full(ROWS, patches.shape[1], np.int32)
    cache, _ = ours.model.start(ours.params, patches, length, 30)
    found = np.asarray(ours.model.extend(ours.params, target.astype(np.int32), cache)[0].logits)
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(
    "strategy", [specjax.autoregressive(), specjax.speculative(length=3),
                 specjax.strategy(drafter="neural", widths=(2, 2))], ids=["plain", "chain", "tree"],
)  # fmt: skip
def test_texts_equal_those_of_generate(pair, strategy):
    theirs, ours = pair
    # The two greatest logits of every place are 1.7e-3 apart or more, unlike those of other seeds.
    pixels = GOLDEN["images"](theirs, 12, ROWS)
    drafters = {"drafter": ours} if strategy.drafter.spec.models else {}
    generator = specjax.Generator(ours, drafters, strategy, max_new_tokens=NEW_TOKENS)
    assert generator(list(pixels)).tokens == GOLDEN["greedy"](theirs, pixels, NEW_TOKENS)


@pytest.mark.parametrize("drafter", ["none", "neural"])
def test_beams_equal_those_of_generate(pair, drafter):
    theirs, ours = pair
    pixels = GOLDEN["images"](theirs, 5, 3)
    made = theirs.generate(
        torch.tensor(pixels), max_new_tokens=12, num_beams=3, do_sample=False,
        return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    rows, end = made.sequences[:, 1:].tolist(), GOLDEN["EOS"]
    texts = [row[: row.index(end) + 1] if end in row else row for row in rows]
    check_beams(ours, list(pixels), drafter, texts, made.sequences_scores.tolist())


def test_an_exported_model_loads_in_transformers_unchanged(pair, tmp_path):
    from transformers import VisionEncoderDecoderModel

    theirs, ours = pair
    ours.save(tmp_path / "out")
    again = VisionEncoderDecoderModel.from_pretrained(tmp_path / "out", dtype=torch.float32)
    # transformers loads sinusoids without data; None: it makes them when it needs them.
    if hasattr(again.decoder.model.decoder.embed_positions, "weights"):
        again.decoder.model.decoder.embed_positions.weights = None
    pixels, target = GOLDEN["images"](theirs, 4, 2), np.full((2, 9), 5, np.int64)
    expected = GOLDEN["logits"](theirs, pixels, target)
    np.testing.assert_array_equal(GOLDEN["logits"](again.eval(), pixels, target), expected)
    assert load(tmp_path / "out").model == ours.model


REFUSED = [
    (
        {"encoder": {"model_type": "swin"}},
        "encoder: model_type is 'swin'; .* deit, donut-swin",
    ),
    ({"encoder": {"image_size": [16, 47]}}, r"image_size is \[16, 47\]; .* multiple of patch_size"),
    ({"encoder": {"patch_size": 32}}, "patch_size is 32; it must be at most image_size"),
    ({"encoder": {"patch_size": "8"}}, "patch_size is '8'; it must be an integer from 1"),
    ({"encoder": {"num_attention_heads": 5}}, "hidden_size is 24; it must be divisible by .*, 5"),
    ({"encoder": {"head_dim": 4}}, "head_dim is 4; it must be 8"),
    (
        {"decoder": {"model_type": "gpt2"}},
        "decoder: model_type is 'gpt2'; .* one of trocr, mbart",
    ),
    ({"decoder": {"decoder_attention_heads": 3}}, "decoder_attention_heads is 3; it must divide"),
    ({"decoder": {"cross_attention_hidden_size": 9}}, "cross_attention_hidden_size is 9; it must"),
    ({"encoder": None}, "encoder is None; it must be an object"),
]


@pytest.mark.parametrize(("change", "said"), REFUSED)
def test_fields_that_change_what_is_computed_are_obeyed_or_refused(change, said, tmp_path):
    from safetensors.numpy import save_file

    from specjax.runtime.json_files import write_json

    folder = Path(GOLDEN["FOLDER"])
    config = json.loads((folder / "config.json").read_text("utf-8"))
    for side, fields in change.items():
        config[side] = None if fields is None else config[side] | fields
    write_json(tmp_path / "config.json", config)
    save_file({}, tmp_path / "model.safetensors")
    with pytest.raises(specjax.UserError, match=said):
        load(tmp_path)
