"""Where checkpoints keep shared tensors, which file counts, and formats that are not read."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specjax.hf import hub
from specjax.hf.huggingface import load
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
HEAD, SHARED = "lm_head.weight", "shared.weight"
ENCODER, DECODER = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
EMBEDDINGS = {
    "t5_v1_0": SHARED, "gpt2": "transformer.wte.weight", "qwen2": "model.embed_tokens.weight",
}  # fmt: skip


def copy_golden(name: str, tmp_path: Path) -> Path:
    folder = tmp_path / name
    folder.mkdir()
    for file in ("config.json", SINGLE):
        shutil.copy(GOLDEN / name / file, folder)
    return folder


def edit(folder: Path, change: Any) -> None:
    tensors = load_file(folder / SINGLE)
    change(tensors)
    save_file(tensors, folder / SINGLE)


def configure(folder: Path, **fields: Any) -> None:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(config | fields), "utf-8")


def complaint(folder: Path | str) -> str:
    with pytest.raises(UserError) as caught:
        load(folder)
    sentence = str(caught.value)
    assert "\n" not in sentence and not re.search(r"\. [A-Z]", sentence)
    return sentence


def same(found: Any, expected: Any) -> None:
    assert found.model == expected.model
    jax.tree.map(np.testing.assert_array_equal, found.params, expected.params)


# Shared tensors


@pytest.mark.parametrize("name", [DECODER, ENCODER])
@pytest.mark.parametrize("golden", ["t5_v1_0", "t5_v1_1"])
def test_t5_that_stores_its_embedding_under_a_stacks_name_loads(
    golden: str, name: str, tmp_path: Path
) -> None:
    """MADLAD-400 has the decoder's name and an output layer of its own."""
    folder = copy_golden(golden, tmp_path)
    edit(folder, lambda t: t.update({name: t.pop(SHARED)}))
    same(load(folder), load(GOLDEN / golden))


@pytest.mark.parametrize("golden", EMBEDDINGS)
def test_a_tied_model_stored_as_output_layer_loads(golden: str, tmp_path: Path) -> None:
    tied, stored = copy_golden(golden, tmp_path), EMBEDDINGS[golden]
    configure(tied, tie_word_embeddings=True)
    edit(tied, lambda t: t.pop(HEAD, None))
    expected = load(tied)
    edit(tied, lambda t: t.update({HEAD: t.pop(stored)}))
    found = load(tied)
    assert found.model.config.tied
    same(found, expected)


def test_an_untied_model_without_embedding_is_named(tmp_path: Path) -> None:
    folder = copy_golden("llama", tmp_path)
    edit(folder, lambda t: t.pop("model.embed_tokens.weight"))
    assert "lacks the tensor 'model.embed_tokens.weight'" in complaint(folder)


@pytest.mark.parametrize("copy", [ENCODER, DECODER])
def test_equal_copies_of_the_embedding_are_one(copy: str, tmp_path: Path) -> None:
    folder = copy_golden("t5_v1_1", tmp_path)
    edit(folder, lambda t: t.update({copy: t[SHARED]}))
    same(load(folder), load(GOLDEN / "t5_v1_1"))


@pytest.mark.parametrize("copy", [ENCODER, DECODER])
@pytest.mark.parametrize("where", ["value", "shape"])
def test_a_differing_copy_of_the_embedding_is_named(copy: str, where: str, tmp_path: Path) -> None:
    """Hugging Face computes with it, in one stack and not in the other."""
    folder = copy_golden("t5_v1_1", tmp_path)

    def differ(tensors: dict[str, np.ndarray]) -> None:
        tensors[copy] = tensors[SHARED].copy()
        if where == "value":
            tensors[copy][-1, -1] += 1
        else:
            tensors[copy] = tensors[copy][:-1]

    edit(folder, differ)
    sentence = complaint(folder)
    assert copy in sentence and "differs" in sentence


def test_copies_are_compared_without_a_shared_one(tmp_path: Path) -> None:
    folder = copy_golden("t5_v1_1", tmp_path)
    edit(folder, lambda t: t.update({ENCODER: t[SHARED], DECODER: t.pop(SHARED) + 1}))
    assert DECODER in complaint(folder)


# Which file counts


