"""A model that was loaded and is saved keeps the `config.json` that it was loaded from."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from safetensors.numpy import load_file, save_file
from transformers import AutoConfig

import specjax
from specjax.hf.export import export
from specjax.loading import LoadedModel

GOLDEN = Path(__file__).parents[1] / "golden"
UNDECLARED = {"unk_token_id": 3, "transformers.js_config": {"dtype": "q8", "kv": ["a", None]}}
NAMED = UNDECLARED | {"_name_or_path": "owner/name", "transformers_version": "4.40.0"}
READ = (
    "bart", "eagle3", "eagle3_speculators", "gemma3_text", "gpt2", "llama", "m2m_100", "marian_two",
    "mt5", "opt", "phi4", "qwen3_5_text", "qwen3_moe", "smollm3", "t5_v1_0", "t5gemma", "t5gemma2",
    "whisper",
)  # fmt: skip


def make_config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text("utf-8"))


def write_named(name: str, folder: Path, change: Any = lambda fields: fields) -> Path:
    """A golden checkpoint whose configuration has the NAMED fields and a change."""
    folder.mkdir()
    for file in (GOLDEN / name).glob("*.json"):
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "model.safetensors").write_bytes((GOLDEN / name / "model.safetensors").read_bytes())
    fields = change(make_config(GOLDEN / name) | NAMED)
    (folder / "config.json").write_text(json.dumps(fields), "utf-8")
    return folder


def save_and_read(loaded: LoadedModel, folder: Path) -> tuple[dict[str, Any], LoadedModel]:
    """The configuration that `save` writes, and what is read back."""
    loaded.save(folder)
    return make_config(folder), specjax.load(folder, loaded.model.config.dtype)


def with_shape(loaded: LoadedModel, **changes: Any) -> LoadedModel:
    shape = dataclasses.replace(loaded.model.config, **changes)
    return dataclasses.replace(loaded, model=type(loaded.model)(shape))


@pytest.mark.parametrize("name", READ)
def test_an_unchanged_model_keeps_its_configuration_to_the_last_field(
    name: str, tmp_path: Path
) -> None:
    folder = write_named(name, tmp_path / "in")
    loaded = specjax.load(folder)
    fields, again = save_and_read(loaded, tmp_path / "out")
    expected = make_config(folder)
    expected.pop("auto_map", None)  # the code that it names is not in the export
    if name == "t5gemma2":  # the tower is not saved
        expected["encoder"]["vision_config"] = fields["encoder"]["vision_config"]
    assert fields == expected
    assert again.model == loaded.model
    if name != "eagle3_speculators":  # a format of another library
        assert AutoConfig.from_pretrained(tmp_path / "out").unk_token_id == 3


@pytest.mark.parametrize("field", ["dtype", "torch_dtype"])
def test_the_dtype_is_that_of_the_weights_under_the_name_that_is_there(
    field: str, tmp_path: Path
) -> None:
    def rename_fields(fields: dict[str, Any]) -> dict[str, Any]:
        return {(field if name == "dtype" else name): value for name, value in fields.items()}

    folder = write_named("llama", tmp_path / "in", rename_fields)
    fields, _ = save_and_read(specjax.load(folder, jnp.bfloat16), tmp_path / "out")
    assert fields == make_config(folder) | {field: "bfloat16"}


def test_a_dtype_is_patched_in_the_configurations_of_parts(tmp_path: Path) -> None:
    def half(fields: dict[str, Any]) -> dict[str, Any]:
        return fields | {side: fields[side] | {"dtype": "float16"} for side in SIDES}

    folder = write_named("t5gemma", tmp_path / "in", half)
    fields, _ = save_and_read(specjax.load(folder), tmp_path / "out")
    assert [fields[side]["dtype"] for side in SIDES] == ["float32"] * 2


SIDES = ("encoder", "decoder")
ALIASES = {"n_layer": "num_hidden_layers", "n_embd": "hidden_size", "n_head": "num_attention_heads"}


def test_a_changed_field_keeps_the_other_name_that_it_has(tmp_path: Path) -> None:
    def rename_fields(fields: dict[str, Any]) -> dict[str, Any]:
        return {ALIASES.get(name, name): value for name, value in fields.items()}

    folder = write_named("gpt2", tmp_path / "in", rename_fields)
    shorter = with_shape(specjax.load(folder), num_layers=1)
    fields, again = save_and_read(shorter, tmp_path / "out")
    assert fields == make_config(folder) | {"num_hidden_layers": 1}
    assert again.model == shorter.model
    assert AutoConfig.from_pretrained(tmp_path / "out").n_layer == 1


def test_a_field_of_one_side_is_patched_inside_of_it(tmp_path: Path) -> None:
    folder = write_named(
        "t5gemma",
        tmp_path / "in",
        lambda fields: fields | {"decoder": fields["decoder"] | {"note": "kept"}},
    )
    loaded = specjax.load(folder)
    decoder = dataclasses.replace(loaded.model.config.decoder, softcap=3.0)
    changed = with_shape(loaded, decoder=decoder)
    fields, again = save_and_read(changed, tmp_path / "out")
    expected = make_config(folder)
    expected["decoder"]["attn_logit_softcapping"] = 3.0
    assert fields == expected
    assert again.model == changed.model


def test_an_untied_head_is_written_with_what_depended_on_it(tmp_path: Path) -> None:
    """A T5 scales its outputs where they are tied, unless a field of its own says so."""

    def silent(fields: dict[str, Any]) -> dict[str, Any]:
        return {name: fields[name] for name in fields if name != "scale_decoder_outputs"}

    folder = write_named("t5_v1_0", tmp_path / "in", silent)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["shared.weight"] * 2
    save_file(tensors, folder / "model.safetensors")
    loaded = specjax.load(folder)
    fields, again = save_and_read(loaded, tmp_path / "out")
    own = {"tie_word_embeddings": False, "scale_decoder_outputs": True}
    assert fields == make_config(folder) | own
    assert again.model == loaded.model


def test_weights_that_are_written_whole_are_not_said_to_be_quantized(tmp_path: Path) -> None:
    loaded = specjax.load(write_named("llama", tmp_path / "in"))
    packed = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    fields = {**loaded.original_config, **packed}
    kept, again = save_and_read(
        dataclasses.replace(loaded, original_config=fields), tmp_path / "out"
    )
    assert kept == make_config(tmp_path / "in")
    assert again.model == loaded.model


def test_the_text_part_is_saved_with_what_its_part_and_the_whole_said(tmp_path: Path) -> None:
    def whole(fields: dict[str, Any]) -> dict[str, Any]:
        text = {name: fields[name] for name in fields if name not in {*NAMED, "architectures"}}
        outside = {
            "architectures": ["Gemma3ForConditionalGeneration"],
            "model_type": "gemma3",
            "tie_word_embeddings": text.pop("tie_word_embeddings"),
            "boi_token_index": 7,
            "vision_config": {"model_type": "siglip_vision_model"},
            "dtype": text.pop("dtype"),
        }
        return NAMED | outside | {"text_config": text | {"note": "kept"}}

    loaded = specjax.load(write_named("gemma3_text", tmp_path / "in", whole))
    fields, again = save_and_read(loaded, tmp_path / "out")
    assert fields == make_config(GOLDEN / "gemma3_text") | NAMED | {"note": "kept"}
    assert again.model == loaded.model


def test_where_no_patch_gives_the_shape_undeclared_fields_are_kept(tmp_path: Path) -> None:
    """The base of a rotation inside of `rope_parameters` wins over the field beside it."""
    folder = write_named("llama", tmp_path / "in")
    loaded = specjax.load(folder)
    rope = dataclasses.replace(loaded.model.config.rope, theta=77.0)
    changed = with_shape(loaded, rope=rope)
    fields, again = save_and_read(changed, tmp_path / "out")
    assert "rope_parameters" not in fields and fields.items() >= UNDECLARED.items()
    assert again.model == changed.model
    assert AutoConfig.from_pretrained(tmp_path / "out").rope_parameters["rope_theta"] == 77.0


def test_a_model_of_another_family_has_a_configuration_of_its_own(tmp_path: Path) -> None:
    loaded = specjax.load(write_named("llama", tmp_path / "in"))
    fields, again = save_and_read(with_shape(loaded, family="mistral"), tmp_path / "out")
    assert fields["model_type"] == "mistral" and not fields.keys() & UNDECLARED.keys()
    assert again.model.config.family == "mistral"


def test_a_drafter_keeps_its_fields_in_its_own_layout_only(tmp_path: Path) -> None:
    export(write_named("dflash", tmp_path / "dflash"), tmp_path / "same", "dflash")
    assert make_config(tmp_path / "same").items() >= UNDECLARED.items()
    export(write_named("eagle3_speculators", tmp_path / "eagle"), tmp_path / "other", "speculators")
    assert not make_config(tmp_path / "other").keys() & UNDECLARED.keys()
