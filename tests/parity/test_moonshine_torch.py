"""Moonshine against transformers' PyTorch class on fresh random models."""

from __future__ import annotations

import copy
import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from input_parity import check_beams, check_exports, check_logits, each_strategy, write_texts

torch = pytest.importorskip("torch")

import specjax  # noqa: E402
from specjax.loading import load  # noqa: E402

pytestmark = pytest.mark.slow

GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_moonshine.py"))
NEW_TOKENS = 40
LENGTHS = 900, 1471, 3007, 4800, 9999
HEADS = "encoder_num_attention_heads", "decoder_num_attention_heads"


def odd(heads: int, **changes: Any) -> dict[str, Any]:
    return dict.fromkeys(HEADS, heads) | changes


SHAPES: dict[str, dict[str, Any]] = {
    "even": {},
    "one narrow head": odd(
        1, hidden_size=7, intermediate_size=5, decoder_num_hidden_layers=1,
        partial_rotary_factor=0.3, attention_bias=True, vocab_size=61,
    ),
    "whole heads of one layer": odd(
        5, hidden_size=30, intermediate_size=31, encoder_num_hidden_layers=1,
        partial_rotary_factor=1.0, encoder_hidden_act="relu", tie_word_embeddings=False,
    ),
    "wider heads, scaled": odd(
        3, hidden_size=20, head_dim=11, decoder_hidden_act="gelu", decoder_num_hidden_layers=2,
        rope_parameters={"rope_type": "linear", "factor": 3.0, "rope_theta": 100.0,
                         "partial_rotary_factor": 0.6},
    ),
    "padded heads, yarn": odd(
        2, hidden_size=26, pad_head_dim_to_multiple_of=8, encoder_num_hidden_layers=3,
        rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4,
                         "original_max_position_embeddings": 16, "partial_rotary_factor": 0.95},
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: Any, tmp_path_factory: Any) -> Any:
    """A random PyTorch model and the same one loaded here."""
    theirs = GOLDEN["build"](list(SHAPES).index(request.param) + 30, **SHAPES[request.param])
    folder = tmp_path_factory.mktemp("moonshine")
    theirs.save_pretrained(folder)
    return theirs, load(folder)


def test_logits_of_random_models_equal_pytorch(pair):
    theirs, ours = pair
    audio = GOLDEN["heard"](1, LENGTHS)
    target = np.random.default_rng(2).integers(2, ours.model.info.vocab_size, (len(audio), 30))
    # Float32 is 8e-5 of the largest from double precision in PyTorch, and 6e-5 here.
    exact = copy.deepcopy(theirs).double()
    expected = GOLDEN["logits"](exact, [wave.astype(np.float64) for wave in audio], target)
    check_logits(ours, audio, target, expected)


@each_strategy
def test_texts_equal_those_of_generate(pair, strategy):
    theirs, ours = pair
    audio = GOLDEN["heard"](3, LENGTHS)
    expected = GOLDEN["greedy"](theirs, audio, NEW_TOKENS)
    assert write_texts(ours, audio, strategy, NEW_TOKENS) == expected


@pytest.mark.parametrize("drafter", ["none", "neural"])
def test_beams_equal_those_of_generate(pair, drafter):
    theirs, ours = pair
    audio, texts, scores = GOLDEN["heard"](4, LENGTHS[:3]), [], []
    for waveform in audio:
        made = theirs.generate(
            input_values=torch.tensor(waveform[None]), max_new_tokens=12, num_beams=3,
            do_sample=False, return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        text = made.sequences[0, 1:].tolist()
        texts.append(text[: text.index(2) + 1] if 2 in text else text)
        scores.append(float(made.sequences_scores[0]))
    check_beams(ours, audio, drafter, texts, scores)


def test_an_exported_model_loads_in_transformers_unchanged(pair, tmp_path):
    audio, target = GOLDEN["heard"](5, LENGTHS[:2]), np.full((2, 9), 5, np.int64)
    check_exports(*pair, tmp_path, lambda model: GOLDEN["logits"](model, audio, target))


REFUSED = [
    ({"encoder_num_key_value_heads": 1}, "encoder_num_key_value_heads is 1; it must be 2"),
    ({"num_key_value_heads": 1}, "both name the same field and must agree"),
    ({"encoder_num_attention_heads": 4}, "encoder_num_attention_heads is 4; it must be 2"),
    ({"partial_rotary_factor": 0.05}, "partial_rotary_factor is 0.05; .* an even count"),
    ({"encoder_hidden_act": "maxout"}, "encoder_hidden_act is 'maxout'; it must be one of"),
    ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'"),
    ({"hidden_size": 41}, "hidden_size is 41; it must be divisible by decoder_num_attention_heads"),
    ({"is_encoder_decoder": False}, "is_encoder_decoder is False; it must be true"),
    ({"attention_bias": "no"}, "attention_bias is 'no'; it must be true or false"),
]


@pytest.mark.parametrize(("change", "said"), REFUSED)
def test_fields_that_change_what_is_computed_are_obeyed_or_refused(change, said, tmp_path):
    from safetensors.numpy import save_file

    from specjax.runtime.json_files import write_json

    config = json.loads((Path(GOLDEN["FOLDER"]) / "config.json").read_text("utf-8"))
    write_json(tmp_path / "config.json", config | change)
    save_file({}, tmp_path / "model.safetensors")
    with pytest.raises(specjax.UserError, match=said):
        load(tmp_path)
