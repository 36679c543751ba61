"""Drafters in the layout of vLLM's speculators: what is read, refused, and written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drafter_files import ENTRIES, draw_tensors, write_checkpoint
from published import SINGLE, edit_drafter, words
from safetensors.numpy import load_file

from specjax.hf.export import export
from specjax.hf.huggingface import load, parse_config
from specjax.models.dflash import DFlashCausalConfig
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


def move_mask(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
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
        (move_mask, r"has a 't2d' whose id number 0 is \d+; it must be \d+, that of its drafter"),
        (fewer, "has a 't2d' that selects 39 ids; its drafter has 40"),
    ],
)
def test_both_tensors_of_a_reduced_vocabulary_must_agree(change, sentence, tmp_path: Path) -> None:
    assert load(edit_drafter(tmp_path / "same", EAGLE3), jnp.float32).model.config.draft_vocab == 40
    with pytest.raises(UserError, match=sentence):
        load(edit_drafter(tmp_path / "it", EAGLE3, change))


def block_entry(name: str, **changes: Any) -> dict[str, Any]:
    """A block drafter of the table of published ones with other fields."""
    entry = next(entry for entry in ENTRIES if entry["name"] == name)
    return {**entry, "config": entry["config"] | changes}


BLOCKS = {
    "dflash": "RedHatAI/Qwen3-8B-speculator.dflash",
    "dspark": "RedHatAI/Qwen3.6-35B-A3B-speculator.dspark",
    "dflash2": "DFlash 2 of speculators for Qwen3-4B",
}


def read_blocks(kind: str, **changes: Any) -> DFlashCausalConfig:
    return parse_config("it", block_entry(BLOCKS[kind], **changes)["config"], None, jnp.float32)[1]


def without_field(kind: str, name: str) -> DFlashCausalConfig:
    config = dict(block_entry(BLOCKS[kind])["config"])
    del config[name]
    return parse_config("it", config, None, jnp.float32)[1]


def write_old_file(tokens: int) -> dict[str, Any]:
    """A file that is older than the field about the anchor's place."""
    proposal = {"proposal_methods": [{"speculative_tokens": tokens}]}
    return {"sample_from_anchor": None, "speculators_config": proposal}


def test_fields_that_a_file_leaves_out_have_the_layouts_defaults() -> None:
    assert without_field("dflash", "block_size").block_size == 8
    assert without_field("dflash", "draft_vocab_size").draft_vocab == 96
    correction = without_field("dspark", "markov_rank").correction
    assert correction is not None and correction.rank == 256 and correction.confidence
    # Causal where layers have windows, but not in DFlash 2's class.
    assert without_field("dspark", "sliding_window_non_causal").is_causal is None
    assert read_blocks("dflash2").is_causal is False and read_blocks("dflash2").windows
    assert read_blocks("dspark", sliding_window_non_causal=True).is_causal is False


def test_files_without_the_field_begin_with_a_mask_unless_they_propose_a_whole_block() -> None:
    """Wrongly read, such drafters lose most of their acceptance without an error."""
    assert without_field("dspark", "sample_from_anchor").anchor_first
    assert not read_blocks("dspark", **write_old_file(5)).anchor_first
    assert read_blocks("dspark", **write_old_file(6)).anchor_first
    assert not read_blocks("dflash", **write_old_file(6)).anchor_first
    assert not read_blocks("dspark", sample_from_anchor=False).anchor_first


def test_a_window_as_large_as_the_classs_default_is_not_in_the_file() -> None:
    layer = dict(block_entry(BLOCKS["dspark"])["config"]["transformer_layer_config"])
    del layer["sliding_window"]
    assert read_blocks("dspark", transformer_layer_config=layer).windows == (4096, 4096)
    later = layer | {"layer_types": None, "max_window_layers": 1}
    assert read_blocks("dspark", transformer_layer_config=later).windows == (0, 4096)


