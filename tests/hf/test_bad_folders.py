"""Model folders and names that cannot be loaded: one sentence each, at once."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from specjax import UserError, load
from specjax.hf.descriptions import describe
from specjax.hf.finite import is_finite
from specjax.hf.huggingface import read_stored_weights

GOLDEN = Path(__file__).parents[1] / "golden"
INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
QUERY = "decoder.block.1.layer.0.SelfAttention.q.weight"
LONG = 300


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A writable copy of a golden checkpoint."""
    made = tmp_path / "model"
    made.mkdir()
    for name in ("config.json", SINGLE):
        shutil.copy(GOLDEN / "t5_v1_1" / name, made / name)
    return made


def complaint(name: str | Path, dtype=jnp.float32) -> str:
    with pytest.raises(UserError) as caught:
        load(name, dtype)
    sentence = str(caught.value)
    assert "\n" not in sentence and not re.search(r"\. [A-Z]", sentence) and len(sentence) < 900
    return sentence


NAMES = (
    "a b", "a:b", "Müller/modell", "a/b c", "org/", "/", "-a", "a-", ".a.", "a..b", "a--b", "a//b",
    "модель", "a\tb", "a\nb", "a?b", "a*b", "org/name@main", "org/name:tag", "模型/名", "a/b/c",
    "~nobody-of-that-name/model", "https://example.org/model", "a\0b", "org/model.git",
    "x" * LONG, "org/" + "x" * LONG, "x/" * LONG, "./" + "x" * LONG, "ü" * LONG, "a" * 97,
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name[:20]))
def test_names_of_no_model_are_refused(name, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert repr(name[:20])[:-1] in complaint(name)
    with pytest.raises(UserError, match="model"):
        describe(name, jnp.float32)
    assert read_stored_weights(name) is None


PLACES = (
    "../model.safetensors", "../../etc/passwd", "/etc/passwd", "/dev/zero", "..", "./../x",
    "a/../../b", "", "a\0b", None, 3, ["model.safetensors"], {"file": "x"}, True,
)  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=repr)
def test_an_index_stays_in_its_folder(place, folder):
    tensors = load_file(folder / SINGLE)
    (folder / SINGLE).rename(folder.parent / SINGLE)
    weights = dict.fromkeys(tensors, place)
    (folder / INDEX).write_text(json.dumps({"weight_map": weights}), "utf-8")
    assert f"has {place!r} for the tensor" in complaint(folder)


def test_an_index_may_name_folders_inside(folder):
    (folder / "weights").mkdir()
    tensors = load_file(folder / SINGLE)
    (folder / SINGLE).rename(folder / "weights" / "all.safetensors")
    index = {"weight_map": dict.fromkeys(tensors, "weights/all.safetensors")}
    (folder / INDEX).write_text(json.dumps(index), "utf-8")
    assert load(folder).params


FILES = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "preprocessor_config.json", "special_tokens_map.json", "added_tokens.json", "spiece.model",
    "source.spm", "merges.txt", "chat_template.jinja", SINGLE, "model-00001-of-00002.safetensors",
)  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_pipes_in_place_of_files_are_refused_and_do_not_hang(name, folder):
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert f"{name}' is a pipe or a device; it must be a file" in complaint(folder)


def test_a_pipe_in_place_of_a_config_does_not_hang_what_reads_it_alone(folder):
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    with pytest.raises(UserError, match="is a pipe"):
        describe(folder, jnp.float32)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", SINGLE])
def test_folders_in_place_of_files_are_refused(name, folder):
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    assert name in complaint(folder)


def rewritten(folder: Path, dtype, value: float, tensor: str = QUERY) -> None:
    """Stores all tensors in `dtype`, and one number of one of them as `value`."""
    tensors = {name: x.astype(dtype) for name, x in load_file(folder / SINGLE).items()}
    tensors[tensor].flat[-1] = value
    save_file(tensors, folder / SINGLE)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("stored", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64])
def test_weights_that_are_not_finite_are_refused(stored, value, folder):
    rewritten(folder, stored, value)
    assert f"tensor {QUERY!r} of" in (sentence := complaint(folder))
    assert "is not finite in float32" in sentence


@pytest.mark.parametrize(
    "tensor", ["shared.weight", "lm_head.weight", "encoder.final_layer_norm.weight"]
)
def test_every_kind_of_weight_must_be_finite(tensor, folder):
    rewritten(folder, np.float32, np.nan, tensor)
    assert tensor in complaint(folder)


@pytest.mark.filterwarnings("ignore:overflow encountered in cast:RuntimeWarning")
@pytest.mark.parametrize(
    ("stored", "value", "dtype", "said"),
    [
        (np.float64, 1e300, jnp.float32, "float32"),
        (np.float32, 1e5, jnp.float16, "float16"),
        (np.float32, np.nan, jnp.bfloat16, "bfloat16"),
    ],
)
def test_weights_too_large_for_the_dtype_are_refused(stored, value, dtype, said, folder):
    rewritten(folder, stored, value)
    assert f"is not finite in {said}: " in complaint(folder, dtype)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_numbers_are_finite_as_numpy_says(dtype):
    some = np.array([0, -0.0, 1, -1.5, 6e-8, ml_dtypes.finfo(dtype).max], dtype)
    assert is_finite(some) and is_finite(some[:0]) and is_finite(some.reshape(2, 3).T)
    for value in (np.nan, -np.nan, np.inf, -np.inf):
        assert not is_finite(np.append(some, np.array(value, dtype)))
