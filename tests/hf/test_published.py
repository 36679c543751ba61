"""Published EAGLE-3 drafters in and out: what is read, what is refused, what an export writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import draw_weights
from published import GOLDEN, SINGLE, edit_drafter, without, words
from safetensors.numpy import load_file

from specjax.hf import export as exporting
from specjax.hf import huggingface
from specjax.hf.families.eagle3 import layers_after
from specjax.hf.families.schema import collect_ignored
from specjax.hf.huggingface import load, parse_config
from specjax.models.eagle import Eagle, EagleCausalConfig
from specjax.models.positions import Rope
from specjax.models.target_shapes import complete_params
from specjax.runtime.errors import UserError

LAYOUTS = {"specforge": "eagle3", "speculators": "eagle3_speculators"}


def read(layout: str, layer: dict[str, Any] | None = None, **changes: Any) -> EagleCausalConfig:
    """The shape of a golden configuration with other fields, and others of its nested layer."""
    hf = words(layout) | changes
    if layer:
        hf["transformer_layer_config"] = hf["transformer_layer_config"] | layer
    return parse_config("it", hf, None, jnp.float32)[1]


@pytest.mark.parametrize(
    ("ids", "layers"),
    [
        ([1, 46, 90], (2, 47, 91)),  # SpecForge, of 94 layers
        ([2, 47, 91], (2, 47, 91)),  # vLLM
        ([24, 12, 36], (12, 24, 36)),
    ],
)
def test_layers_are_counted_in_two_ways(ids: list[int], layers: tuple[int, ...]) -> None:
    assert layers_after(ids) == layers
    said = {"eagle_aux_hidden_state_layer_ids": ids}
    assert read("eagle3", eagle_config=said).features == layers
    assert read("eagle3", eagle_config=None, **said).features == layers
    assert read("eagle3_speculators", **said).features == layers


def test_what_a_configuration_says_is_computed() -> None:
    plain = read("eagle3", eagle_config=None)
    assert plain.features == () and plain.read == 3 and not plain.reads_first
    assert (plain.normed_residual, plain.normed_states, plain.feature_norms) == (False, False, 0)
    assert plain.rope.kind == "llama3" and plain.d_head == 10 and plain.num_kv_heads == 2
    newer = read("eagle3", fc_norm=True, norm_output=True, target_hidden_size=40)
    assert newer.feature_norms == 3 and newer.normed_states
    assert newer.target_width == 40 and newer.embedding_width == 24
    other = read("eagle3_speculators", norm_before_fc=True)
    assert other.feature_norms == 1 and other.normed_residual and other.qk_norm
    assert other.target_name == "acme/target"
    assert not read("eagle3_speculators", layer={"model_type": "llama"}).qk_norm
    # AngelSlim's word for the architecture, and files that only say so there.
    named = {"architectures": ["Eagle3LlamaForCausalLM"], "model_type": "qwen2"}
    assert read("eagle3", **named).family == "eagle3"


REFUSED = [
    ("eagle3", {"num_hidden_layers": 0}, "num_hidden_layers is 0; it must be an integer from 1"),
    ("eagle3", {"attention_bias": True}, "attention_bias is True; it must be false"),
    ("eagle3", {"bias": True}, "bias is True; it must be false"),
    ("eagle3", {"model_type": "deepseek_v3"}, "model_type is 'deepseek_v3'; it must be one of lla"),
    ("eagle3", {"medusa_num_heads": 4}, "medusa_num_heads is 4: a model with Medusa's heads in it"),
    ("eagle3", {"parallel_drafting": True}, "mask_token_id is None; it must be an id from 0 to 95"),
    ("eagle3", {"draft_vocab_size": 97}, "draft_vocab_size is 97; it must be at most vocab_size"),
    ("eagle3", {"use_sliding_window": True}, "use_sliding_window is True; it must be false"),
    ("eagle3", {"rope_scaling": {"type": "mrope"}}, "rope_type is 'mrope'"),
    (
        "eagle3",
        {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
        "rope_type is 'dynamic'; in a drafter it must be one of default, linear, llama3, yarn",
    ),
    (
        "eagle3",
        {"eagle_config": {"use_aux_hidden_state": False}},
        "use_aux_hidden_state is False; it must be true",
    ),
    (
        "eagle3",
        {"eagle_config": {"parallel_draft_step": 4}},
        "parallel_draft_step is 4; it must be 1",
    ),
    (
        "eagle3",
        {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [2, 9]}},
        "layer_ids is .2, 9.; it must name 3 layers",
    ),
    (
        "eagle3",
        {"eagle_aux_hidden_state_layer_ids": [2, 4, 7]},
        "layer_ids is .2, 4, 7. and .1, 3, 5. in eagle_config",
    ),
    (
        "eagle3_speculators",
        {"speculators_model_type": "eagle"},
        "'eagle': a drafter of the format",
    ),
    ("eagle3_speculators", {"norm_before_residual": None}, "norm_before_residual is None"),
    ("eagle3_speculators", {"transformer_layer_config": []}, "it must be an object"),
    (
        "eagle3_speculators",
        {"norm_before_fc": True, "fc_norm": True},
        "fc_norm is true; it must be false where norm_before_fc is true",
    ),
]


@pytest.mark.parametrize(("layout", "changes", "sentence"), REFUSED)
def test_what_is_not_computed_is_refused(layout: str, changes, sentence: str) -> None:
    with pytest.raises(UserError, match=f"it cannot be used: .*{sentence}"):
        read(layout, **changes)


def test_what_neither_llama_nor_an_exporter_has_is_ignored_and_named() -> None:
    with collect_ignored() as ignored:
        assert read("eagle3", kv_lora_rank=512) == read("eagle3")
        read("eagle3_speculators", layer={"kv_lora_rank": 512})
    names = ["kv_lora_rank", "transformer_layer_config.kv_lora_rank"]
    assert [name for name in ignored["config.json"] if "rank" in name] == names


def test_a_mapping_must_be_there(tmp_path: Path) -> None:
    folder = edit_drafter(tmp_path / "it", "eagle3", without("d2t"))
    with pytest.raises(UserError, match="lacks the tensor 'd2t', which maps its 40 ids"):
        load(folder)


def test_an_embedding_of_another_width_must_be_there(tmp_path: Path) -> None:
    lacking = without("embed_tokens.weight")
    folder = edit_drafter(tmp_path / "it", "eagle3", lacking, target_hidden_size=40)
    with pytest.raises(UserError, match="'embed_tokens.weight', and the target's embedding is 40"):
        load(folder)


def test_medusa_heads_beside_the_layer_are_refused(tmp_path: Path) -> None:
    folder = edit_drafter(
        tmp_path / "it",
        "eagle3",
        lambda t: t | {"parallel_draft_heads.0.lm_head.weight": np.zeros((2, 2), np.float32)},
    )
    with pytest.raises(UserError, match="'parallel_draft_heads.0.lm_head.weight' .* no place"):
        load(folder)


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    folder = edit_drafter(tmp_path / "it", "eagle3")
    (folder / SINGLE).rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"has pytorch_model.bin .* reads safetensors only"):
        load(folder)


def test_without_a_mapping_all_ids_are_drafted(tmp_path: Path) -> None:
    whole = edit_drafter(
        tmp_path / "it",
        "eagle3",
        lambda t: without("d2t", "t2d")(t) | {"lm_head.weight": t["embed_tokens.weight"]},
        draft_vocab_size=None,
    )
    found = load(whole)
    assert complete_params(found.model.config, found.params, {})["ids"].tolist() == list(range(96))


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS.values())
def test_an_export_stores_what_was_read(layout: str, embedded: bool, tmp_path: Path) -> None:
    gone = () if embedded else ("embed_tokens.weight",)
    folder = edit_drafter(tmp_path / "it", layout, without(*gone))
    found = load(folder)
    huggingface.save(tmp_path / "out", found.model, found.params)
    again = load(tmp_path / "out")
    assert again.model == found.model
    jax.tree.map(np.testing.assert_array_equal, again.params, found.params)
    stored, original = (load_file(at / SINGLE) for at in (tmp_path / "out", folder))
    assert stored.keys() == original.keys()
    for name, tensor in original.items():
        assert stored[name].dtype == tensor.dtype
        np.testing.assert_array_equal(stored[name], tensor, err_msg=name)


IDS = (1, 2, 3, 5, 7, 8, 9, 11)


TRAINED = {
    "family": "eagle_llama", "vocab_size": 12, "d_model": 16, "d_ff": 12, "num_layers": 1,
    "num_heads": 2, "num_kv_heads": 1, "d_head": 4, "max_positions": 64, "rope": Rope(4),
    "eos": (1,), "target_width": 16, "features": (2, 4, 7), "draft_vocab": len(IDS),
    "reads_first": False,
}  # fmt: skip
"""A drafter as training leaves it, of a shape that the layouts have."""


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_trained_drafter_is_exported_bit_for_bit(layout: str, tmp_path: Path, capsys) -> None:
    newer = {"feature_norms": 3, "normed_states": True}
    model, params = draw_weights(Eagle(EagleCausalConfig(**TRAINED | newer)), IDS)
    huggingface.save(tmp_path / "own", model, params)
    assert load(tmp_path / "own").model == model
    flags = [f"--layout={layout}", "--target=acme/target"]
    assert exporting.main(["export", str(tmp_path / "own"), str(tmp_path / "out"), *flags]) == 0
    assert "in the layout of" in capsys.readouterr().out
    again = load(tmp_path / "out")
    jax.tree.map(np.testing.assert_array_equal, again.params, params)
    config, was = again.model.config, model.config
    assert config.family == LAYOUTS[layout] and config.features == was.features
    assert (config.feature_norms, config.normed_states, config.rope) == (3, True, was.rope)
    assert config.target_name == ("acme/target" if layout == "speculators" else "")
    can = load_file(tmp_path / "out" / SINGLE)["t2d"]
    assert can.dtype == bool and np.flatnonzero(can).tolist() == list(IDS)


@pytest.mark.parametrize(
    ("layout", "changes", "sentence"),
    [
        ("specforge", {"reads_first": True}, "read_first_token is True; .* must be False"),
        ("specforge", {"target_width": 24}, "hidden_size is 16; .* the embedding's width, 24"),
        ("specforge", {"features": (2, 5)}, r"target_layers is \(2, 5\); .* must be 3 layers"),
        ("speculators", {"features": (1, 5)}, r"is \(1, 5\); .* must be layers from 2 on"),
        ("speculators", {"rope": Rope(4, kind="dynamic")}, "rope_type is 'dynamic'; for the"),
        ("specforge", {"qk_norm": True}, "qk_norm is True; .* must be False"),
        ("speculators", {"qkv_bias": True}, "qkv_bias is True; .* must be False"),
        ("pytorch", {}, "layout is 'pytorch'; it must be one of specforge, speculators, dfla"),
    ],
)
def test_what_a_layout_has_no_words_for_is_refused(layout: str, changes, sentence: str) -> None:
    model = Eagle(EagleCausalConfig(**TRAINED | changes))
    with pytest.raises(UserError, match=sentence):
        exporting.in_layout(model, {}, layout)


def test_only_feature_drafters_are_exported(tmp_path: Path) -> None:
    assert exporting.main(["export", str(GOLDEN / "llama"), str(tmp_path), "--layout=specforge"])
    with pytest.raises(UserError, match="model_type is 'llama'; a feature drafter of a decoder"):
        exporting.in_layout(load(GOLDEN / "llama").model, {}, "specforge")


def test_help_says_what_can_be_set(capsys) -> None:
    with pytest.raises(SystemExit) as end:
        exporting.main(["export", "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("--layout", "--target", "--dtype", "specforge"))