REFUSED = [
    ("dflash", {"aux_hidden_state_layer_ids": [4, 2]}, "ids is .4, 2.; it must be a rising list"),
    ("dflash", {"aux_hidden_state_layer_ids": [0, 2]}, "ids is .0, 2.; it must be a rising list"),
    ("dflash", {"aux_hidden_state_layer_ids": None}, "ids is None; it must be a rising list"),
    ("dflash", {"mask_token_id": None}, "mask_token_id is None; it must be an id of the target"),
    ("dflash", {"draft_vocab_size": 97}, "draft_vocab_size is 97; it must be at most vocab_size"),
    ("dflash", {"target_hidden_size": 48}, "target_hidden_size is 48; it must be null or hidden"),
    ("dflash", {"markov_rank": 8}, "markov_rank is 8; specjax does not know what this field"),
    ("dflash", {"transformer_layer_config": None}, "transformer_layer_config is None; it must be"),
    ("dspark", {"markov_rank": 0}, "enable_confidence_head is true; it must be false in a drafter"),
    (
        "dspark",
        {"confidence_temperatures": [1.0, 0]},
        "temperatures is .1.0, 0.; it must be a list",
    ),
    (
        "dspark",
        {"enable_confidence_head": False, "confidence_temperatures": [2.0]},
        "confidence_temperatures is .2.0.; it must be empty without enable_confidence_head",
    ),
    ("dspark", {"markov_head_type": "gru"}, "markov_head_type is 'gru'; it must be one of vanilla"),
    ("dflash2", {"sample_from_anchor": True}, "sample_from_anchor is True; it must be false"),
    ("dflash2", {"draft_vocab_size": 40}, "draft_vocab_size is 40; it must be vocab_size, 96"),
    ("dflash2", {"selector_rank": None}, "selector_rank is None; it must be an integer from 1"),
]


@pytest.mark.parametrize(("kind", "changes", "sentence"), REFUSED)
def test_blocks_that_are_not_computed_are_refused(kind: str, changes, sentence: str) -> None:
    with pytest.raises(UserError, match=f"it cannot be used: .*{sentence}"):
        read_blocks(kind, **changes)


LACKING = [
    ("d2t", "lacks the tensor 'd2t', which maps its 40 ids"),
    ("lm_head.weight", "lacks the tensor 'lm_head.weight', the output layer of its 40 ids"),
    ("markov_head.markov_w2.weight", "lacks the tensor 'markov_head.markov_w2.weight'"),
]


@pytest.mark.parametrize(("name", "sentence"), LACKING)
def test_tensors_of_a_reduced_vocabulary_must_be_there(name, sentence, tmp_path: Path) -> None:
    entry = block_entry(BLOCKS["dspark"])
    tensors = {one: tensor for one, tensor in draw_tensors(entry).items() if one != name}
    with pytest.raises(UserError, match=sentence):
        load(write_checkpoint(tmp_path / "it", entry, tensors=tensors))


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_are_stored_as_they_were_read(kind: str, tmp_path: Path) -> None:
    source, out = write_checkpoint(tmp_path / "it", block_entry(BLOCKS[kind])), tmp_path / "out"
    export(source, out, "speculators")
    found, again = load(source), load(out)
    assert again.model == found.model and again.model.config.target_name
    jax.tree.map(np.testing.assert_array_equal, again.params, found.params)
    stored, original = (load_file(folder / SINGLE) for folder in (out, source))
    assert stored.keys() == original.keys()
    for name, tensor in original.items():
        np.testing.assert_array_equal(stored[name], tensor, err_msg=name)


TO_SPECULATORS = [
    "z-lab/Qwen3-8B-DFlash-b16",
    "z-lab/Qwen3.6-35B-A3B-DFlash, from June 2026",
    "deepseek-ai/dspark_qwen3_4b_block7",
    "deepseek-ai/dflash_qwen3_4b_block7",
    "incoai/Qwen3.8-27B-DFlash2",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", TO_SPECULATORS)
def test_a_drafter_of_another_layout_is_written_in_this_one(name: str, tmp_path: Path) -> None:
    """And back, where the target's embedding and output layer stay the target's."""
    source, there, back = (tmp_path / part for part in ("source", "there", "back"))
    export(write_checkpoint(source, block_entry(name)), there, "speculators", target="acme/target")
    export(there, back, "dflash")
    found, again = load(source), load(there)
    fields = ("anchor_first", "is_causal", "windows", "features", "correction", "convolution")
    for field in fields:
        assert getattr(again.model.config, field) == getattr(found.model.config, field), field
    assert again.model.config.target_name == "acme/target"
    for other in (again, load(back)):
        jax.tree.map(np.testing.assert_array_equal, other.params, found.params)


NOT_WRITTEN = [
    ("SpecForge Qwen3-8B Domino", "speculators", "gru_hidden_dim is .*: the layout has no such"),
    ("JetSpec/jetspec-qwen3-8b", "speculators", "is_causal is True; .* must be false: in layers"),
    (BLOCKS["dflash"], "dflash", "embed_tokens is 'its own'; .* must be the target's"),
]


@pytest.mark.parametrize(("name", "layout", "sentence"), NOT_WRITTEN)
def test_what_a_layout_cannot_say_is_refused(name, layout, sentence, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        export(write_checkpoint(tmp_path / "it", block_entry(name)), tmp_path / "out", layout)
