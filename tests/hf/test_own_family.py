"""A model family from outside of the package: Seed-OSS, as a table in `tests/support`."""

from __future__ import annotations

import importlib
import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import specjax
from specjax.contracts.registry import FAMILIES

GOLDEN = Path(__file__).parents[1] / "golden"
SHAPE: dict[str, Any] = {
    "vocab_size": 96, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
    "num_attention_heads": 5, "num_key_value_heads": 1, "head_dim": 6,
    "max_position_embeddings": 128,
}  # fmt: skip
CONFIG = SHAPE | {
    "architectures": ["SeedOssForCausalLM"], "model_type": "seed_oss", "residual_dropout": 0.1,
    "rope_theta": 5000.0, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
}  # fmt: skip
Tensors = dict[str, np.ndarray]


@pytest.fixture(scope="module", autouse=True)
def seed_oss() -> Iterator[None]:
    """The family is known in this file only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FAMILIES, "_entries", dict(FAMILIES))
        patch.delitem(sys.modules, "seed_oss", raising=False)
        importlib.import_module("seed_oss")
        yield
        del sys.modules["seed_oss"]


def draw_tensors(seed: int, out_bias: bool) -> Tensors:
    """Tensors of the shape under the names that transformers gives them."""
    rng, width, heads, inner = np.random.default_rng(seed), 24, 5 * 6, 40
    shapes = {"model.embed_tokens": (96, width), "lm_head": (96, width)}
    biased, norms = [], ["model.norm"]
    for layer in (f"model.layers.{number}" for number in range(2)):
        attention, ff = f"{layer}.self_attn", f"{layer}.mlp"
        shapes |= {f"{attention}.q_proj": (heads, width), f"{attention}.o_proj": (width, heads)}
        shapes |= {f"{attention}.{w}_proj": (6, width) for w in "kv"}
        shapes |= {f"{ff}.{w}_proj": (inner, width) for w in ("gate", "up")}
        shapes[f"{ff}.down_proj"] = width, inner
        biased += [f"{attention}.{w}_proj" for w in ("qkvo" if out_bias else "qkv")]
        norms += [f"{layer}.input_layernorm", f"{layer}.post_attention_layernorm"]
    sizes = {f"{name}.weight": shape for name, shape in shapes.items()}
    sizes |= {f"{name}.weight": (width,) for name in norms}
    sizes |= {f"{name}.bias": shapes[name][:1] for name in biased}
    return {name: rng.normal(0.0, 0.5, size).astype(np.float32) for name, size in sizes.items()}


def write_checkpoint(folder: Path, tensors: Tensors, **fields: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG | fields), "utf-8")
    save_file(tensors, folder / "model.safetensors")
    return folder


@pytest.mark.parametrize("out_bias", [False, True])
def test_it_is_read_from_safetensors_and_exported_as_it_was(out_bias: bool, tmp_path: Path) -> None:
    tensors = draw_tensors(0, out_bias)
    folder = write_checkpoint(tmp_path / "in", tensors, attention_out_bias=out_bias)
    loaded = specjax.load(folder)
    config = loaded.model.config
    assert (config.qkv_bias, config.out_bias, config.ff_bias) == (True, out_bias, False)
    loaded.save(tmp_path / "out")
    again = specjax.load(tmp_path / "out")
    assert again.model == loaded.model
    jax.tree.map(np.testing.assert_array_equal, again.params, loaded.params)
    stored = load_file(tmp_path / "out" / "model.safetensors")
    jax.tree.map(np.testing.assert_array_equal, stored, tensors)


@pytest.mark.slow
def test_as_a_target_with_a_drafter_it_gives_the_tokens_that_it_gives_alone(tmp_path: Path) -> None:
    tensors, noise = draw_tensors(0, False), draw_tensors(1, False)
    near = {name: tensor + 0.1 * noise[name] for name, tensor in tensors.items()}
    target = specjax.load(write_checkpoint(tmp_path / "target", tensors))
    drafter = specjax.load(write_checkpoint(tmp_path / "drafter", near))
    prompts = np.random.default_rng(2).integers(2, 96, (4, 7)).tolist()
    baseline = specjax.Generator(target, max_new_tokens=24, bucket=64)(prompts)
    drafted = specjax.Generator(
        target, {"drafter": drafter}, specjax.speculative(length=3), max_new_tokens=24, bucket=64
    )(prompts)
    assert drafted.tokens == baseline.tokens
    assert sum(map(len, baseline.tokens)) > 48  # not all ended at once
    assert 0.1 < drafted.statistics.acceptance_rate < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields", [{}, {"attention_out_bias": True, "mlp_bias": True}, {"attention_bias": False}]
)
def test_logits_equal_those_of_transformers_before_and_after_an_export(
    fields: dict[str, bool], tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    from transformers import AutoModelForCausalLM, SeedOssConfig, SeedOssForCausalLM

    maker = runpy.run_path(str(GOLDEN / "make_causal.py"))
    rope = {"rope_type": "default", "rope_theta": 5000.0}
    theirs = SeedOssForCausalLM(SeedOssConfig(**SHAPE, rope_parameters=rope, **fields)).eval()
    maker["randomize"](theirs, torch.Generator().manual_seed(3))
    theirs.save_pretrained(tmp_path / "in")
    ours = specjax.load(tmp_path / "in")
    tokens, length = maker["rows"](96, (40, 40, 40), 5)
    expected = maker["logits"](theirs, tokens)
    found = ours.model.module.apply({"params": ours.params}, tokens, length)
    assert np.abs(np.asarray(found) - expected).max() < 1e-4 * np.abs(expected).max()
    ours.save(tmp_path / "out")
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype=torch.float32)
    np.testing.assert_array_equal(maker["logits"](exported.eval(), tokens), expected)
