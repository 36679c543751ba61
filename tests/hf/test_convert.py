"""PyTorch files become safetensors that load to the same numbers; what is wrong is said."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from specjax.hf import convert as conversion
from specjax.hf.convert import convert, main
from specjax.hf.huggingface import load
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden"
SINGLE, PICKLED = "model.safetensors", "pytorch_model.bin"
INDEX = "pytorch_model.bin.index.json"


def pickle_checkpoint(folder: Path, name: str, shards: int = 1, **extra) -> Path:
    """A golden checkpoint as PyTorch stores it, with `extra` tensors under other names."""
    torch = pytest.importorskip("torch")
    folder.mkdir()
    shutil.copy(GOLDEN / name / "config.json", folder)
    tensors = {n: torch.tensor(v) for n, v in load_file(GOLDEN / name / SINGLE).items()}
    tensors |= {copy: tensors[original] for copy, original in extra.items()}
    if shards == 1:
        torch.save(tensors, folder / PICKLED)
        return folder
    weights = {}
    for shard in range(shards):
        file = f"pytorch_model-{shard + 1:05d}-of-{shards:05d}.bin"
        part = {n: tensors[n] for n in sorted(tensors)[shard::shards]}
        torch.save(part, folder / file)
        weights |= dict.fromkeys(part, file)
    (folder / INDEX).write_text(json.dumps({"weight_map": weights}), "utf-8")
    return folder


def same(found: Path, name: str) -> None:
    ours, expected = load(found), load(GOLDEN / name)
    assert ours.model == expected.model
    jax.tree.map(np.testing.assert_array_equal, ours.params, expected.params)


@pytest.mark.slow
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("name", ["t5_v1_1", "t5_v1_0", "gpt2", "llama"])
def test_a_converted_checkpoint_is_the_same(name: str, shards: int, tmp_path: Path) -> None:
    source = pickle_checkpoint(tmp_path / "bin", name, shards)
    assert main(["convert", str(source), str(tmp_path / "out")]) == 0
    same(tmp_path / "out", name)
    assert not list((tmp_path / "out").glob("*.bin*"))


@pytest.mark.slow
def test_large_checkpoints_are_written_in_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversion, "GROUP", 4000)
    convert(pickle_checkpoint(tmp_path / "bin", "llama", shards=2), tmp_path / "out")
    assert len(list((tmp_path / "out").glob("model-*.safetensors"))) > 5
    same(tmp_path / "out", "llama")


@pytest.mark.slow
def test_tensors_that_share_memory_are_stored_once(tmp_path: Path) -> None:
    copies = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight")
    extra = dict.fromkeys(copies, "shared.weight")
    convert(pickle_checkpoint(tmp_path / "bin", "t5_v1_0", **extra), tmp_path / "out")
    assert not set(copies) & load_file(tmp_path / "out" / SINGLE).keys()
    same(tmp_path / "out", "t5_v1_0")


@pytest.mark.slow
def test_dtypes_stay(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    source = pickle_checkpoint(tmp_path / "bin", "llama")
    kinds = {"a": torch.bfloat16, "b": torch.float16, "c": torch.int64, "d": torch.float32}
    tensors = {name: torch.arange(12).reshape(3, 4).T.to(kind) for name, kind in kinds.items()}
    torch.save(tensors, source / PICKLED)
    convert(source, tmp_path / "out")
    stored = load_file(tmp_path / "out" / SINGLE)
    assert [str(stored[name].dtype) for name in "abcd"] == [
        "bfloat16",
        "float16",
        "int64",
        "float32",
    ]
    for array in stored.values():
        np.testing.assert_array_equal(np.asarray(array, int), np.arange(12).reshape(3, 4).T)


class Evil:
    """Pickled, it runs a command when it is unpacked."""

    def __reduce__(self):
        return os.system, ("touch evil",)


def refusal(source: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["convert", str(source), str(out)]) == 2
    sentence = capsys.readouterr().err
    assert sentence.startswith("specjax: ") and sentence.count("\n") == 1
    assert not out.exists()
    return sentence


@pytest.mark.slow
def test_other_things_than_tensors_are_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    source = pickle_checkpoint(tmp_path / "bin", "llama")
    for content in (Evil(), {"a": 7}, {}, [torch.zeros(2)]):
        torch.save(content, source / PICKLED)
        assert PICKLED in refusal(source, tmp_path / "out", capsys)
    for content in (pickle.dumps(Evil()), b"", b"PK", b"nonsense"):
        (source / PICKLED).write_bytes(content)
        assert PICKLED in refusal(source, tmp_path / "out", capsys)
    assert not (tmp_path / "evil").exists()


@pytest.mark.slow
def test_missing_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = pickle_checkpoint(tmp_path / "bin", "llama", shards=2)
    shard = source / "pytorch_model-00002-of-00002.bin"
    shard.unlink()
    assert shard.name in refusal(source, tmp_path / "out", capsys)
    (source / INDEX).write_text('{"weight_map": {"a": 7}}', "utf-8")
    assert INDEX in refusal(source, tmp_path / "out", capsys)
    (source / INDEX).unlink()
    assert "nothing to convert" in refusal(source, tmp_path / "out", capsys)


def test_a_missing_or_unsafe_pytorch_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install torch" in refusal(tmp_path, tmp_path / "out", capsys)
    old = type(sys)("torch")
    old.__version__ = "2.5.1+cpu"
    monkeypatch.setitem(sys.modules, "torch", old)
    assert "2.6 or newer" in refusal(tmp_path, tmp_path / "out", capsys)


def test_its_use_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["convert"]) == 2
    assert "MODEL FOLDER" in capsys.readouterr().err


def test_an_existing_folder_is_not_written_over(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    source = pickle_checkpoint(tmp_path / "bin", "llama")
    with pytest.raises(UserError, match="earlier export"):
        convert(source, source)
    assert (source / PICKLED).exists()
