"""Fields of `config.json` by transformers' declarations: read, or ignored and named in one note."""

from __future__ import annotations

import ast
import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
import transformers
from transformers import CONFIG_MAPPING, GenerationConfig, PreTrainedConfig

import specjax
from specjax.contracts.registry import FAMILIES
from specjax.hf.families import (
    canary,
    conformer,
    generation,
    pix2struct,
    schema,
    t5gemma,
    t5gemma2,
    vision,
    vision_encoders,
)
from specjax.hf.families.layer_types import WINDOWS
from specjax.hf.families.schema import ConfigDeclaration, collect_ignored, read_declared
from specjax.hf.families.text_parts import NO_WINDOWS
from specjax.hf.huggingface import parse_config
from specjax.runtime.errors import UserError

CODE = Path(transformers.__file__).parent
GOLDEN = Path(__file__).parents[2] / "golden"
GOLDEN_MODELS = sorted({path.parent.name for path in GOLDEN.glob("*/config.json")} - {"medusa"})
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}

SCHEMAS = {name: entry.cls.schema for name, entry in FAMILIES.items() if name in CONFIG_MAPPING} | {
    "t5_gemma_module": t5gemma.STACK,
    "t5gemma2_text": t5gemma2.STACK,
    "t5gemma2_decoder": t5gemma2.STACK,
    "t5gemma2_encoder": t5gemma2.ENCODER,
    **{name: vision_encoders.ENCODERS[name].schema for name in ("vit", "deit")},
    "canary_decoder": canary.DECODER,
    "parakeet_encoder": conformer.ENCODER,
    "pix2struct_text_model": pix2struct.TEXT,
    "pix2struct_vision_model": pix2struct.VISION,
    "trocr": vision.DECODERS["trocr"],
    "qwen2_5_vl_text": FAMILIES["qwen2"].cls.schema,
    "qwen3_vl_text": FAMILIES["qwen3"].cls.schema.without(*(NO_WINDOWS - {*WINDOWS})),
}
"""By the model type of the class that declares the fields."""

SHARED_CODE = (
    "cache_utils",
    "configuration_utils",
    "masking_utils",
    "modeling_rope_utils",
    "modeling_utils",
    "models.auto.auto_factory",
    "models.auto.tokenization_auto",
    "quantizers.auto",
)
"""Modules of transformers that read fields of every family."""


def write_config(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / name / "config.json").read_text("utf-8"))


def read_ignored(hf: Mapping[str, Any], generation: Mapping[str, Any] | None = None) -> Any:
    """The shape, and the ignored fields by their file."""
    with collect_ignored() as ignored:
        _, config = parse_config("config.json", dict(hf), generation, jnp.float32)
    return config, ignored


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("llama", {"unk_token_id": 0, "transformers.js_config": {"dtype": "q8"}}),
        ("mistral", {"attention_bias": True}),
        ("qwen2", {"use_mrope": False, "unsloth_fixed": True}),
        ("gemma2", {"sliding_window_size": 4096, "hidden_act": "gelu"}),
        ("phi3", {"full_attn_mod": 1}),
        ("gpt_neox", {"rope_theta": 500.0}),
        ("gpt2", {"_num_labels": 1, "n_ctx": 1024}),
        ("bart", {"normalize_embedding": False, "student_decoder_layers": None}),
        ("t5_v1_1", {"n_positions": 512, "task_specific_params": {}}),
    ],
)
def test_what_the_class_does_not_declare_changes_nothing_and_is_named(name, changes) -> None:
    plain, _ = read_ignored(write_config(name))
    config, ignored = read_ignored(write_config(name) | changes)
    assert config == plain
    assert ignored["config.json"][-len(changes) :] == list(changes)


def test_a_field_of_a_part_is_named_with_the_part() -> None:
    for name in ("t5gemma", "t5gemma2"):
        halves = write_config(name)
        halves["decoder"]["no_such_field"] = 1
        assert "decoder.no_such_field" in read_ignored(halves)[1]["config.json"]
    text = {k: v for k, v in write_config("gemma3_text").items() if k != "tie_word_embeddings"}
    whole = {"model_type": "gemma3", "text_config": text | {"no_such_field": 1}}
    assert "text_config.no_such_field" in read_ignored(whole)[1]["config.json"]


def test_a_scaling_is_read_as_far_as_transformers_knows_it() -> None:
    """Published YaRN may have the temperature of DeepSeek's code, and factors of nought."""
    more = {"attn_factor": 1.0, "mscale": 1.0, "mscale_all_dim": 0.0}
    plain, _ = read_ignored(write_config("llama") | {"rope_scaling": YARN})
    config, ignored = read_ignored(write_config("llama") | {"rope_scaling": YARN | more})
    assert config == plain
    assert "rope_scaling.attn_factor" in ignored["config.json"]
    with pytest.raises(UserError, match="mscale is -1"):
        read_ignored(write_config("llama") | {"rope_scaling": YARN | {"mscale": -1}})


