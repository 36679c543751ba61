"""Packed checkpoints (compressed-tensors, GPTQ, AWQ): read exactly, or refused by a field's name.

The files are written here by the formats' own rules, number by number, and what is read is compared
with a reference in numpy that knows no word of the reader.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import qwix
from safetensors.numpy import load_file, save_file

import specjax
from specjax.hf import huggingface
from specjax.hf.packed import parse_packing
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.models.quantized_weights import NUMBERS, is_quantized
from specjax.models.shapes import get_parameter_shapes

GOLDEN = Path(__file__).parents[1] / "golden"
GROUP = 8
MODEL = Causal(
    CausalConfig(
        "qwen2", 32, d_model=16, d_ff=24, num_layers=1, num_heads=2, num_kv_heads=2, d_head=8,
        max_positions=64, rope=Rope(8), eos=(1,), qkv_bias=True,
    )
)  # fmt: skip
Tensors = dict[str, np.ndarray]


def words(numbers: list[int], bits: int) -> list[int]:
    """Numbers of so many bits in 32-bit words, the first one lowest, as signed integers."""
    per = 32 // bits
    made = []
    for start in range(0, len(numbers), per):
        word = sum(int(n) << (bits * i) for i, n in enumerate(numbers[start : start + per]))
        made.append(word - (1 << 32) if word >= 1 << 31 else word)
    return made


def rows_packed(table: np.ndarray, bits: int) -> np.ndarray:
    return np.array([words(list(row), bits) for row in table], np.int32)


def columns_packed(table: np.ndarray, bits: int) -> np.ndarray:
    return np.ascontiguousarray(rows_packed(table.T, bits).T)


def interleave_words(table: np.ndarray) -> np.ndarray:
    """Rows packed as AWQ's kernels want them: a word's numbers are columns 0 2 4 6 1 3 5 7."""
    order = [start + i for start in range(0, table.shape[1], 8) for i in (0, 2, 4, 6, 1, 3, 5, 7)]
    return rows_packed(table[:, order], 4)


def draw_integers(
    rng: Any, inputs: int, outputs: int, bits: int, groups: int
) -> tuple[Any, Any, Any]:
    """Unsigned integers [D, F], scales [G, F] and zero points [G, F], every value among them."""
    top = 1 << bits
    integers = rng.integers(0, top, (inputs, outputs))
    integers.flat[:top] = np.arange(top)[: integers.size]
    scale = rng.uniform(0.01, 0.1, (groups, outputs)).astype(np.float16)
    return integers, scale, rng.integers(0, top, (groups, outputs))


def reference(integers: np.ndarray, scale: np.ndarray, zero: Any) -> np.ndarray:
    """(integer - zero point) * scale, number by number."""
    group = len(integers) // len(scale)
    whole = np.empty(integers.shape, np.float32)
    for i, j in np.ndindex(*integers.shape):
        shift = int(zero[i // group, j] if np.ndim(zero) else zero)
        whole[i, j] = np.float32(int(integers[i, j]) - shift) * np.float32(scale[i // group, j])
    return whole


def compressed_tensors(bits: int, groups: bool) -> Callable[..., tuple[Tensors, np.ndarray]]:
    def write(rng: Any, name: str, inputs: int, outputs: int) -> tuple[Tensors, np.ndarray]:
        count = inputs // GROUP if groups else 1
        integers, scale, _ = draw_integers(rng, inputs, outputs, bits, count)
        stored = {
            f"{name}.weight_packed": rows_packed(integers.T, bits),
            f"{name}.weight_scale": np.ascontiguousarray(scale.T),
            f"{name}.weight_shape": np.array([outputs, inputs]),
        }
        return stored, reference(integers, scale, 1 << (bits - 1))

    return write


def int_quantized(rng: Any, name: str, inputs: int, outputs: int) -> tuple[Tensors, np.ndarray]:
    integers, scale, _ = draw_integers(rng, inputs, outputs, 8, 1)
    stored = {
        f"{name}.weight": np.ascontiguousarray((integers.T - 128).astype(np.int8)),
        f"{name}.weight_scale": np.ascontiguousarray(scale.T),
    }
    return stored, reference(integers, scale, 128)


def gptq(bits: int, less: int) -> Callable[..., tuple[Tensors, np.ndarray]]:
    def write(rng: Any, name: str, inputs: int, outputs: int) -> tuple[Tensors, np.ndarray]:
        integers, scale, zero = draw_integers(rng, inputs, outputs, bits, inputs // GROUP)
        half = 1 << (bits - 1)
        stored = {
            f"{name}.qweight": columns_packed(integers, bits),
            f"{name}.qzeros": rows_packed(np.full_like(zero, half - less), bits),
            f"{name}.scales": scale,
            f"{name}.g_idx": np.arange(inputs, dtype=np.int32) // GROUP,
        }
        return stored, reference(integers, scale, half)

    return write


def awq(rng: Any, name: str, inputs: int, outputs: int) -> tuple[Tensors, np.ndarray]:
    integers, scale, zero = draw_integers(rng, inputs, outputs, 4, inputs // GROUP)
    stored = {
        f"{name}.qweight": interleave_words(integers),
        f"{name}.qzeros": interleave_words(zero),
        f"{name}.scales": scale,
    }
    return stored, reference(integers, scale, zero)


def ct_config(bits: int, group: int | None, form: str = "pack-quantized") -> dict[str, Any]:
    weights = {
        "num_bits": bits, "type": "int", "symmetric": True, "dynamic": False, "actorder": None,
        "strategy": "group" if group else "channel", "group_size": group, "block_structure": None,
        "observer": "minmax", "observer_kwargs": {},
    }  # fmt: skip
    inside = {"targets": ["Linear"], "input_activations": None, "output_activations": None}
    return {
        "quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
        "config_groups": {"group_0": {**inside, "weights": weights}}, "kv_cache_scheme": None,
        "quantization_status": "compressed", "global_compression_ratio": 1.5,
    }  # fmt: skip


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}
FORMATS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "w4a16": ("int4:8", ct_config(4, GROUP), compressed_tensors(4, True)),
    "w8a16": ("int8", ct_config(8, None), compressed_tensors(8, False)),
    "int8": ("int8", ct_config(8, None, "int-quantized"), int_quantized),
    "gptq": ("int4:8", GPTQ | {"damp_percent": 0.01, "true_sequential": True}, gptq(4, 1)),
    "gptq_int8": ("int8:8", GPTQ | {"bits": 8}, gptq(8, 1)),
    "gptq_v2": ("int4:8", GPTQ | {"checkpoint_format": "gptq_v2"}, gptq(4, 0)),
    "awq": ("int4:8", AWQ, awq),
}
"""What `load` would call such weights, the configuration, and what writes a kernel."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """An unpacked checkpoint, of random numbers."""
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda leaf: rng.normal(0, 0.3, leaf.shape).astype(np.float32), get_parameter_shapes(MODEL)
    )
    folder = tmp_path_factory.mktemp("plain")
    huggingface.save(folder / "model", MODEL, params)
    return folder / "model"


def write_packed(
    folder: Path, plain: Path, said: dict[str, Any], write: Any
) -> dict[str, np.ndarray]:
    """A packed checkpoint, and the kernels [in, out] that its integers stand for, by name."""
    rng, stored, wholes = np.random.default_rng(7), {}, {}
    for name, tensor in load_file(plain / "model.safetensors").items():
        if "_proj.weight" in name:
            base = name.removesuffix(".weight")
            made, wholes[base] = write(rng, base, *tensor.shape[::-1])
            stored |= made
        else:
            stored[name] = tensor
    folder.mkdir(exist_ok=True)
    save_file(stored, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((plain / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": said}))
    return wholes


PLACES = {
    ("attention", "q"): "self_attn.q_proj", ("attention", "o"): "self_attn.o_proj",
    ("ff", "up"): "mlp.up_proj", ("ff", "down"): "mlp.down_proj",
}  # fmt: skip


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_read_is_what_the_format_says(name, plain, tmp_path):
    spelled, said, write = FORMATS[name]
    wholes = write_packed(tmp_path, plain, said, write)
    loaded = specjax.load(tmp_path)
    layer = loaded.params["layers_0"]
    for (block, kernel), tensor in PLACES.items():
        found = layer[block][kernel]["kernel"]
        assert isinstance(found, qwix.QArray)
        assert found.qvalue.dtype == NUMBERS[spelled[:4]]
        np.testing.assert_array_equal(
            qwix.dequantize(found), wholes[f"model.layers.0.{tensor}"], err_msg=tensor
        )
    assert not is_quantized(loaded.params["head"]["kernel"])
    assert str(huggingface.read_stored_weights(tmp_path)) == spelled


@pytest.mark.slow
@pytest.mark.parametrize("name", ["awq"])
def test_a_packed_model_writes_what_its_wide_one_writes(name, plain, tmp_path):
    _, said, write = FORMATS[name]
    write_packed(tmp_path, plain, said, write)
    packed = specjax.load(tmp_path)

    def whole(leaf: Any) -> Any:
        return qwix.dequantize(leaf) if is_quantized(leaf) else leaf

    params = jax.tree.map(whole, packed.params, is_leaf=is_quantized)
    wide = specjax.LoadedModel(packed.model, params)
    prompts = [[5, 9, 23, 4], [7, 8]]
    tokens = [specjax.Generator(m, max_new_tokens=8)(prompts).tokens for m in (packed, wide)]
    assert tokens[0] == tokens[1]


def change_config(said: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A configuration of compressed-tensors with other fields of its weights or its group."""
    made = json.loads(json.dumps(said))
    group = made["config_groups"]["group_0"]
    for field, value in fields.items():
        (group if field in group else group["weights"])[field] = value
    return made


