"""GGUF files: the same model as the folder that they were made of, or one sentence."""

from __future__ import annotations

import dataclasses
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import qwix
from gguf_files import TEXTS, write_gguf
from safetensors.numpy import load_file

import specjax
from specjax.experiments.config.fields import model_source
from specjax.hf import descriptions, huggingface
from specjax.hf.gguf import header, tokenizer
from specjax.hf.gguf.architectures import ARCHITECTURES, FACTORS
from specjax.hf.gguf.tensors import (
    GgufFile,
    checkpoint_name,
    get_architecture,
    own_name,
)
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.models.quantized_weights import WeightFormat, is_quantized, quantize_params
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden"
LONG = {"rope.scaling.original_context_length": 64, "rope.scaling.attn_factor": 1.1547005}
MORE = {"gemma3_text": {"attention.sliding_window_pattern": 2}, "phi3": LONG}
"""Keys that `config.json` has otherwise, or leaves to transformers."""
WITHOUT = {
    "llama": ("attention.key_length", "attention.value_length"),  # as in its older files
    "phi3": ("attention.key_length", "attention.value_length"),
    "gemma3_text": ("attn_logit_softcapping",),
    "mistral": ("attention.sliding_window",),
}
Q = gguf.GGMLQuantizationType


def write_golden(tmp_path: Path, name: str, **more: Any) -> Path:
    """A golden checkpoint as a GGUF file."""
    more = {"metadata": MORE.get(name), "without": WITHOUT.get(name, ())} | more
    return write_gguf(tmp_path / "model.gguf", GOLDEN / name, **more)


GEMMAS = ("gemma2", "gemma3_text")


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "phi3", "mistral", *GEMMAS])
def test_a_file_is_the_model_of_the_folder(tmp_path: Path, name: str) -> None:
    """Of Gemma's files the numbers are within a rounding: 1 is added to norms and taken off."""
    found, expected = (
        huggingface.load(write_golden(tmp_path, name)),
        huggingface.load(GOLDEN / name),
    )
    close = {"rtol": 0, "atol": 2e-7 if name in GEMMAS else 0}
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, **close),
        found.params,
        expected.params,
    )
    ours, theirs = (dataclasses.asdict(one.model.config) for one in (found, expected))
    other = {"eps", "rope", "ropes"}  # float32 in the file
    other |= {"query_scale"} if name in GEMMAS else set()  # not in the file
    other |= {"family", "windows"} if name == "mistral" else set()  # it is Llama's, and whole
    same = ours.keys() - other
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}
    assert ours["eps"] == pytest.approx(theirs["eps"])
    assert_same_rotations(found.model.config, expected.model.config)


def assert_same_rotations(ours: CausalConfig, theirs: CausalConfig) -> None:
    """Whatever rule their factors come from."""
    pairs = zip(ours.ropes or [ours.rope], theirs.ropes or [theirs.rope], strict=True)
    for one, other in pairs:
        for length in (8, 250):
            position = jnp.arange(length - 4, length)
            found, expected = one.angles(position, length), other.angles(position, length)
            np.testing.assert_allclose(found, expected, rtol=2e-6)
        assert one.attention == pytest.approx(other.attention)


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3", "phi3"])
def test_logits_of_a_file_are_those_of_pytorch(tmp_path: Path, name: str) -> None:
    found = huggingface.load(write_golden(tmp_path, name))
    expected = load_file(GOLDEN / name / "expected.safetensors")
    batch = {"inputs": expected["tokens"], "length": expected["length"]}
    made = found.model.teach(found.params, batch)[0]
    inside = np.arange(expected["tokens"].shape[1]) < expected["length"][:, None]
    np.testing.assert_allclose(made[inside], expected["logits"][inside], rtol=0, atol=1e-4)