def test_a_setting_that_transformers_does_not_declare_is_ignored() -> None:
    plain, none = read_ignored(write_config("llama"), {"eos_token_id": 1})
    config, ignored = read_ignored(write_config("llama"), {"eos_token_id": 1, "no_such_setting": 3})
    assert config == plain and "generation_config.json" not in none
    assert ignored["generation_config.json"] == ["no_such_setting"]


def test_an_old_word_forces_the_first_token_where_transformers_reads_it() -> None:
    old = {"force_bos_token_to_be_generated": True, "bos_token_id": 3}
    forced = {"bos_token_id": 3, "forced_bos_token_id": 3}
    assert generation.generation_fields(old, None) == forced
    assert generation.generation_fields({}, old | {"_from_model_config": True}) == forced
    assert generation.generation_fields({}, old) == {"bos_token_id": 3}


def test_a_load_names_all_of_them_in_one_line(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(GOLDEN / "llama", folder)
    specjax.load(folder)
    assert "ignored" not in capsys.readouterr().out
    more = {"unk_token_id": 0, "transformers.js_config": {}, "a\nb": 1, "c" * 300: 1}
    (folder / "config.json").write_text(json.dumps(write_config("llama") | more), "utf-8")
    (folder / "generation_config.json").write_text('{"chat_format": "x"}', "utf-8")
    specjax.load(folder)
    note = (
        f"model {str(folder)!r}: ignored in config.json: unk_token_id, transformers.js_config, a b,"
        " [...]; ignored in generation_config.json: chat_format\n"
    )
    assert capsys.readouterr().out == note


@pytest.mark.parametrize(
    ("name", "in_config", "in_generation", "blamed"),
    [
        ("llama", {}, {"eos_token_id": -1}, "generation_config.json"),
        ("llama", {}, {"pad_token_id": "x"}, "generation_config.json"),
        ("llama", {"pad_token_id": "x"}, {}, "config.json"),
        ("llama", {}, {"num_beams": 0}, "generation_config.json"),
        ("llama", {}, {"penalty_alpha": 0.5}, "generation_config.json"),
        ("llama", {"penalty_alpha": 0.5}, None, "config.json"),
        ("llama", {"hidden_act": "odd"}, {}, "config.json"),
        ("t5_v1_1", {}, {"decoder_start_token_id": None}, "generation_config.json"),
        ("t5_v1_1", {"decoder_start_token_id": None, "bos_token_id": None}, None, "config.json"),
        ("whisper", {}, {"forced_decoder_ids": 3}, "generation_config.json"),
        ("whisper", {"forced_decoder_ids": 3}, {"decoder_start_token_id": 1}, "config.json"),
        ("whisper", {}, {"lang_to_id": 3}, "generation_config.json"),
    ],
)
def test_a_bad_value_is_blamed_on_the_file_that_has_it(
    name, in_config, in_generation, blamed
) -> None:
    with pytest.raises(UserError) as caught:
        read_ignored(write_config(name) | in_config, in_generation)
    assert str(caught.value).startswith(f"{blamed} cannot be used: ")


def test_a_setting_of_a_file_is_blamed_on_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    shutil.copytree(GOLDEN / "llama", folder)
    (folder / "generation_config.json").write_text('{"min_length": -1}', "utf-8")
    with pytest.raises(UserError, match=r"generation_config\.json: min_length is -1"):
        specjax.load(folder)
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text(
        json.dumps(write_config("llama") | {"min_length": -1}), "utf-8"
    )
    with pytest.raises(UserError, match=r"/config\.json: min_length is -1"):
        specjax.load(folder)
    with pytest.raises(UserError, match="llama: min_length is -2"):
        specjax.load(folder, generation={"min_length": -2})


def test_a_declared_field_that_nobody_reads_must_be_at_its_default() -> None:
    known = schema.Schema({}, source=ConfigDeclaration({"depth": 2}))
    schema.read(known, {"depth": 2, "other": 1})
    with pytest.raises(ValueError, match="depth is 3; specjax does not know what"):
        schema.read(known, {"depth": 3})


def test_without_a_class_a_field_that_is_not_listed_is_refused() -> None:
    with pytest.raises(ValueError, match="other is 1; specjax does not know what"):
        schema.read(schema.Schema({}), {"other": 1})


@functools.cache
def tree(module: str) -> ast.Module:
    """The syntax of a module of transformers, which needs no PyTorch to be read."""
    return ast.parse((CODE / f"{module.replace('.', '/')}.py").read_text("utf-8"))


def words(module: str) -> set[str]:
    """Names of all attributes, and all strings."""
    nodes = list(ast.walk(tree(module)))
    strings = {node.value for node in nodes if isinstance(node, ast.Constant)}
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)} | strings


def read_of(name: str, module: str) -> set[str]:
    """Names of the fields that a module reads of what it calls `name`, without private ones."""
    found = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Attribute) and _is_called(name, node.value):
            found.add(node.attr)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("getattr", "hasattr"):
            of, field = node.args[:2]
            if _is_called(name, of) and isinstance(field, ast.Constant):
                found.add(field.value)
    return {field for field in found if not field.startswith("_")}