REFUSED = {
    "quant_method": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    "desc_act": GPTQ | {"desc_act": True},
    "sym": GPTQ | {"sym": False},
    "bits": GPTQ | {"bits": 3},
    "checkpoint_format": GPTQ | {"checkpoint_format": "marlin"},
    "zero_point": AWQ | {"zero_point": False},
    "version": AWQ | {"version": "gemv"},
    "group_size": AWQ | {"group_size": 0},
    "input_activations": change_config(ct_config(8, None), input_activations={"num_bits": 8}),
    "symmetric": change_config(ct_config(4, GROUP), symmetric=False),
    "actorder": change_config(ct_config(4, GROUP), actorder="group"),
    "num_bits": change_config(ct_config(4, GROUP), num_bits=2),
    "type": change_config(ct_config(8, None), type="float"),
    "strategy": change_config(ct_config(4, GROUP), strategy="tensor_group"),
    "format": ct_config(4, GROUP, "marlin-24"),
    "kv_cache_scheme": ct_config(8, None) | {"kv_cache_scheme": {"num_bits": 8}},
    "surprise": AWQ | {"surprise": 1},
    "config_groups": ct_config(8, None) | {"config_groups": {}},
}


@pytest.mark.parametrize("field", REFUSED)
def test_other_formats_are_refused_by_the_name_of_the_field(field):
    with pytest.raises(ValueError, match=rf"quantization_config.*{field}"):
        parse_packing({"quantization_config": REFUSED[field]})


