"""Over a hundred published drafters: each loads whole, or is refused for a true reason."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drafter_files import (
    BLOCKS,
    ENTRIES,
    READ,
    REFUSED,
    TARGET,
    draw_tensors,
    layer_words,
    target_params,
    write_checkpoint,
)
from slow_cases import some_slow

import specjax
from specjax.experiments.pairs import describe_pair
from specjax.hf import heads
from specjax.hf.huggingface import parse_config
from specjax.models.dflash import DFlash
from specjax.models.eagle import Eagle
from specjax.models.shapes import get_parameter_shapes
from specjax.models.target_shapes import complete_params
from specjax.runtime.errors import UserError

MODELS = [entry for entry in READ if entry["tensors"] != "medusa"]
TABLES = [entry for entry in READ if entry["tensors"] == "medusa"]


def get_name(entry) -> str:
    return entry["name"].replace("/", ":")


def test_there_are_as_many_as_promised() -> None:
    assert len(READ) >= 105 and len({entry["name"] for entry in ENTRIES}) == len(ENTRIES) >= 142
    assert {entry["source"] for entry in ENTRIES} == {"published", "exporter"}


@pytest.mark.parametrize("entry", some_slow(MODELS, *MODELS[::3]), ids=get_name)
def test_a_drafter_loads(entry, tmp_path: Path) -> None:
    layer = layer_words(entry["config"])
    found = specjax.load(write_checkpoint(tmp_path / "it", entry))
    shape = found.model.config
    is_block = entry["tensors"] in BLOCKS
    assert isinstance(found.model, DFlash if is_block else Eagle)
    assert shape.d_model == layer["hidden_size"] and shape.eps == layer["rms_norm_eps"]
    assert shape.num_heads == layer["num_attention_heads"]
    assert shape.layers == (layer["num_hidden_layers"] if is_block else 1)
    for name, value in entry.get("shape", {}).items():
        assert getattr(shape, name) == (tuple(value) if isinstance(value, list) else value), name
    stored = draw_tensors(entry)
    fused = stored.get("fc.weight", stored.get("model.fc.weight"))
    np.testing.assert_array_equal(found.params["fuse"]["kernel"], fused.T)
    if not is_block:
        drafted = len(stored.get("lm_head.weight", stored.get("model.lm_head.weight")))
        assert shape.draft_vocab == drafted and shape.read == 3
    adapted = found.model.adapt_to(TARGET)
    params = complete_params(adapted.config, found.params, target_params())
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(jnp.shape, get_parameter_shapes(adapted))


@pytest.mark.parametrize("entry", TABLES, ids=get_name)
def test_heads_load(entry, tmp_path: Path) -> None:
    loaded = heads.load(write_checkpoint(tmp_path / "it", entry))
    assert loaded.heads.count == entry["config"]["medusa_num_heads"]
    with pytest.raises(UserError, match="Medusa's heads, which are a table .*heads.load reads"):
        specjax.load(tmp_path / "it")


@pytest.mark.parametrize("entry", REFUSED, ids=get_name)
def test_what_is_not_read_is_refused_in_a_sentence(entry, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"cannot be used: .*{entry['refused']}") as refused:
        specjax.load(write_checkpoint(tmp_path / "it", entry))
    assert "\n" not in str(refused.value)


def make_config(name: str, **changes) -> dict:
    entry = next(entry for entry in ENTRIES if entry["name"] == name)
    return {**entry, "config": entry["config"] | changes}


NOTES = [
    ("SpecForge Qwen3.5-35B-A3B EAGLE-3", "decoder_sparse_step"),
    ("RedHatAI/Qwen3-30B-A3B-Instruct-2507-speculator.eagle3", "base_model_ep_plan"),
    ("AngelSlim Qwen2.5-7B EAGLE-3", "use_mrope"),
    ("AngelSlim Qwen3-4B DFlash", "attention_backend loss_decay_gamma num_anchors"),
]


def ignored(out: str) -> set[str]:
    """The fields that the only line of what was printed names."""
    (line,) = out.splitlines()
    return set(line.partition(": ignored in config.json: ")[2].split(", "))


@pytest.mark.parametrize(("name", "fields"), NOTES)
def test_what_a_target_left_is_ignored_with_one_note(name, fields, tmp_path: Path, capsys) -> None:
    specjax.load(write_checkpoint(tmp_path / "it", make_config(name)))
    assert ignored(capsys.readouterr().out) == set(fields.split())


def test_heads_ignore_with_a_note_too(tmp_path: Path, capsys) -> None:
    folder = write_checkpoint(
        tmp_path / "it", make_config("FasterDecoding/medusa-vicuna-7b-v1.3", tree=[1])
    )
    heads.load(folder)
    assert ignored(capsys.readouterr().out) == {"tree"}


def test_a_drafter_whose_layers_nobody_ignores_leaves_no_note(tmp_path: Path, capsys) -> None:
    specjax.load(write_checkpoint(tmp_path / "it", make_config("nvidia/Qwen3-235B-A22B-Eagle3")))
    assert capsys.readouterr().out == ""


CHANGED = [
    ("nebius/EAGLE3-gpt-oss-20b", {"truncated_vocab_size": 48}, "both name the same field"),
    ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", {"attention_bias": True}, "attention_bias is True"),
    (
        "nvidia/Qwen3-235B-A22B-Eagle3",
        {"eagle_config": {"extra_norm": True}},
        "extra_norm in eagle_config is True; specjax does not know",
    ),
    (
        "z-lab/Qwen3-8B-DFlash-b16",
        {"dflash_config": {"mask_token_id": 93, "shift_label": 1}},
        "shift_label is 1; it must be true or false",
    ),
    (
        "z-lab/Qwen3-8B-DFlash-b16",
        {"dflash_config": {"mask_token_id": 93, "attention_mode": "mla"}},
        "attention_mode is 'mla'; it must be one of gqa, mha",
    ),
    ("SpecForge Qwen3-8B EAGLE-3", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
]


@pytest.mark.parametrize(("name", "changes", "sentence"), CHANGED)
def test_what_a_layout_reads_is_obeyed_or_refused(name, changes, sentence, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        specjax.load(write_checkpoint(tmp_path / "it", make_config(name, **changes)))


def test_a_plain_name_with_a_vocabulary_to_draft_is_no_model(tmp_path: Path) -> None:
    """It has the layer of an EAGLE-3 drafter, whatever class it calls itself."""
    entry = make_config("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B")
    assert entry["config"]["architectures"] == ["LlamaForCausalLM"]
    assert specjax.load(write_checkpoint(tmp_path / "it", entry)).model.config.family == "eagle3"


def test_several_layers_of_the_target_are_not_the_drafters(tmp_path: Path) -> None:
    entry = make_config("yuhuili/EAGLE3-Vicuna1.3-13B")
    assert entry["config"]["num_hidden_layers"] == 40
    assert specjax.load(write_checkpoint(tmp_path / "it", entry)).model.info.depth == 1


ODD = [
    (
        {"architectures": "LlamaForCausalLMEagle3", "model_type": ["qwen3"]},
        "model_type is .'qwen3'",
    ),
    ({"architectures": [{}], "model_type": "llama"}, "model_type is 'llama'; it must be one of"),
    ({"dflash_config": {"projector_type": ["dspark"]}}, "projector_type is .'dspark'.; it must be"),
    ({"layer_types": [{}]}, "layer_types is ....; it must name each of the 2 layers"),
    ({"dflash_config": [1]}, "dflash_config is .1.; it must be an object"),
    ({"medusa_num_heads": [2] * 40}, "medusa_num_heads is .2, 2, 2, 2, 2, 2, ...."),
    ({"parallel_drafting": {"by": 4}}, "parallel_drafting is .'by': 4.: a drafter"),
]


@pytest.mark.parametrize(("changes", "sentence"), ODD)
def test_words_of_another_kind_are_refused_in_a_sentence(changes, sentence: str) -> None:
    config = make_config("z-lab/Qwen3-8B-DFlash-b16")["config"] | changes
    with pytest.raises(UserError, match=sentence) as refused:
        parse_config("it", config, None, jnp.float32)
    assert "\n" not in str(refused.value)


def test_a_plan_takes_no_drafter_for_the_target(tmp_path: Path) -> None:
    folder = write_checkpoint(tmp_path / "it", make_config("nebius/EAGLE3-gpt-oss-20b"))
    config = specjax.decode_config()
    config.target, config.drafter = str(folder), ""
    with pytest.raises(UserError, match="target is .*, a drafter of the family 'eagle3'; give it"):
        describe_pair(config)


def test_a_drafter_under_another_name_is_known_by_its_tensors(tmp_path: Path) -> None:
    entry = make_config("SpecForge Qwen3-8B EAGLE-3")
    words = {"hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "head_dim"}
    plain = {name: entry["config"][name] for name in words}
    plain |= {"model_type": "llama", "num_hidden_layers": 1, "num_key_value_heads": 2}
    folder = write_checkpoint(tmp_path / "it", entry)
    (folder / "config.json").write_text(json.dumps(plain), "utf-8")
    with pytest.raises(UserError, match="'fc.weight': a drafter of .* EAGLE-3 or DFlash under ano"):
        specjax.load(folder)