def test_a_stale_index_beside_a_single_file_is_passed_over(tmp_path: Path) -> None:
    folder = copy_golden("llama", tmp_path)
    gone = {"model.norm.weight": "model-00001-of-00002.safetensors"}
    (folder / INDEX).write_text(json.dumps({"weight_map": gone}), "utf-8")
    same(load(folder), load(GOLDEN / "llama"))


def test_a_stale_single_file_beside_an_index_is_what_counts(tmp_path: Path) -> None:
    """As in Hugging Face, although the shards may be newer."""
    folder = copy_golden("llama", tmp_path)
    newer = {name: value + 1 for name, value in load_file(folder / SINGLE).items()}
    save_file(newer, folder / "model-00001-of-00001.safetensors")
    index = {"weight_map": dict.fromkeys(newer, "model-00001-of-00001.safetensors")}
    (folder / INDEX).write_text(json.dumps(index), "utf-8")
    same(load(folder), load(GOLDEN / "llama"))


@pytest.mark.parametrize("file", [7, None, ["a"], "", "a\0b"])
def test_an_index_whose_files_are_no_names_is_named(file: Any, tmp_path: Path) -> None:
    folder = copy_golden("llama", tmp_path)
    (folder / SINGLE).unlink()
    (folder / INDEX).write_text(json.dumps({"weight_map": {"model.norm.weight": file}}), "utf-8")
    sentence = complaint(folder)
    assert INDEX in sentence and repr(file) in sentence and "model.norm.weight" in sentence


@pytest.mark.parametrize(
    "content", [b"\xff\xfe\x00", b"[" * 100_000, b'{"weight_map": ' + b"9" * 5000 + b"}", b"{}"]
)
def test_an_index_that_is_no_json_object_of_files_is_named(content: bytes, tmp_path: Path) -> None:
    folder = copy_golden("llama", tmp_path)
    (folder / SINGLE).unlink()
    (folder / INDEX).write_bytes(content)
    assert INDEX in complaint(folder)


@pytest.mark.parametrize("name", [SINGLE, "config.json"])
def test_a_folder_in_place_of_a_file_is_named(name: str, tmp_path: Path) -> None:
    folder = copy_golden("llama", tmp_path)
    (folder / name).unlink()
    (folder / name).mkdir()
    assert str(folder / name) in complaint(folder)


def test_weights_of_pytorch_alone_are_refused_with_the_command_that_converts_them(
    tmp_path: Path,
) -> None:
    folder = copy_golden("llama", tmp_path)
    (folder / SINGLE).rename(folder / "pytorch_model.bin")
    sentence = complaint(folder)
    assert "pytorch_model.bin" in sentence
    assert f"python -m specjax.hf.convert {folder} FOLDER" in sentence


def test_a_repository_without_safetensors_is_refused_with_the_command_for_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_golden("llama", tmp_path)
    (folder / SINGLE).unlink()
    monkeypatch.setattr(hub, "snapshot_download", lambda name, allow_patterns: str(folder))
    command = "python -m specjax.hf.convert google/t5-v1_1-small FOLDER"
    assert command in complaint("google/t5-v1_1-small")


# Number formats


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        (ml_dtypes.float8_e4m3fn, "F8_E4M3"),
        (ml_dtypes.float8_e5m2, "F8_E5M2"),
        (np.int8, "I8"),
        (np.int64, "I64"),
        (np.bool_, "BOOL"),
    ],
)
@pytest.mark.parametrize("tensor", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight"])
def test_weights_that_are_no_floats_are_named(
    tensor: str, dtype: Any, words: str, tmp_path: Path
) -> None:
    folder = copy_golden("llama", tmp_path)
    edit(folder, lambda t: t.update({tensor: t[tensor].astype(dtype)}))
    sentence = complaint(folder)
    assert repr(tensor) in sentence and words in sentence and "BF16" in sentence


def test_double_precision_is_read(tmp_path: Path) -> None:
    folder = copy_golden("llama", tmp_path)
    edit(folder, lambda t: t.update({n: v.astype(np.float64) for n, v in t.items()}))
    same(load(folder), load(GOLDEN / "llama"))


def test_a_quantized_checkpoint_is_named(tmp_path: Path) -> None:
    folder = copy_golden("llama", tmp_path)
    configure(folder, quantization_config={"quant_method": "fp8"})
    assert "quantization_config" in complaint(folder)
