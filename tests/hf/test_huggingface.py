"""The checkpoint loader: stored forms, and one helpful sentence for everything that is wrong."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specjax.contracts.registry import FAMILIES
from specjax.hf import hub, huggingface
from specjax.hf.huggingface import load
from specjax.hf.tensors import flat_shapes
from specjax.models.shapes import get_parameter_shapes
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden"
TIED, UNTIED = GOLDEN / "t5_v1_0", GOLDEN / "t5_v1_1"
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
QUERY = "decoder.block.1.layer.0.SelfAttention.q.weight"
PEAK = 1.3
"""Most host memory that loading may take, in sizes of what it leaves behind."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A writable copy of a golden checkpoint."""
    return copy(UNTIED, tmp_path)


def copy(golden: Path, tmp_path: Path) -> Path:
    target = tmp_path / golden.name
    target.mkdir()
    for name in ("config.json", SINGLE):
        shutil.copy(golden / name, target / name)
    return target


def shard(folder: Path) -> None:
    """Splits the single file of a checkpoint into two and an index."""
    tensors = load_file(folder / SINGLE)
    names = sorted(tensors)
    halves = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, members in halves.items():
        save_file({name: tensors[name] for name in members}, folder / file)
    weight_map = {name: file for file, members in halves.items() for name in members}
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}), "utf-8")
    (folder / SINGLE).unlink()


def edit_tensors(folder: Path, edit: Callable[[dict[str, np.ndarray]], Any]) -> None:
    tensors = load_file(folder / SINGLE)
    edit(tensors)
    save_file(tensors, folder / SINGLE)


def edit_config(folder: Path, edit: Callable[[dict[str, Any]], Any]) -> None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    edit(config)
    (folder / "config.json").write_text(json.dumps(config), "utf-8")


def complaint(name: str | Path) -> str:
    """What the loader says of `name`: a UserError of one sentence on one line."""
    with pytest.raises(UserError) as caught:
        load(name)
    sentence = str(caught.value)
    assert "\n" not in sentence and not re.search(r"\. [A-Z]", sentence)
    return sentence


# Stored forms


def test_shards_load_as_a_single_file_does(folder: Path) -> None:
    single = load(folder)
    shard(folder)
    sharded = load(folder)
    assert sharded.model == single.model
    jax.tree.map(np.testing.assert_array_equal, sharded.params, single.params)


