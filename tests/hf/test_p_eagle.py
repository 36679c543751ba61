"""P-EAGLE drafters in and out: the names of their mask, their layers, and exports bit for bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drafter_files import ENTRIES, write_checkpoint
from feature_drafters import draw_weights
from published import SINGLE
from safetensors.numpy import load_file, save_file

from specjax.hf import export as exporting
from specjax.hf import huggingface
from specjax.hf.huggingface import load, parse_config
from specjax.models.eagle import Eagle, EagleCausalConfig
from specjax.models.p_eagle import PEagle, PEagleCausalConfig
from specjax.models.positions import Rope
from specjax.runtime.errors import UserError

LAYOUTS = {"specforge": "p_eagle", "speculators": "p_eagle_speculators"}
NAMES = {
    "p_eagle": "SpecForge Qwen3-8B P-EAGLE",
    "speculators": "RedHatAI/Qwen3-8B-speculator.peagle",
}


def entry(name: str, layers: int = 3, **changes: Any) -> dict[str, Any]:
    """A published configuration with so many layers, and other fields."""
    found = next(one for one in ENTRIES if one["name"] == NAMES[name])
    config = found["config"] | changes
    if name == "speculators":
        of_layer = config["transformer_layer_config"]
        kinds = {"num_hidden_layers": layers, "layer_types": ["full_attention"] * layers}
        config["transformer_layer_config"] = of_layer | kinds
    else:
        config |= {"num_hidden_layers": layers}
    return {**found, "config": config, "tensors": "p_eagle"}


def read(name: str, **changes: Any) -> PEagleCausalConfig:
    return parse_config("it", entry(name, **changes)["config"], None, jnp.float32)[1]


@pytest.mark.parametrize(
    "fields",
    [
        {"mask_token_id": 7},
        {"pard_token": 7},
        {"ptd_token_id": 7},
        {"dflash_config": {"mask_token_id": 7}},
        {"mask_token_id": 7, "ptd_token_id": 7, "parallel_drafting": True},
    ],
)
@pytest.mark.parametrize("named", [["PEagleDraftModel"], ["LlamaForCausalLMEagle3"]])
def test_the_token_of_masks_has_several_names(fields, named):
    if "dflash_config" in fields and named != ["PEagleDraftModel"]:
        fields = fields | {"parallel_drafting": True}
    shape = read("p_eagle", architectures=named, **fields)
    assert (shape.family, shape.mask_token, shape.num_layers) == ("p_eagle", 7, 3)


@pytest.mark.parametrize(
    ("name", "changes", "sentence"),
    [
        ("p_eagle", {}, "mask_token_id is None; it must be an id from 0 to 95"),
        ("p_eagle", {"ptd_token_id": 96}, "ptd_token_id is 96; it must be an id from 0 to 95"),
        (
            "p_eagle",
            {"pard_token": 3, "mask_token_id": 4},
            "mask_token_id is 4 and pard_token is 3; they name the same token and must agree",
        ),
        ("p_eagle", {"mask_token_id": -2}, "mask_token_id is -2; it must be an integer from 0"),
        ("p_eagle", {"architectures": ["Qwen3PEagleModel"]}, "P-EAGLE with other layers"),
        (
            "p_eagle",
            {"dflash_config": {"mask_token_id": 3, "block_size": 4}},
            "block_size in dflash_config is 4; specjax does not know",
        ),
        ("speculators", {"mask_token_id": None}, "mask_token_id is None; it must be an id from 0"),
    ],
)
def test_what_is_not_computed_is_refused(name: str, changes, sentence: str):
    with pytest.raises(UserError, match=f"it cannot be used: .*{sentence}"):
        read(name, **changes)


def test_a_model_of_its_own_with_such_a_token_is_still_refused():
    config = entry("p_eagle", pard_token=3)["config"]
    config |= {"architectures": ["LlamaForCausalLM"]}
    del config["draft_vocab_size"]
    with pytest.raises(UserError, match="pard_token is 3: a drafter of the format PARD"):
        parse_config("it", config, None, jnp.float32)


@pytest.mark.parametrize("name", NAMES)
def test_an_export_stores_what_was_read(name: str, tmp_path: Path):
    folder = write_checkpoint(tmp_path / "it", entry(name, mask_token_id=93))
    found = load(folder)
    assert isinstance(found.model, PEagle) and found.model.info.depth == 3
    huggingface.save(tmp_path / "out", found.model, found.params)
    again = load(tmp_path / "out")
    assert again.model == found.model
    jax.tree.map(np.testing.assert_array_equal, again.params, found.params)
    stored, original = (load_file(at / SINGLE) for at in (tmp_path / "out", folder))
    assert stored.keys() == original.keys()
    for tensor, values in original.items():
        np.testing.assert_array_equal(stored[tensor], values, err_msg=tensor)


def test_the_first_layer_may_have_safeailabs_name(tmp_path: Path):
    folder = write_checkpoint(tmp_path / "it", entry("p_eagle", mask_token_id=93))
    expected = load(folder).params
    tensors = load_file(folder / SINGLE)
    save_file(
        {f"model.{name.replace('layers.0.', 'midlayer.')}": x for name, x in tensors.items()},
        folder / SINGLE,
    )
    jax.tree.map(np.testing.assert_array_equal, load(folder).params, expected)


IDS = (1, 2, 3, 5, 7, 8, 9, 11)
TRAINED = {
    "family": "p_eagle_llama", "vocab_size": 12, "d_model": 16, "d_ff": 12, "num_layers": 3,
    "num_heads": 2, "num_kv_heads": 1, "d_head": 4, "max_positions": 64, "rope": Rope(4),
    "eos": (1,), "target_width": 16, "features": (2, 4, 7), "draft_vocab": len(IDS),
    "reads_first": False, "mask_token": 4,
}  # fmt: skip
"""A drafter as training leaves it, of a shape that the layouts have."""


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_trained_drafter_is_exported_bit_for_bit(layout: str, tmp_path: Path):
    model, params = draw_weights(PEagle(PEagleCausalConfig(**TRAINED)), IDS)
    huggingface.save(tmp_path / "own", model, params)
    assert load(tmp_path / "own").model == model
    flags = [f"--layout={layout}", "--target=acme/target"]
    assert exporting.main(["export", str(tmp_path / "own"), str(tmp_path / "out"), *flags]) == 0
    again = load(tmp_path / "out")
    jax.tree.map(np.testing.assert_array_equal, again.params, params)
    shape = again.model.config
    assert (shape.family, shape.mask_token, shape.num_layers) == (LAYOUTS[layout], 4, 3)
    words = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))
    assert words["mask_token_id"] == 4


@pytest.mark.slow
def test_a_mask_that_is_no_token_is_kept_by_the_projects_own_layout_only(tmp_path: Path):
    model, params = draw_weights(PEagle(PEagleCausalConfig(**TRAINED | {"mask_token": None})), IDS)
    huggingface.save(tmp_path / "own", model, params)
    again = load(tmp_path / "own")
    assert again.model == model
    jax.tree.map(np.testing.assert_array_equal, again.params, params)
    with pytest.raises(UserError, match="mask_token_id is None; .* must be a token of the target"):
        exporting.in_layout(model, params, "specforge")


def test_eagle3s_layouts_have_no_words_for_several_layers():
    of_eagle = {name: value for name, value in TRAINED.items() if name != "mask_token"}
    model = Eagle(EagleCausalConfig(**of_eagle))
    with pytest.raises(UserError, match="num_hidden_layers is 3; .* must be 1"):
        exporting.in_layout(model, {}, "specforge")
