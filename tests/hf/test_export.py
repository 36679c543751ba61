"""Load, export, load: nothing changes; and what decoder-only checkpoints may look like."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from slow_cases import some_slow

import specjax
from specjax.hf import huggingface
from specjax.hf.huggingface import load
from specjax.models.info import Patches
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden"
ALL = ("t5_v1_0", "t5_v1_1", "mt5", "gpt2", "llama", "mistral", "qwen2", "qwen3")
SINGLE = "model.safetensors"


def equal(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", some_slow([jnp.float32, jnp.bfloat16], jnp.bfloat16))
def test_export_and_load_again_is_bit_identical(name: str, dtype, tmp_path: Path) -> None:
    first = load(GOLDEN / name, dtype)
    huggingface.save(tmp_path / "out", first.model, first.params)
    again = load(tmp_path / "out", dtype)
    assert again.model == first.model
    jax.tree.map(np.testing.assert_array_equal, again.params, first.params)
    stored = {leaf.dtype for leaf in load_file(tmp_path / "out" / SINGLE).values()}
    assert stored == {np.dtype(dtype)}


@pytest.mark.parametrize("name", ALL)
def test_export_stores_the_tensors_that_transformers_stored(name: str, tmp_path: Path) -> None:
    checkpoint = load(GOLDEN / name)
    huggingface.save(tmp_path / "out", checkpoint.model, checkpoint.params)
    original = load_file(GOLDEN / name / SINGLE)
    for copy in ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"):
        original.pop(copy, None)
    equal(load_file(tmp_path / "out" / SINGLE), original)


def copy_golden(name: str, tmp_path: Path) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    for file in ("config.json", SINGLE):
        shutil.copy(GOLDEN / name / file, folder)
    return folder


def edit(folder: Path, change) -> None:
    tensors = load_file(folder / SINGLE)
    save_file(change(tensors), folder / SINGLE)


@pytest.mark.parametrize(("name", "prefix"), [("gpt2", "transformer."), ("llama", "model.")])
def test_a_checkpoint_of_the_bare_model_loads(name: str, prefix: str, tmp_path: Path) -> None:
    folder = copy_golden(name, tmp_path)
    edit(folder, lambda t: {tensor.removeprefix(prefix): v for tensor, v in t.items()})
    jax.tree.map(np.testing.assert_array_equal, load(folder).params, load(GOLDEN / name).params)


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("gpt2", "transformer.h.0.attn.bias"),
        ("llama", "model.layers.0.self_attn.rotary_emb.inv_freq"),
        ("t5_v1_0", "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"),
    ],
)
def test_buffers_are_ignored(name: str, extra: str, tmp_path: Path) -> None:
    folder = copy_golden(name, tmp_path)
    edit(folder, lambda t: {**t, extra: np.ones(3, np.float32)})
    assert load(folder).model == load(GOLDEN / name).model


def complaint(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        load(folder)
    sentence = str(caught.value)
    assert "\n" not in sentence and not re.search(r"\. [A-Z]", sentence)
    return sentence


def test_a_tensor_without_a_place_is_named(tmp_path: Path) -> None:
    """Ignored, the biases would be missing from everything that the model computes."""
    folder = copy_golden("llama", tmp_path)
    extra = "model.layers.1.self_attn.q_proj.bias"
    edit(folder, lambda t: {**t, extra: np.ones(24, np.float32)})
    assert repr(extra) in complaint(folder)


def test_a_fused_tensor_of_the_wrong_shape_is_named(tmp_path: Path) -> None:
    folder = copy_golden("gpt2", tmp_path)
    fused = "transformer.h.1.attn.c_attn.weight"
    edit(folder, lambda t: {**t, fused: t[fused][:, :-3]})
    sentence = complaint(folder)
    assert repr(fused) in sentence and "(20, 57)" in sentence and "(20, 60)" in sentence


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("gpt2", "n_head", 0),
        ("gpt2", "scale_attn_by_inverse_layer_idx", "yes"),
        ("llama", "num_key_value_heads", 3),
        ("llama", "hidden_act", "swish7"),
    ],
)
def test_an_unusable_field_is_named(name: str, field: str, value, tmp_path: Path) -> None:
    folder = copy_golden(name, tmp_path)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {field: value}), "utf-8")
    sentence = complaint(folder)
    assert field in sentence and repr(value) in sentence


@pytest.mark.parametrize("kind", ["spiral", "axial"])
def test_an_unsupported_rotation_is_named_with_those_supported(kind: str, tmp_path: Path) -> None:
    folder = copy_golden("llama", tmp_path)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["rope_parameters"] = {"rope_type": kind, "factor": 2.0}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    sentence = complaint(folder)
    assert repr(kind) in sentence and "llama3" in sentence


def test_the_older_spelling_of_a_rotation_means_the_same(tmp_path: Path) -> None:
    folder = copy_golden("llama", tmp_path)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    scaling["type"] = scaling.pop("rope_type")
    config["rope_scaling"] = scaling
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    assert load(folder).model == load(GOLDEN / "llama").model


PROCESSORS = {
    "trocr": {
        "image_processor_type": "DonutImageProcessor", "do_align_long_axis": False,
        "image_mean": [0.1] * 3, "resample": 2,
    },
    "whisper": {
        "feature_extractor_type": "WhisperFeatureExtractor", "chunk_length": 1, "dither": 0.25,
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", PROCESSORS)
def test_an_export_keeps_the_processor_of_its_checkpoint(name: str, tmp_path: Path) -> None:
    """Without the file it would be read with the usual processor, not with this one."""
    folder = copy_golden(name, tmp_path)
    frames = load(folder).model.info.input
    own = {"feature_size": frames.width} if name == "whisper" else {"size": size_of(frames)}
    file = folder / "preprocessor_config.json"
    file.write_text(json.dumps(PROCESSORS[name] | own), "utf-8")
    given = specjax.load(folder)
    given.save(tmp_path / "out")
    found = specjax.load(tmp_path / "out").extractor.processor
    usual = specjax.load(GOLDEN / name).extractor.processor
    assert found.to_dict() == given.extractor.processor.to_dict() != usual.to_dict()


def size_of(patches: Patches) -> dict[str, int]:
    return dict(zip(("height", "width"), patches.size, strict=True))


def test_an_export_keeps_what_others_put_into_its_folder(tmp_path: Path) -> None:
    checkpoint, out = load(GOLDEN / "llama"), tmp_path / "out"
    huggingface.save(out, checkpoint.model, checkpoint.params)
    (out / "README.md").write_text("mine", "utf-8")
    changed = jax.tree.map(lambda leaf: leaf + 1, checkpoint.params)
    huggingface.save(out, checkpoint.model, changed)
    assert (out / "README.md").read_text("utf-8") == "mine"
    jax.tree.map(np.testing.assert_array_equal, load(out).params, changed)


def test_an_export_into_a_folder_of_other_things_is_refused(tmp_path: Path) -> None:
    """A published checkpoint, for instance: it is not ours to replace."""
    folder, checkpoint = copy_golden("llama", tmp_path), load(GOLDEN / "gpt2")
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(UserError, match=re.escape(str(folder))):
        huggingface.save(folder, checkpoint.model, checkpoint.params)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