@pytest.mark.parametrize("wanted", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("stored", [ml_dtypes.bfloat16, np.float16, np.float32])
def test_every_stored_precision_loads_into_every_wanted_one(
    folder: Path, stored: Any, wanted: Any
) -> None:
    original = load_file(folder / SINGLE)
    save_file({name: value.astype(stored) for name, value in original.items()}, folder / SINGLE)
    checkpoint = load(folder, wanted)
    assert {leaf.dtype for leaf in jax.tree.leaves(checkpoint.params)} == {jnp.dtype(wanted)}
    kernel = checkpoint.params["decoder_1"]["self_attention"]["q"]["kernel"]
    np.testing.assert_array_equal(kernel, original[QUERY].T.astype(stored).astype(wanted))
    assert checkpoint.model.config.dtype == wanted


def test_a_stored_output_layer_is_used_although_the_config_says_tied(folder: Path) -> None:
    """As transformers 5 writes every T5 v1.1 and Flan-T5 that it saves."""
    published = load(folder)
    edit_config(folder, lambda config: config.update(tie_word_embeddings=True))
    saved = load(folder)
    assert saved.model == published.model
    jax.tree.map(np.testing.assert_array_equal, saved.params, published.params)


@pytest.mark.parametrize("stored_head", [True, False])
def test_mt5_never_scales_its_decoder_output(tmp_path: Path, stored_head: bool) -> None:
    """As transformers 5 saves mT5: tied in the config, no word about scaling."""
    folder = copy(GOLDEN / "mt5", tmp_path)
    edit_config(folder, lambda config: config.update(tie_word_embeddings=True))
    if not stored_head:
        edit_tensors(folder, lambda tensors: tensors.pop("lm_head.weight"))
    model = load(folder).model
    assert model.config.tied is not stored_head
    assert not model.config.scale_outputs


# What is wrong with a directory


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    assert str(missing) in complaint(missing)


def test_a_file_in_place_of_a_directory_is_named(folder: Path) -> None:
    assert str(folder / SINGLE) in complaint(folder / SINGLE)


def test_a_missing_config_is_named(folder: Path) -> None:
    (folder / "config.json").unlink()
    sentence = complaint(folder)
    assert "config.json" in sentence and str(folder) in sentence


@pytest.mark.parametrize("content", ["{", "[]", "\udcff"])
def test_an_invalid_config_is_named(folder: Path, content: str) -> None:
    (folder / "config.json").write_text(content, "utf-8", "surrogateescape")
    sentence = complaint(folder)
    assert "JSON" in sentence and str(folder / "config.json") in sentence


@pytest.mark.parametrize("found", ["bert", None, ["t5"]])
def test_an_unsupported_model_type_is_named_with_those_supported(folder: Path, found: Any) -> None:
    edit_config(folder, lambda config: config.update(model_type=found))
    sentence = complaint(folder)
    assert repr(found) in sentence and all(f" {name}" in sentence for name in FAMILIES)


@pytest.mark.parametrize("field", ["vocab_size", "d_kv", "num_layers"])
def test_a_missing_config_field_is_named(folder: Path, field: str) -> None:
    edit_config(folder, lambda config: config.pop(field))
    assert repr(field) in complaint(folder)


@pytest.mark.parametrize(
    ("field", "value"),
    [("d_model", "18"), ("num_layers", None), ("feed_forward_proj", "gated-cube")],
)
def test_an_unusable_config_value_is_named(folder: Path, field: str, value: Any) -> None:
    edit_config(folder, lambda config: config.update({field: value}))
    sentence = complaint(folder)
    assert field in sentence and repr(value) in sentence


def test_weights_as_pickle_only_are_refused(folder: Path) -> None:
    (folder / SINGLE).rename(folder / "pytorch_model.bin")
    assert "safetensors only" in complaint(folder)


@pytest.mark.parametrize("kept", [0, 5, 1000, -64])
def test_a_corrupt_file_is_named(folder: Path, kept: int) -> None:
    """Cut off inside the header, inside the table of tensors, or inside the data."""
    content = (folder / SINGLE).read_bytes()
    (folder / SINGLE).write_bytes(content[:kept])
    assert str(folder / SINGLE) in complaint(folder)


def test_a_missing_shard_is_named(folder: Path) -> None:
    shard(folder)
    (folder / "two.safetensors").unlink()
    assert str(folder / "two.safetensors") in complaint(folder)


def test_a_tensor_that_its_shard_lacks_is_named(folder: Path) -> None:
    shard(folder)
    index = json.loads((folder / INDEX).read_text("utf-8"))
    other = {"one.safetensors": "two.safetensors", "two.safetensors": "one.safetensors"}
    index["weight_map"][QUERY] = other[index["weight_map"][QUERY]]
    (folder / INDEX).write_text(json.dumps(index), "utf-8")
    assert QUERY in complaint(folder)


def test_an_index_without_a_map_is_named(folder: Path) -> None:
    shard(folder)
    (folder / INDEX).write_text('{"weight_map": []}', "utf-8")
    assert INDEX in complaint(folder)


@pytest.mark.parametrize("tensor", [QUERY, "shared.weight"])
def test_a_missing_tensor_is_named(folder: Path, tensor: str) -> None:
    edit_tensors(folder, lambda tensors: tensors.pop(tensor))
    assert tensor in complaint(folder)


def test_a_missing_output_layer_of_an_untied_model_is_named(folder: Path) -> None:
    edit_tensors(folder, lambda tensors: tensors.pop("lm_head.weight"))
    assert "lm_head.weight" in complaint(folder)


def test_a_wrong_shape_is_named_with_both_shapes_as_stored(folder: Path) -> None:
    edit_tensors(folder, lambda tensors: tensors.update({QUERY: np.zeros((7, 5), np.float32)}))
    config = load(UNTIED).model.config
    sentence = complaint(folder)
    expected = (config.num_heads * config.d_kv, config.d_model)
    assert QUERY in sentence and "(7, 5)" in sentence and str(expected) in sentence


# Hub ids


def test_an_unknown_hub_id_offline_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    sentence = complaint("nobody/no-such-model")
    assert "nobody/no-such-model" in sentence and "hub id" in sentence


def test_an_ill_formed_hub_id_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert "not an id!" in complaint("not an id!")


def test_a_hub_id_loads_what_was_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(name: str, allow_patterns: list[str]) -> str:
        asked.append((name, allow_patterns))
        return str(TIED)

    monkeypatch.setattr(hub, "snapshot_download", download)
    assert load("someone/some-model").path == TIED
    name, patterns = asked[0]
    assert name == "someone/some-model"
    assert "model*.safetensors" in patterns and not any("bin" in p or "py" in p for p in patterns)


# Memory

MEASURE = """
import sys
import jax, jax.numpy as jnp
from specjax.hf.huggingface import load
from specjax.hf.tensors import flat_shapes

def memory(field):
    with open("/proc/self/status") as lines:
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))

load(sys.argv[1])
jnp.zeros(8).block_until_ready()
before = memory("VmRSS")
params = jax.block_until_ready(load(sys.argv[2]).params)
size = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
print(size, memory("VmHWM") - before)
"""
# Not ru_maxrss: Linux hands a child the peak of the process that started it, which hides growth.


def write_large(folder: Path) -> None:
    """A bfloat16 checkpoint that is 84 MB in float32, a fifth of it the embedding."""
    folder.mkdir()
    shutil.copy(TIED / "config.json", folder)
    wide = {"vocab_size": 8000, "d_model": 512, "d_kv": 64, "num_heads": 8, "d_ff": 1024}
    edit_config(folder, lambda config: config.update(wide))
    family, shape = huggingface.read_config(folder, jnp.float32)
    model = family.model(shape)
    shapes = flat_shapes(get_parameter_shapes(model))
    tensors = {}
    for where, entry in family.names(shape).items():
        stored = shapes[where][::-1] if entry.transposed else shapes[where]
        tensors[entry.tensor] = np.ones(stored, ml_dtypes.bfloat16)
    save_file(tensors, folder / SINGLE)


@pytest.mark.slow
def test_loading_peaks_below_1_3_times_the_loaded_size(tmp_path: Path) -> None:
    """Bfloat16 on disk, float32 in memory, in a process that has loaded a small model before."""
    write_large(tmp_path / "large")
    command = [sys.executable, "-c", MEASURE, str(TIED), str(tmp_path / "large")]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    size, grown = map(int, printed.split())
    assert 60e6 < size < 100e6
    assert grown < PEAK * size, f"{grown / size:.2f} times {math.ceil(size / 1e6)} MB"
