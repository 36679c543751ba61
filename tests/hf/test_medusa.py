"""Published Medusa heads in and out: what is read, what is refused, what an export writes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parallel_heads import random_heads
from published import GOLDEN, without
from safetensors.numpy import load_file, save_file

from specjax.hf import export as exporting
from specjax.hf import heads, medusa
from specjax.hf.convert import convert
from specjax.models.heads import ResidualHeads
from specjax.runtime.errors import UserError

SOURCE = GOLDEN / "medusa"


def edit(folder: Path, change=None, **fields: Any) -> Path:
    """The golden heads with other fields, and tensors that went through `change`."""
    folder.mkdir()
    words = json.loads((SOURCE / "config.json").read_text("utf-8")) | fields
    (folder / "config.json").write_text(json.dumps(words), "utf-8")
    if change:
        save_file(change(load_file(SOURCE / medusa.FILE)), folder / medusa.FILE)
    else:
        shutil.copy(SOURCE / medusa.FILE, folder)
    return folder


def test_the_tensors_say_what_the_configuration_does_not(tmp_path: Path) -> None:
    assert heads.load(SOURCE).heads == ResidualHeads(3, 24, 2, 96)
    # Files of FasterDecoding hold more heads than their configuration counts.
    more = edit(tmp_path / "more", medusa_num_heads=2)
    assert heads.load(more).heads.count == 3
    shared = edit(tmp_path / "shared", without("0.2.weight", "1.2.weight", "2.2.weight"))
    assert heads.load(shared).heads == ResidualHeads(3, 24, 2, None)


def test_shapes_are_those_of_what_is_loaded() -> None:
    found = jax.tree.map(lambda x: (x.shape, x.dtype), heads.shapes(SOURCE, jnp.bfloat16))
    made = heads.load(SOURCE, jnp.bfloat16)
    assert found == jax.tree.map(lambda x: (x.shape, x.dtype), made)


def cut(tensors):
    return tensors | {"1.0.linear.weight": tensors["1.0.linear.weight"][:, :20]}


REFUSED = [
    (without("1.0.linear.bias"), {}, "lacks the tensor '1.0.linear.bias'"),
    (without("0.0.linear.weight"), {}, "lacks the tensor '0.0.linear.weight'"),
    (cut, {}, r"'1.0.linear.weight' .* shape \(24, 20\), config.json requires \(24, 24\)"),
    (lambda t: t | {"lm_head.weight": t["0.2.weight"]}, {}, "'lm_head.weight' .* no place"),
    (None, {"medusa_num_heads": 4}, "lacks the tensor '3.0.linear.weight'"),
    (None, {"medusa_num_layers": 0}, "medusa_num_layers is 0; it must be an integer from 1"),
    (None, {"medusa_num_layers": 1}, "tensor '0.1.linear.bias' .* no place"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "fields", "sentence"), REFUSED)
def test_what_does_not_fit_is_refused(change, fields, sentence: str, tmp_path: Path) -> None:
    folder = edit(tmp_path / "it", change, **fields)
    with pytest.raises(UserError, match=sentence):
        heads.load(folder)


def test_a_field_that_no_exporter_has_is_ignored_and_named(tmp_path: Path, capsys) -> None:
    folder = edit(tmp_path / "it", None, tree=[1])
    assert heads.load(folder).heads == heads.load(SOURCE).heads
    assert capsys.readouterr().out == f"heads {str(folder)!r}: ignored in config.json: tree\n"


def test_pickled_heads_are_refused_and_can_be_converted(tmp_path: Path) -> None:
    folder = edit(tmp_path / "it")
    tensors = load_file(folder / medusa.FILE)
    (folder / medusa.FILE).rename(folder / medusa.PICKLED)
    with pytest.raises(UserError, match=r"have medusa_lm_head.pt and no .*convert .* FOLDER"):
        heads.load(folder)
    torch = pytest.importorskip("torch")
    torch.save({name: torch.tensor(t) for name, t in tensors.items()}, folder / medusa.PICKLED)
    convert(folder, tmp_path / "out")
    again, made = heads.load(tmp_path / "out"), heads.load(SOURCE)
    assert again.heads == made.heads
    jax.tree.map(np.testing.assert_array_equal, again.params, made.params)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"medusa_num_heads": 2}', "utf-8")
    with pytest.raises(UserError, match="no medusa_lm_head.safetensors; specjax reads safetensors"):
        heads.load(tmp_path)
    with pytest.raises(UserError, match="is not a readable safetensors file"):
        heads.load("runs/heads.safetensors")


@pytest.mark.parametrize("shared", [False, True])
def test_an_export_stores_what_was_read(shared: bool, tmp_path: Path, capsys) -> None:
    own = [f"{head}.2.weight" for head in range(3)] if shared else []
    folder = edit(tmp_path / "it", without(*own))
    assert exporting.main(["export", str(folder), str(tmp_path / "out"), "--layout=medusa"]) == 0
    assert "in the layout of medusa" in capsys.readouterr().out
    stored, original = (load_file(at / medusa.FILE) for at in (tmp_path / "out", folder))
    assert stored.keys() == original.keys()
    for name, tensor in original.items():
        np.testing.assert_array_equal(stored[name], tensor, err_msg=name)
    words = json.loads((tmp_path / "out" / "config.json").read_text("utf-8"))
    assert words["base_model_name_or_path"] == "acme/target"
    assert heads.load(tmp_path / "out").heads == heads.load(folder).heads


def test_other_heads_are_not_exported(tmp_path: Path) -> None:
    heads.save(random_heads(2, 6, seed=0), tmp_path / "heads.safetensors")
    with pytest.raises(UserError, match="hold networks of two layers, .* has no words"):
        exporting.export(tmp_path / "heads.safetensors", tmp_path / "out", "medusa")
