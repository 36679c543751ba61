"""Published DFlash drafters in and out: what is read, what is refused, what an export writes."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import CORRECTIONS, IDS, TARGETS, draw_weights, without_encoder
from published import GOLDEN, SINGLE, edit_drafter, without, words
from safetensors.numpy import load_file

from specjax.hf import export as exporting
from specjax.hf import huggingface
from specjax.hf.families.dflash_published import PublishedDFlash
from specjax.hf.huggingface import load, parse_config
from specjax.models.convolution import Convolution
from specjax.models.dflash import DFlash, DFlashCausalConfig, list_layer_masks
from specjax.runtime.errors import UserError


def read(inside: dict[str, Any] | None = None, **changes: Any) -> DFlashCausalConfig:
    """The shape of the golden configuration with other fields, also in `dflash_config`."""
    hf = words("dflash") | changes
    if inside:
        hf["dflash_config"] = (hf["dflash_config"] or {}) | inside
    return parse_config("it", hf, None, jnp.float32)[1]


def test_what_a_configuration_says_is_computed() -> None:
    config = read()
    assert config.family == "dflash" and config.qk_norm and config.layers == 2
    assert config.features == (2, 4, 5) and config.mask_token == 93 and config.block_size == 5
    assert not config.embedded and not config.headed and config.target_depth == 7
    # Newer files have the block in the nested object; the order of layers is the matrix's.
    config = read({"target_layer_ids": [4, 1]}, block_size=None)
    assert config.features == (5, 2) and config.block_size == 16
    assert read({"block_size": 8}, block_size=None).block_size == 8
    assert read(attention_bias=True).out_bias


@pytest.mark.parametrize(
    ("depth", "count", "ids"),
    [
        (36, 5, [1, 9, 17, 25, 33]),  # z-lab/Qwen3-8B-DFlash-b16
        (32, 5, [1, 8, 15, 22, 29]),  # z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat
        (36, 1, [18]),
    ],
)
def test_layers_that_are_not_named_are_at_equal_distances(
    depth: int, count: int, ids: list[int]
) -> None:
    said = {"num_target_layers": depth, "num_hidden_layers": count, "layer_types": None}
    config = read({"target_layer_ids": None}, **said)
    assert config.features == tuple(number + 1 for number in ids)


REFUSED = [
    (
        {},
        {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": None},
        "layer_types is .*; layers that slide need sliding_window",
    ),
    ({"causal": True}, {"is_causal": False}, "is_causal is False and causal is True; .* agree"),
    ({"selector_rank": 8, "markov_rank": 8}, {}, "markov_rank is 8 and selector_rank is 8; .* one"),
    ({"markov_rank": 8}, {"markov_rank": 4}, "markov_rank is 4 and 8 in dflash_config; .* agree"),
    ({"conv_kernel_size": 2, "conv_group_size": 7}, {}, "conv_group_size is 7; it must divide"),
    ({"mask_token_id": None}, {}, "mask_token_id is None; it must be an id of the target, from 0"),
    ({"mask_token_id": 96}, {}, "mask_token_id is 96; .* from 0 to 95"),
    ({"block_size": 8}, {}, "block_size is 5 and 8 in dflash_config; both name the same field"),
    ({"target_layer_ids": [1, 1]}, {}, "target_layer_ids is .1, 1.; it must be a list of differ"),
    ({"target_layer_ids": [1, 6]}, {}, "is .1, 6.; of 7 layers they must be at most 5"),
    ({"target_layer_ids": None}, {"num_target_layers": None}, "target_layer_ids is None; it must"),
    ({}, {"dflash_config": [93]}, "dflash_config is .93.; it must be an object, or null"),
    ({}, {"model_type": "llama4"}, "model_type is 'llama4'; it must be one of qwen3"),
    ({}, {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type is 'dynamic'"),
]


@pytest.mark.parametrize(("inside", "changes", "sentence"), REFUSED)
def test_what_is_not_computed_is_refused(inside, changes, sentence: str) -> None:
    with pytest.raises(UserError, match=f"it cannot be used: .*{sentence}"):
        read(inside, **changes)


def test_other_architectures_are_not_taken_for_it() -> None:
    with pytest.raises(UserError, match="is .'DFlashLagunaModel'.: a drafter of the format DF"):
        read(architectures=["DFlashLagunaModel"])


def test_fields_say_the_convention_of_places_and_who_sees_whom() -> None:
    """Nothing in the tensors does: a wrong reading is lossless and useless."""
    window = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
    window["use_sliding_window"] = True
    assert not read().anchor_first and read().is_causal is False
    assert read(markov_rank=0).anchor_first
    assert read({"projector_type": "dspark", "markov_rank": 8}).anchor_first
    assert read({"shift_label": True, "gru_hidden_dim": 8}).anchor_first
    assert read({"causal_head": True}).is_causal is True
    slides = read(**window)  # z-lab's class: layers with a window are causal, others are not
    assert slides.windows == (4, 0) and list_layer_masks(slides) == ((True, 4), (False, 0))
    assert list_layer_masks(read(**window, is_causal=False)) == ((False, 4), (False, 0))
    scaled = read({"output_multiplier": 0.2, "final_logit_softcapping": 20.0})
    assert scaled.logit_multiplier == 0.2 and scaled.logit_limit == 20.0


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (without("fc.weight"), "lacks the tensor 'fc.weight'"),
        (without("layers.1.self_attn.q_norm.weight"), "lacks the tensor 'layers.1.self_attn.q_no"),
        (lambda t: t | {"other.weight": t["norm.weight"]}, "'other.weight' .* has no place"),
        (
            lambda t: t | {"fc.weight": np.ascontiguousarray(t["fc.weight"][:, :48])},
            r"'fc.weight' .* shape \(24, 48\), config.json requires \(24, 72\)",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_refused(change, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        load(edit_drafter(tmp_path / "it", "dflash", change))


def test_pickled_weights_are_refused(tmp_path: Path) -> None:
    folder = edit_drafter(tmp_path / "it", "dflash")
    (folder / SINGLE).rename(folder / "pytorch_model.bin")
    with pytest.raises(UserError, match=r"has pytorch_model.bin .* reads safetensors only"):
        load(folder)


def test_an_export_stores_what_was_read(tmp_path: Path, capsys) -> None:
    source, out = str(GOLDEN / "dflash"), tmp_path / "out"
    assert exporting.main(["export", source, str(out), "--layout=dflash"]) == 0
    assert "in the layout of dflash" in capsys.readouterr().out
    found, again = load(source), load(out)
    assert again.model == found.model
    jax.tree.map(np.testing.assert_array_equal, again.params, found.params)
    stored, original = (load_file(Path(at) / SINGLE) for at in (out, source))
    assert stored.keys() == original.keys()
    for name, tensor in original.items():
        np.testing.assert_array_equal(stored[name], tensor, err_msg=name)


def test_a_drafter_for_a_target_is_exported_without_what_is_the_targets(tmp_path: Path) -> None:
    """As training makes it: its shape from the target, with the target's tables in its tree."""
    given = PublishedDFlash().get_target_fields(TARGETS["llama"])
    shape = given | {"mask_token_id": 4, "block_size": 4}
    config = parse_config("it", shape, None, jnp.float32)[1]
    assert config.features == (1,) and config.target_depth == 2
    model, params = draw_weights(DFlash(config), IDS)
    assert set(model.frozen_names) == {"embedding", "ids", "head"} and "mask" not in params
    huggingface.save(tmp_path / "it", model, params)
    again = load(tmp_path / "it")
    assert config.eos == (1,)  # which a published file does not say
    assert again.model.config == dataclasses.replace(config, eos=(), pad=0)
    kept = {name: tree for name, tree in params.items() if name not in model.frozen_names}
    jax.tree.map(np.testing.assert_array_equal, again.params, kept)


