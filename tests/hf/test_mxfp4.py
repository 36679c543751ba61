"""Experts in MXFP4, the layout of gpt-oss: read exactly, kept in four bits, split over devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import specjax
from specjax.hf import huggingface
from specjax.models.causal import Causal, CausalConfig
from specjax.models.experts import ClampedGate, Mixture
from specjax.models.positions import Rope
from specjax.models.quantized_weights import NUMBERS, count_stored_bytes

VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
VALUES = np.concatenate([VALUES, -VALUES])
"""Of the sixteen codes (OCP MX v1.0, table 5)."""

MIXTURE = Mixture(4, 2, 32, router_bias=True, biased=True, clamp=ClampedGate(1.702, 7.0))
MODEL = Causal(
    CausalConfig(
        "gpt_oss", 48, d_model=64, d_ff=32, num_layers=1, num_heads=4, num_kv_heads=2, d_head=16,
        max_positions=64, rope=Rope(16), windows=(8,), eos=(1,), mixtures=(MIXTURE,),
        qkv_bias=True, out_bias=True, sinks=True,
    )
)  # fmt: skip
EXPERTS = "model.layers.0.mlp.experts."


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A checkpoint with experts in blocks, and one with the same numbers in float32."""
    plain, packed = (tmp_path_factory.mktemp(name) for name in ("plain", "packed"))
    huggingface.save(plain, MODEL, MODEL.init(jax.random.key(0)))
    huggingface.save(packed, MODEL, MODEL.init(jax.random.key(0)))
    tensors, rng = load_file(plain / "model.safetensors"), np.random.default_rng(0)
    others = dict(tensors)
    for name in ("gate_up_proj", "down_proj"):
        experts, inputs, outputs = others.pop(EXPERTS + name).shape
        blocks = rng.integers(0, 256, (experts, outputs, inputs // 32, 16)).astype(np.uint8)
        scales = rng.integers(120, 126, (experts, outputs, inputs // 32)).astype(np.uint8)
        numbers = VALUES[np.stack([blocks % 16, blocks // 16], -1)].reshape(*scales.shape, 32)
        whole = (numbers * 2.0 ** (scales[..., None].astype(np.float32) - 127)).astype(np.float32)
        tensors[EXPERTS + name] = np.ascontiguousarray(
            whole.reshape(experts, outputs, inputs).swapaxes(1, 2)
        )
        others |= {f"{EXPERTS}{name}_blocks": blocks, f"{EXPERTS}{name}_scales": scales}
    save_file(tensors, plain / "model.safetensors")
    save_file(others, packed / "model.safetensors")
    change(packed, quantization_config={"quant_method": "mxfp4", "modules_to_not_convert": []})
    return plain, packed


def change(folder: Path, **fields: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | fields), "utf-8")


def test_experts_are_read_exactly_and_kept_in_four_bits(folders: tuple[Path, Path]) -> None:
    plain, packed = (specjax.load(folder) for folder in folders)
    own = packed.params["layers_0"]["ff"]
    for name in ("gates", "ups", "downs"):
        kernel, expected = own[name], plain.params["layers_0"]["ff"][name]
        assert kernel.qvalue.dtype == NUMBERS["mxfp4"]
        assert count_stored_bytes(kernel.qvalue) * 8 == expected.nbytes
        whole = kernel.qvalue.astype(jnp.float32) * jnp.repeat(kernel.scale, 32, axis=1)
        np.testing.assert_array_equal(whole, expected)
    rest = jax.tree.map(jnp.shape, {name: own[name] for name in own if not name.endswith("s")})
    assert rest == {"router": {"logits": {"bias": (4,), "kernel": (64, 4)}}}


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 9], ids=["gathered", "by_expert"])
def test_logits_are_those_of_the_numbers(folders: tuple[Path, Path], tokens: int) -> None:
    plain, packed = (specjax.load(folder) for folder in folders)
    text = np.random.default_rng(1).integers(2, 48, (1, tokens))
    batch = {"inputs": jnp.asarray(text), "length": jnp.array([tokens])}
    found, expected = (jax.jit(one.model.teach)(one.params, batch)[0] for one in (packed, plain))
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_blocks_that_do_not_fit_are_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    tensors = load_file(folders[1] / "model.safetensors")
    config = json.loads((folders[1] / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    scales = f"{EXPERTS}down_proj_scales"
    for changed, words in (
        (np.full_like(tensors[scales], 255), "has scales that are not finite"),
        (tensors[scales][:, :-1], "requires U8 of"),
        (tensors[scales].astype(np.int32), "has I32 of shape"),
    ):
        save_file(tensors | {scales: np.ascontiguousarray(changed)}, tmp_path / "model.safetensors")
        with pytest.raises(specjax.UserError, match=f"down_proj_scales.*{words}"):
            specjax.load(tmp_path)
    save_file(
        {name: x for name, x in tensors.items() if name != scales}, tmp_path / "model.safetensors"
    )
    with pytest.raises(specjax.UserError, match="lacks the tensor .*down_proj"):
        specjax.load(tmp_path)


def test_a_known_shape_has_the_format_of_its_experts() -> None:
    assert str(huggingface.read_stored_weights("openai/gpt-oss-120b")) == "mxfp4"