def test_gemma_has_the_query_scale_that_llama_cpp_knows_by_the_number_of_layers() -> None:
    assert ARCHITECTURES["gemma2"].query_scalars == {46: 4608 // 32}
    assert ARCHITECTURES["gemma3"].query_scalars == {62: 5376 // 32}


def bare(file: Path, arch: str, tensor: np.ndarray, kind: Any = Q.F32, **keys: Any) -> Path:
    """A file with one tensor of these bytes."""
    writer = gguf.GGUFWriter(file, arch)
    for key, value in keys.items():
        writer.add_uint16(key, value)
    writer.add_tensor("blk.0.ffn_up.weight", tensor, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


SHAPE = {"d_model": 64, "d_ff": 96, "num_layers": 1, "num_heads": 4, "num_kv_heads": 2}


@pytest.fixture(scope="module", params=["llama", "phi3"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random checkpoint whose rows are whole blocks."""
    config = CausalConfig(
        request.param, 320, **SHAPE, d_head=16, max_positions=64, rope=Rope(16), eos=(1,)
    )
    model, folder = Causal(config), tmp_path_factory.mktemp(request.param)
    huggingface.save(folder, model, model.init(jax.random.key(0)))
    return folder


def flat(params: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_flatten_with_path(params, is_leaf=is_quantized)[0]
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves}


@pytest.mark.parametrize("kind", [Q.F16, Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1])
def test_blocks_are_read_as_the_package_dequantizes_them(
    tmp_path: Path, folder: Path, kind: Any
) -> None:
    found = flat(huggingface.load(write_gguf(tmp_path / "m.gguf", folder, kind)).params)
    exact = flat(huggingface.load(folder).params)
    for name, values in exact.items():
        rows = np.asarray(values.T if name.endswith("['kernel']") else values)
        if rows.ndim == 2:
            rows = gguf.dequantize(gguf.quantize(np.ascontiguousarray(rows), kind), kind)
        expected = rows.T if name.endswith("['kernel']") else rows
        np.testing.assert_array_equal(found[name], expected)


@pytest.mark.parametrize("kind", [Q.Q4_K, Q.Q6_K, Q.IQ4_XS])
def test_blocks_of_256_are_read_as_the_package_dequantizes_them(tmp_path: Path, kind: Any) -> None:
    stored = np.random.default_rng(0).integers(
        0, 32, (6, 2 * gguf.GGML_QUANT_SIZES[kind][1]), np.uint8
    )
    bare(tmp_path / "m.gguf", "qwen2", stored, kind)
    with GgufFile(tmp_path / "m.gguf") as file:
        found = file.get_slice("model.layers.0.mlp.up_proj.weight")
        assert found.get_shape() == [6, 512]
        expected = gguf.dequantize(stored, kind)
        np.testing.assert_array_equal(found[1:4, 256:300], expected[1:4, 256:300])


@pytest.mark.parametrize(
    "kind,weights",
    [(Q.Q8_0, "int8:32"), (Q.Q5_0, "int8:32"), (Q.Q4_0, "int8:32"), (Q.Q4_0, "int4")],
)
def test_blocks_stay_the_integers_that_they_are(
    tmp_path: Path, folder: Path, kind: Any, weights: str
) -> None:
    file = write_gguf(tmp_path / "m.gguf", folder, kind)
    wide, small = (flat(huggingface.load(file, weights=w).params) for w in ("", weights))
    kept = [name for name, leaf in small.items() if is_quantized(leaf)]
    assert len(kept) == 7
    for name, leaf in small.items():
        dequantized = qwix.dequantize(leaf) if is_quantized(leaf) else leaf
        np.testing.assert_array_equal(dequantized, wide[name])
    assert all(small[name].qvalue.dtype == weights.split(":")[0] for name in kept)


@pytest.mark.parametrize("kind,weights", [(Q.Q4_1, "int4"), (Q.Q8_0, "int8"), (Q.Q8_0, "int4")])
def test_other_weights_are_rounded_as_those_of_a_folder(
    tmp_path: Path, folder: Path, kind: Any, weights: str
) -> None:
    file = write_gguf(tmp_path / "m.gguf", folder, kind)
    wide, small = (huggingface.load(file, weights=w).params for w in ("", weights))
    jax.tree.map(
        np.testing.assert_array_equal, small, quantize_params(wide, WeightFormat.parse(weights))
    )


@pytest.mark.parametrize("kind,bos", [("gpt2", 0), ("llama", 1)])
def test_the_tokenizer_and_the_chat_template_are_in_the_file(
    tmp_path: Path, kind: str, bos: int
) -> None:
    file = write_gguf(tmp_path / "m.gguf", make_folder(tmp_path, bos), tokenizer=kind)
    loaded = specjax.load(file)
    for text in TEXTS:
        ids = loaded.tokenizer(text).input_ids
        assert loaded.tokenizer.decode(ids, skip_special_tokens=True) == text
        assert (ids[0] == bos) == (kind == "llama")  # its older files mean it, and do not say so
    chat = [{"role": "user", "content": "hi"}]
    assert loaded.tokenizer.apply_chat_template(chat, tokenize=False) == "<user>hi"
    assert (loaded.tokenizer.eos_token_id,) == loaded.model.config.eos == (bos + 1,)


def make_folder(tmp_path: Path, bos: int = 1) -> Path:
    """A checkpoint with place for the tokenizers of `write_gguf`."""
    config = CausalConfig(
        "llama", 320, **SHAPE, d_head=16, max_positions=64, rope=Rope(16), eos=(bos + 1,), bos=bos
    )
    model = Causal(config)
    huggingface.save(tmp_path / "folder", model, model.init(jax.random.key(0)))
    return tmp_path / "folder"


@pytest.mark.slow
def test_a_file_drafts_for_a_folder_and_is_saved_as_one(tmp_path: Path) -> None:
    folder = make_folder(tmp_path)
    target = specjax.load(folder)
    drafter = specjax.load(write_gguf(tmp_path / "m.gguf", folder, Q.Q8_0), jnp.bfloat16)
    prompts, limit = [[5, 6, 7], [8, 9]], 12
    strategies = specjax.autoregressive(), specjax.speculative(3)
    plain, drafted = (
        specjax.Generator(target, {"drafter": drafter}, strategy, max_new_tokens=limit)(prompts)
        for strategy in strategies
    )
    assert plain.tokens == drafted.tokens
    drafter.save(tmp_path / "out")
    again = specjax.load(tmp_path / "out", jnp.bfloat16)
    jax.tree.map(np.testing.assert_array_equal, again.params, drafter.params)


def test_a_file_is_described_without_its_weights(tmp_path: Path) -> None:
    file = write_golden(tmp_path, "qwen2")
    assert descriptions.describe(file, jnp.float32) == huggingface.load(file).model
    found = descriptions.describe_generation(file)
    assert found.generation == {"eos_token_id": 1, "pad_token_id": 0}
    assert found.path == file and found.complete
    config = specjax.decode_config(
        target=f"{file}:int8:32", source=str(file), strategies={"alone": {"drafter": "none"}}
    )
    assert model_source(config, "target") == (str(file), WeightFormat("int8", 32))


@pytest.mark.slow
def test_loading_needs_no_torch(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "m.gguf", make_folder(tmp_path), tokenizer="llama")
    code = (
        "import sys; sys.modules['torch'] = None; import specjax;"
        f"print(len(specjax.load({str(file)!r}).tokenizer))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) > 256


def refusal(file: Path) -> str:
    """The one sentence that a file is refused with."""
    with pytest.raises(UserError) as error:
        specjax.load(file)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a file that is read."""
    return write_golden(tmp_path_factory.mktemp("whole"), "qwen2").read_bytes()


@pytest.mark.parametrize("share", [0.0001, 0.001, 0.01, 0.03, 0.1, 0.5, 0.999])
def test_a_truncated_file_is_refused(tmp_path: Path, whole: bytes, share: float) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(whole[: int(len(whole) * share)])
    words = "begins with" if len(whole) * share < 4 else "is truncated"
    assert words in refusal(file)


@pytest.mark.parametrize(
    "begin,words",
    [
        (b"", "begins with b''"),
        (b"PK\3\4" + bytes(60), "begins with b'PK"),
        (b"GGUF" + struct.pack("<I", 1) + bytes(60), "version 1; versions 2 and 3"),
        (b"GGUF" + struct.pack(">I", 3) + bytes(60), "little-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 0) + bytes(60), "lacks the key"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**60) + bytes(60), "is truncated"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60) + bytes(60), ""),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"a" + struct.pack("<I", 77) + bytes(60),
         "'a' of the unknown type 77"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 1) + b"\xff" + bytes(60), "not UTF-8"),
    ],
)  # fmt: skip
def test_a_damaged_header_is_refused(tmp_path: Path, begin: bytes, words: str) -> None:
    (tmp_path / "m.gguf").write_bytes(begin)
    assert words in refusal(tmp_path / "m.gguf")


def test_any_damaged_byte_of_a_header_is_read_or_refused(tmp_path: Path, whole: bytes) -> None:
    rng, file = np.random.default_rng(0), tmp_path / "m.gguf"
    for at in rng.integers(0, 1200, 60):
        damaged = bytearray(whole)
        damaged[at] = rng.integers(256)
        file.write_bytes(damaged)
        try:
            descriptions.describe(file, jnp.float32)
        except UserError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize(
    "more,words",
    [
        ({"without": ("block_count",)}, "the key 'qwen2.block_count' is missing"),
        ({"metadata": {"attention.head_count": 0}}, "qwen2.attention.head_count is 0"),
        ({"metadata": {"block_count": 3}}, "lacks the tensor 'blk.2."),
        ({"metadata": {"block_count": 1}}, "which the model described by its metadata"),
        ({"metadata": {"embedding_length": 28}}, "'token_embd.weight' of"),
        ({"metadata": {"embedding_length": 28}}, "its metadata requires"),
        ({"metadata": {"attention.scale": 0.5}}, "qwen2.attention.scale is 0.5"),
        ({"metadata": {"expert_count": 8}}, "qwen2.expert_count is 8"),
        ({"metadata": {"attention.value_length": 4}}, "attention.value_length is 4"),
        ({"metadata": {"rope.scaling.type": "dynamic"}}, "rope.scaling.type is 'dynamic'"),
        ({"metadata": {"rope.scaling.type": "linear"}}, "factor is missing"),
        ({"metadata": {"attention.head_count": [4, 4]}}, "head_count is [4, 4]; it must be one"),
        ({"metadata": {"attention.head_count": "4"}}, "qwen2.attention.head_count is '4'"),
        ({"metadata": {"embedding_length": "24"}}, "qwen2.embedding_length is '24'"),
        ({"metadata": {"rope.dimension_count": 0.5}}, "rope.dimension_count is 0.5"),
        (
            {"metadata": {"attention.head_count": 0}, "without": WITHOUT["phi3"]},
            "qwen2.attention.head_count is 0",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, more: Any, words: str) -> None:
    assert words in refusal(write_golden(tmp_path, "qwen2", **more))


def test_a_special_token_that_is_none_is_named_by_its_key(tmp_path: Path, whole: bytes) -> None:
    key = "tokenizer.ggml.eos_token_id"
    begin, file = whole.index(key.encode()) + len(key) + 4, tmp_path / "m.gguf"
    file.write_bytes(whole[:begin] + struct.pack("<I", 999_999) + whole[begin + 4 :])
    assert f"{key} is 999999; it must be" in refusal(file)


@pytest.mark.parametrize("name", ["qwen3", "gemma3_text", "phi3"])
def test_tensors_have_their_own_names_in_refusals(tmp_path: Path, name: str) -> None:
    file = write_golden(tmp_path, name)
    architecture = get_architecture(file)
    for own in header.read_header(file).tensors:
        if own not in FACTORS:
            assert own_name(file, checkpoint_name(own, architecture)) == own


NUMBERS = np.zeros((2, 32), np.float32)


def test_other_architectures_types_and_parts_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    said = refusal(bare(file, "bert", NUMBERS))
    assert "'bert'; supported are llama, qwen2, qwen3, gemma2, gemma3, phi3" in said
    said = refusal(bare(file, "llama", np.zeros((2, 40), np.uint8), Q.Q8_1))
    assert "'blk.0.ffn_up.weight' of type Q8_1; types that are read are F32, F16," in said
    parts = bare(file, "llama", NUMBERS, **{"split.count": 2})
    assert "one part of 2" in refusal(parts) and "--merge" in refusal(parts)
    assert "one part of 3" in refusal(tmp_path / "m-00001-of-00003.gguf")


def test_a_path_without_a_file_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refusal(tmp_path / "no.gguf")
    (tmp_path / "folder.gguf").mkdir()
    assert "config.json" in refusal(tmp_path / "folder.gguf")


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_golden(tmp_path, "qwen2")
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert "need the package gguf" in refusal(file) and "specjax[gguf]" in refusal(file)


@pytest.mark.parametrize(
    "key,value,words",
    [
        ("bos_token_id", 999_999, "bos_token_id is 999999, which is no token"),
        ("model", "bert", "Cannot build a tokenizer"),
    ],
)
def test_a_tokenizer_that_cannot_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: Any, words: str
) -> None:
    file = write_gguf(tmp_path / "m.gguf", make_folder(tmp_path), tokenizer="llama")
    said = header.read_header(file)
    metadata = {**said.metadata, f"tokenizer.ggml.{key}": value}
    changed = dataclasses.replace(said, metadata=metadata)
    monkeypatch.setattr(tokenizer, "read_header", lambda path: changed)
    with pytest.raises(UserError, match=words):
        tokenizer.read_tokenizer(file)
