"""T5Gemma 2: merged attention over rings, its embedding, and what others make of its shape."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run, texts
from exits import MODELS, PARAMS, PROMPTS, Uncached
from golden_models import read_golden, same, teacher_forced
from safetensors.numpy import load_file, save_file
from scripted import chi_square, count_outputs, sequence_distribution

from specjax.decoding.strategy import autoregressive, speculative
from specjax.hf.huggingface import load, save
from specjax.hf.tensors import flat_shapes
from specjax.metrics.operations import transformer_shape
from specjax.models.shapes import get_parameter_shapes
from specjax.runtime.errors import UserError
from specjax.training.surgery import take

GOLDEN = Path(__file__).parents[1] / "golden" / "t5gemma2"
TARGET = MODELS["t5gemma2"]


def copy_with(folder: Path, tensors: dict[str, np.ndarray], **config: Any) -> Path:
    """The golden checkpoint with other tensors and fields."""
    shutil.copytree(GOLDEN, folder)
    save_file(load_file(GOLDEN / "model.safetensors") | tensors, folder / "model.safetensors")
    words = json.loads((GOLDEN / "config.json").read_text("utf-8")) | config
    (folder / "config.json").write_text(json.dumps(words), "utf-8")
    return folder


def test_what_sees_is_left_out_and_an_export_has_no_eyes(tmp_path: Path) -> None:
    stored = load_file(GOLDEN / "model.safetensors")
    unread = {name for name in stored if "vision_tower" in name or "multi_modal" in name}
    checkpoint = load(GOLDEN)
    assert len(unread) > 10
    assert len(stored) - len(unread) == len(jax.tree.leaves(checkpoint.params))
    save(tmp_path, checkpoint.model, checkpoint.params)
    written = load_file(tmp_path / "model.safetensors")
    assert written.keys() == stored.keys() - unread
    for name, tensor in written.items():
        np.testing.assert_array_equal(tensor, stored[name])
    assert load(tmp_path).model == checkpoint.model
    assert (
        json.loads((tmp_path / "config.json").read_text())["encoder"]["vision_config"][
            "num_hidden_layers"
        ]
        == 0
    )


def test_names_in_memory_and_second_copies_are_read(tmp_path: Path) -> None:
    """Transformers says `encoder.text_model`; fine-tuned checkpoints hold shared tensors twice."""
    stored, plain = load_file(GOLDEN / "model.safetensors"), load(GOLDEN)
    table = "embed_tokens.weight"
    copies = {f"model.decoder.{table}": stored[f"model.encoder.{table}"]}
    copies |= {"lm_head.out_proj.weight": stored[f"model.encoder.{table}"]}
    folder = copy_with(tmp_path / "copies", copies)
    moved = {
        name.replace("model.encoder.", "model.encoder.text_model.")
        if "vision" not in name
        else name: x
        for name, x in (stored | copies).items()
    }
    save_file(moved, folder / "model.safetensors")
    found = load(folder)
    assert found.model == plain.model
    jax.tree.map(np.testing.assert_array_equal, found.params, plain.params)


@pytest.mark.parametrize("name", ["weight", "eoi_embedding"])
def test_a_decoder_with_an_embedding_of_its_own_is_refused(name: str, tmp_path: Path) -> None:
    tensor = f"model.decoder.embed_tokens.{name}"
    other = 2.0 * load_file(GOLDEN / "model.safetensors")[tensor.replace("decoder", "encoder")]
    with pytest.raises(UserError, match=f"{tensor}' that differs"):
        load(copy_with(tmp_path / "other", {tensor: other}))


def test_an_output_layer_of_its_own_is_read_and_written(tmp_path: Path) -> None:
    """Beside the decoder's copy of the embedding, without which Hugging Face would draw one."""
    table = load_file(GOLDEN / "model.safetensors")["model.encoder.embed_tokens.weight"]
    head = {"lm_head.out_proj.weight": table + 1.0}
    loaded = load(copy_with(tmp_path / "head", head))
    assert not loaded.model.config.tied
    save(tmp_path / "out", loaded.model, loaded.params)
    written = load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_array_equal(written["model.decoder.embed_tokens.weight"], table)
    assert load(tmp_path / "out").model == loaded.model


def test_the_token_behind_images_has_an_embedding_that_is_not_scaled() -> None:
    golden = read_golden("t5gemma2")
    token = golden.model.config.image_end
    embed = golden.model.embed(golden.params, jnp.array([[3, token]]))
    np.testing.assert_allclose(embed[0, 0], 4.0 * golden.params["embedding"][3], 1e-6)
    np.testing.assert_array_equal(embed[0, 1], golden.params["image_end"])
    assert (golden.target == token).any()


def test_operations_count_one_attention_of_a_decoder_layer() -> None:
    shape, sizes = transformer_shape(TARGET), flat_shapes(get_parameter_shapes(TARGET))
    for side, expected in (
        ("encoder", shape.encoder_layers * shape.reader.encoder_layer_weights),
        ("decoder", shape.decoder_weights),
    ):
        matrices = [
            math.prod(size)
            for where, size in sizes.items()
            if where[0].startswith(f"{side}_") and where[-1] == "kernel"
        ]
        assert expected == sum(matrices)
    assert shape.used_weights == shape.decoder_weights


def test_stacks_are_equally_wide() -> None:
    config = TARGET.config
    with pytest.raises(ValueError, match="hidden_size of the encoder is 16; it must be .* 12"):
        dataclasses.replace(config, decoder=dataclasses.replace(config.decoder, d_model=12))


@functools.cache
def pair() -> tuple[Any, Any]:
    """Models and weights of a target, and of a drafter that has its first and last layer."""
    small, weights = take(TARGET, PARAMS["t5gemma2"], decoder=(0, 2))
    models = (("target", TARGET), ("drafter", small))
    return models, {"target": PARAMS["t5gemma2"], "drafter": weights}


@pytest.mark.slow
def test_a_small_drafter_of_the_family_changes_no_token() -> None:
    models, params = pair()
    baseline = texts(run(models[:1], params, autoregressive(), PROMPTS, 14))
    assert baseline == [Uncached("t5gemma2").greedy(prompt, 14) for prompt in PROMPTS]
    found = run(models, params, speculative(3), PROMPTS, 14)
    assert texts(found) == baseline
    assert 0 < int(found.trace.accepted.sum()) < int(found.trace.drafted.sum())


@pytest.mark.slow
def test_sampled_tokens_keep_the_law_of_the_target() -> None:
    models, params = pair()
    prompt, settings = [3, 11, 5], (1.2, 0, 1.0)
    distribution = sequence_distribution(
        Uncached("t5gemma2"), params["target"], prompt, (0,), 2, settings
    )
    strategy = dataclasses.replace(speculative(2), temperature=1.2)
    found = texts(run(models, params, strategy, [prompt] * 20_000, 3))
    assert chi_square(count_outputs([row[:2] for row in found]), distribution) > 1e-3


def test_teacher_forced_logits_equal_pytorch() -> None:
    golden = read_golden("t5gemma2")
    same(teacher_forced(golden, golden.source), golden.logits)