def _is_called(name: str, node: ast.expr) -> bool:
    return name in (getattr(node, "id", ""), getattr(node, "attr", ""))


def folder(model_type: str) -> str:
    """Where the class of a model type is."""
    return CONFIG_MAPPING[model_type].__module__.split(".")[2]


SIDES = {"vision_encoder_decoder": ("vit", "trocr")}
"""Whose fields a model reads that is made of two others."""


def list_fields(model_type: str) -> set[str]:
    one = SCHEMAS[model_type]
    return {*one.fields, *one.aliases, *one.harmless, *generation.GENERATION}


@pytest.mark.parametrize("name", sorted({folder(model_type) for model_type in SCHEMAS}))
def test_what_a_model_reads_without_a_declaration_is_read_here(name: str) -> None:
    """Such as `head_dim` of Qwen2, and T5's `dense_act_fn`."""
    types = [model_type for model_type in SCHEMAS if folder(model_type) == name]
    parts = [part for part in CONFIG_MAPPING if folder(part) == name]  # such as what sees
    known = set(dir(PreTrainedConfig)).union(
        *(read_declared(model_type).defaults for model_type in types + parts),
        *(CONFIG_MAPPING[model_type].attribute_map for model_type in types),
        *(list_fields(model_type) for model_type in (*types, *SIDES.get(name, ()))),
    )
    assert not read_of("config", f"models.{name}.modeling_{name}") - known


def test_what_generation_reads_without_a_declaration_is_known_here() -> None:
    known = {*dir(GenerationConfig), *generation.GENERATION}
    assert not read_of("generation_config", "generation.utils") - known
    whisper = FAMILIES["whisper"].cls
    of_whisper = read_of("generation_config", "models.whisper.generation_whisper")
    assert "logprob_threshold" in of_whisper
    assert not of_whisper - known - {*whisper.generation, *whisper.neutral}


def test_whispers_thresholds_are_refused_and_others_do_not_read_them() -> None:
    said = json.loads((GOLDEN / "whisper" / "generation_config.json").read_text("utf-8"))
    with pytest.raises(UserError, match="logprob_threshold is -1.0, which no strategy applies"):
        read_ignored(write_config("whisper"), said | {"logprob_threshold": -1.0})
    read_ignored(write_config("whisper"), said | {"logprob_threshold": None})
    _, ignored = read_ignored(write_config("llama"), {"eos_token_id": 1, "logprob_threshold": -1.0})
    assert ignored["generation_config.json"] == ["logprob_threshold"]


def test_the_search_finds_what_models_read_without_a_declaration() -> None:
    found = read_of("config", "models.t5.modeling_t5") - set(read_declared("t5").defaults)
    assert {"dense_act_fn", "is_gated_act", "scale_decoder_outputs"} <= found
    assert "head_dim" in read_of("config", "models.qwen2.modeling_qwen2")
    assert "head_dim" not in read_declared("qwen2").defaults


OWN = {"led": {"global_tokens"}}
"""Fields of specjax for what callers of transformers give with every prompt."""


@pytest.mark.parametrize("model_type", sorted(SCHEMAS))
def test_what_is_read_here_is_declared_or_read_there(model_type: str) -> None:
    """So no list of words keeps a field that transformers does not look at."""
    one, name = SCHEMAS[model_type], folder(model_type)
    own = [f"models.{name}.{path.stem}" for path in (CODE / "models" / name).glob("*tion_*.py")]
    own.append(f"models.{name}.modeling_{name}")
    there = {*read_declared(model_type).defaults, *CONFIG_MAPPING[model_type].attribute_map}
    there = there.union(*map(words, (*own, *SHARED_CODE)), dir(CONFIG_MAPPING[model_type]))
    read = {*one.fields, *one.aliases, *one.harmless}
    assert read - there == OWN.get(model_type, set())


@pytest.mark.parametrize("model_type", sorted(SCHEMAS))
def test_other_names_of_fields_are_those_of_the_class(model_type: str) -> None:
    one = SCHEMAS[model_type]
    for alias, name in CONFIG_MAPPING[model_type].attribute_map.items():
        if not {alias, name} <= set(one.harmless):
            assert one.aliases.get(alias) == name or one.aliases.get(name) == alias


@pytest.mark.parametrize("name", GOLDEN_MODELS)
def test_an_export_has_no_field_that_is_ignored(name: str) -> None:
    family, config = parse_config("config.json", write_config(name), None, jnp.float32)
    assert not read_ignored(*family.config_to_hf(config))[1]


@pytest.mark.slow
def test_configurations_are_read_without_pytorch() -> None:
    words = json.dumps(write_config("llama") | {"unk_token_id": 0})
    script = f"""
import json, sys
sys.modules["torch"] = None
import jax.numpy as jnp
from specjax.hf.huggingface import parse_config
from specjax.hf.families.schema import collect_ignored
with collect_ignored() as ignored:
    parse_config("it", json.loads({words!r}), {{"odd": 1}}, jnp.float32)
print(ignored)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "'unk_token_id'" in done.stdout and "['odd']" in done.stdout, done.stderr