def test_drafters_with_masks_of_their_own_are_not_exported() -> None:
    model, params = without_encoder(12, 16, (1, 2), IDS, None, kind=DFlash)
    with pytest.raises(UserError, match="model_type is 'dflash_llama'; .* one of dflash, "):
        exporting.in_layout(model, params, "dflash")


@pytest.mark.slow
@pytest.mark.parametrize("kind", CORRECTIONS)
@pytest.mark.parametrize("anchor_first", [False, True])
@pytest.mark.parametrize("family", ["dflash", "dflash_llama"])
def test_a_correction_is_written_and_read_again(family, kind, anchor_first, tmp_path) -> None:
    """In the published layout and in that of drafters which are made here."""
    correction = CORRECTIONS[kind]
    if correction.confidence:
        correction = dataclasses.replace(correction, temperatures=(1.5, 0.8))
    changes = {"correction": correction, "anchor_first": anchor_first}
    if kind == "selector":
        changes["convolution"] = Convolution(2, 8)
    model, _ = without_encoder(96, 16, (1, 2), tuple(range(96)), None, kind=DFlash, **changes)
    shape = dataclasses.replace(
        model.config, family=family, qk_norm=True, eos=(), pad=0, start_token=None
    )
    if family == "dflash":
        published = {"embedded": False, "headed": False, "mask_token": 93, "target_depth": 4}
        shape = dataclasses.replace(shape, target_width=8, **published)
    model, params = draw_weights(DFlash(shape), tuple(range(96)))
    huggingface.save(tmp_path / "it", model, params)
    again = load(tmp_path / "it")
    assert again.model.config == shape
    jax.tree.map(np.testing.assert_array_equal, again.params["corrector"], params["corrector"])
    for layer in ("layers_0", "layers_1"):
        jax.tree.map(np.testing.assert_array_equal, again.params[layer], params[layer])