BROKEN = {
    "zero points": lambda t: t["qzeros"].__iadd__(1),
    "g_idx": lambda t: t["g_idx"].sort() or np.copyto(t["g_idx"], t["g_idx"][::-1].copy()),
    "int32": lambda t: t.__setitem__("qweight", t["qweight"].astype(np.int64)),
    "requires groups": lambda t: t.__setitem__("scales", t["scales"][:1]),
    "config.json requires": lambda t: t.__setitem__("qweight", t["qweight"][:1]),
}


@pytest.mark.parametrize("words", BROKEN)
def test_tensors_that_contradict_their_configuration_are_refused(words, plain, tmp_path):
    write_packed(tmp_path, plain, *FORMATS["gptq"][1:])
    tensors = {n: np.array(t) for n, t in load_file(tmp_path / "model.safetensors").items()}
    base = "model.layers.0.self_attn.o_proj."
    parts = {n.removeprefix(base): t for n, t in tensors.items() if n.startswith(base)}
    BROKEN[words](parts)
    tensors |= {base + n: np.ascontiguousarray(t) for n, t in parts.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(specjax.UserError, match=f"o_proj.*{words}"):
        specjax.load(tmp_path)


@pytest.mark.parametrize(
    ("family", "kernel", "what"),
    [
        ("phi3", "model.layers.0.self_attn.qkv_proj", "several kernels in one"),
        ("phi3", "model.layers.0.mlp.gate_up_proj", "several kernels in one"),
        ("gpt_neox", "gpt_neox.layers.0.attention.query_key_value", "several kernels in one"),
        ("mixtral", "", "one of stacked experts"),
        ("qwen3_moe", "", "one of stacked experts"),
        ("gpt2", "", "several kernels in one|stored with inputs first"),
    ],
)
@pytest.mark.parametrize("name", ["gptq", "awq", "w4a16", "int8"])
def test_packed_tensors_that_are_no_whole_kernel_are_refused(family, kernel, what, name, tmp_path):
    golden = GOLDEN / family
    tensors = load_file(golden / "model.safetensors")
    inside = "c_attn" if family == "gpt2" else "experts.0"
    kernel = kernel or next(
        n.removesuffix(".weight") for n in tensors if inside in n and n.endswith(".weight")
    )
    outputs, inputs = tensors.pop(f"{kernel}.weight").shape
    _, said, write = FORMATS[name]
    made, _ = write(np.random.default_rng(3), kernel, inputs // GROUP * GROUP, outputs // 8 * 8)
    save_file(tensors | made, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((golden / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization_config": said}))
    with pytest.raises(specjax.UserError, match=f"is packed, and of family '{family}' it is") as e:
        specjax.load(tmp_path)
    assert kernel in str(e.value) and "\n" not in str(e.value)
    assert any(words in str(e.value) for words in what.split("|"))


def test_what_is_small_already_is_not_made_smaller(plain, tmp_path):
    write_packed(tmp_path, plain, *FORMATS["gptq"][1:])
    with pytest.raises(specjax.UserError, match="weights is 'int8'.*stored in int4"):
        specjax.load(tmp_path, weights="int8")
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.layers.0.mlp.up_proj.scales"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(specjax.UserError, match="lacks 'scales' next to"):
        specjax.load(tmp_path)
