"""Text parts of models that also see, against transformers: logits, tokens, exports."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from decodes import run, texts
from safetensors.numpy import load_file, save_file

torch = pytest.importorskip("torch")

from transformers import (  # noqa: E402
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
)

from specjax.decoding.strategy import Strategy, autoregressive  # noqa: E402
from specjax.drafting.early_exit import EarlyExit  # noqa: E402
from specjax.hf import huggingface  # noqa: E402
from specjax.hf.huggingface import load  # noqa: E402

pytestmark = pytest.mark.slow

GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_causal.py"))
NEW_TOKENS, TOLERANCE = 40, 1e-4
TEXT = {
    **GOLDEN["FILLED"], "vocab_size": GOLDEN["VOCABULARY"], "eos_token_id": GOLDEN["EOS"],
    "pad_token_id": 0, "bos_token_id": 2,
}  # fmt: skip
HEADED = TEXT | {"head_dim": 6}
TOKENS = {name: TEXT[name] for name in ("eos_token_id", "pad_token_id", "bos_token_id")}
GEMMA3N_INPUTS = "vision_tower", "audio_tower", "embed_vision", "embed_audio"
EYES = {
    "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
    "image_size": 28, "patch_size": 14,
}  # fmt: skip
QWEN_EYES = {
    "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 24,
    "patch_size": 2, "spatial_merge_size": 1,
}  # fmt: skip
MROPE = {"rope_type": "default", "rope_theta": 300.0, "mrope_section": [1, 1, 1]}
PARTIAL = MROPE | {"mrope_interleaved": True, "partial_rotary_factor": 0.5}
SHAPES: dict[str, dict[str, Any]] = {
    "gemma3": {
        "text_config": HEADED | {"sliding_window": 7},
        "vision_config": EYES,
        "mm_tokens_per_image": 4,
    },
    "gemma4": {
        "text_config": GOLDEN["GEMMA4"] | TEXT | {"head_dim": 6, "sliding_window": 7},
        "vision_config": EYES | {"num_key_value_heads": 2, "head_dim": 8},
    },
    "qwen2_5_vl": {
        "text_config": TEXT
        | {"rope_parameters": MROPE, "use_sliding_window": True, "sliding_window": 7}
        | {"max_window_layers": 1},
        "vision_config": QWEN_EYES | {"fullatt_block_indexes": [0]},
    },
    "qwen3_vl": {
        "text_config": HEADED | {"rope_parameters": MROPE | {"mrope_interleaved": True}},
        "vision_config": QWEN_EYES
        | {"deepstack_visual_indexes": [0], "num_position_embeddings": 4},
        "tie_word_embeddings": True,
    },
    "qwen3_5": {
        "text_config": GOLDEN["DELTA"]
        | TEXT
        | {"head_dim": 12, "num_hidden_layers": 4, "rope_parameters": PARTIAL},
        "vision_config": QWEN_EYES | {"num_position_embeddings": 4},
        "tie_word_embeddings": True,
    },
    "llama4": {
        "text_config": HEADED
        | {"intermediate_size_mlp": 20, "num_local_experts": 4, "interleave_moe_layer_step": 2}
        | {"no_rope_layers": [1, 0], "attention_chunk_size": 7, "floor_scale": 5},
        "vision_config": EYES
        | {"vision_output_dim": 16, "projector_input_dim": 16, "projector_output_dim": 16},
    },
    "mistral3": {
        "text_config": HEADED | {"model_type": "mistral", "sliding_window": 7},
        "vision_config": EYES | {"model_type": "pixtral", "head_dim": 8},
        "tie_word_embeddings": False,
    },
    "mistral3_ministral3": {
        "text_config": HEADED
        | {"model_type": "ministral3", "rope_parameters": GOLDEN["GROWING"]},
        "vision_config": EYES | {"model_type": "pixtral", "head_dim": 8},
    },
    "mistral3_mistral4": {
        "text_config": TEXT
        | GOLDEN["DEEPSEEK_EXPERTS"]
        | GOLDEN["LATENT"]
        | {"model_type": "mistral4", "rope_parameters": GOLDEN["GROWING"]},
        "vision_config": EYES | {"model_type": "pixtral", "head_dim": 8},
    },
}  # fmt: skip
OLDER = {
    "gemma3": [("model.language_model.", "language_model.model."), ("model.vision", "vision")],
    "qwen2_5_vl": [("model.language_model.", "model."), ("model.visual.", "visual.")],
    "mistral3": [
        ("model.language_model.", "language_model.model."),
        ("lm_head.", "language_model.lm_head."),
        ("model.vision", "vision"),
        ("model.multi_modal", "multi_modal"),
    ],
}
"""How names of tensors began before transformers 5."""


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random PyTorch model that sees, its text part loaded here, and its directory."""
    kind = request.param.removesuffix("_ministral3").removesuffix("_mistral4")
    config = AutoConfig.for_model(kind, **SHAPES[request.param])
    theirs = AutoModelForImageTextToText.from_config(config).eval()
    GOLDEN["randomize"](theirs, torch.Generator().manual_seed(5))
    folder = tmp_path_factory.mktemp(request.param)
    theirs.save_pretrained(folder)
    if kind == "llama4":  # whose whole fails without images in transformers 5.24
        theirs = theirs.language_model
    return theirs, load(folder), folder


def rows() -> tuple[np.ndarray, np.ndarray]:
    return GOLDEN["rows"](GOLDEN["VOCABULARY"], (30, 21, 4), seed=7)


def test_logits_and_greedy_tokens_are_those_of_pytorch(pair: Any) -> None:
    theirs, ours, _ = pair
    tokens, length = rows()
    inside = np.arange(tokens.shape[1]) < length[:, None]
    expected = GOLDEN["logits"](theirs, tokens)
    made = np.asarray(ours.model.module.apply({"params": ours.params}, tokens, length))
    difference = np.abs(made - expected)[inside].max()
    assert difference < TOLERANCE * max(1.0, np.abs(expected).max())
    prompts = [row[:n].tolist() for row, n in zip(tokens, length, strict=True)]
    found = decode(ours, autoregressive(), prompts)
    assert found == [generate_in_torch(theirs, prompt) for prompt in prompts]
    assert decode(ours, Strategy(EarlyExit(3, exit=1)), prompts) == found


def decode(ours: Any, strategy: Strategy, prompts: list[list[int]]) -> list[list[int]]:
    models = (("target", ours.model),)
    return texts(run(models, {"target": ours.params}, strategy, prompts, NEW_TOKENS))


def generate_in_torch(theirs: Any, prompt: list[int]) -> list[int]:
    given = torch.tensor([prompt])
    made = theirs.generate(
        given,
        attention_mask=torch.ones_like(given),
        do_sample=False,
        max_new_tokens=NEW_TOKENS,
    )
    return made[0, len(prompt) :].tolist()


def test_it_is_exported_as_a_text_model_with_its_logits(pair: Any, tmp_path: Path) -> None:
    theirs, ours, _ = pair
    huggingface.save(
        tmp_path / "text", ours.model, ours.params, original_config=ours.original_config
    )
    assert "vision_config" not in json.loads((tmp_path / "text" / "config.json").read_text("utf-8"))
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "text", dtype=torch.float32)
    tokens, _ = rows()
    np.testing.assert_array_equal(
        GOLDEN["logits"](exported.eval(), tokens), GOLDEN["logits"](theirs, tokens)
    )


def test_names_of_tensors_from_before_transformers_5_are_read(pair: Any, tmp_path: Path) -> None:
    _, ours, folder = pair
    config = json.loads((folder / "config.json").read_text("utf-8"))
    if config["model_type"] not in OLDER:
        pytest.skip("it has had one layout")
    tensors = load_file(folder / "model.safetensors")
    for today, before in OLDER[config["model_type"]]:
        tensors = {
            before + name.removeprefix(today) if name.startswith(today) else name: tensor
            for name, tensor in tensors.items()
        }
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    again = load(tmp_path)
    assert again.model == ours.model
    jax.tree.map(np.testing.assert_array_equal, again.params, ours.params)


def test_the_text_part_of_a_gemma_3n_is_read_by_its_names(tmp_path: Path) -> None:
    """Its encoder of images needs a package that tests do not install, so names are changed."""
    text = HEADED | GOLDEN["GEMMA3N"]
    text |= {"sliding_window": 7, "num_hidden_layers": 6, "num_kv_shared_layers": 1}
    theirs = GOLDEN["build"]("gemma3n_text", text, 5)
    tensors = {
        name.replace("model.", "model.language_model.", 1): tensor.detach().numpy()
        for name, tensor in theirs.named_parameters()
    }
    others = {f"model.{part}.weight": np.ones(3, np.float32) for part in GEMMA3N_INPUTS}
    save_file(tensors | others, tmp_path / "model.safetensors")
    whole = {"model_type": "gemma3n", "text_config": text, "vision_config": {}, "audio_config": {}}
    (tmp_path / "config.json").write_text(json.dumps(whole | TOKENS), "utf-8")
    ours, (tokens, length) = load(tmp_path), rows()
    expected = GOLDEN["logits"](theirs, tokens)
    made = np.asarray(ours.model.module.apply({"params": ours.params}, tokens, length))
    inside = np.arange(tokens.shape[1]) < length[:, None]
    assert np.abs(made - expected)[inside].max() < TOLERANCE * np.abs(expected).max()
    text_model = ours.model, ours.params
    huggingface.save(tmp_path / "text", *text_model, original_config=ours.original_config)
    assert "audio_config" not in json.loads((tmp_path / "text" / "config.json").read_text("utf-8"))
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "text", dtype=torch.float32)
    np.testing.assert_array_equal(GOLDEN["logits"](exported.eval(), tokens), expected)


def test_fields_of_the_first_qwen_files_are_beside_those_around_them(tmp_path: Path) -> None:
    """Published Qwen2.5-VL has no `text_config`, and a scaling of the type `mrope`."""
    scaling = {"type": "mrope", "mrope_section": [1, 1, 1]}
    flat = TEXT | {"rope_scaling": scaling, "rope_theta": 300.0}
    config = AutoConfig.for_model(
        "qwen2_5_vl", **flat, vision_config=QWEN_EYES | {"fullatt_block_indexes": [0]}
    )
    theirs = AutoModelForImageTextToText.from_config(config).eval()
    GOLDEN["randomize"](theirs, torch.Generator().manual_seed(6))
    theirs.save_pretrained(tmp_path)
    written = {"model_type": "qwen2_5_vl", **flat, "vision_config": {}, "hidden_act": "silu"}
    (tmp_path / "config.json").write_text(json.dumps(written), "utf-8")
    ours = load(tmp_path)
    assert ours.model.config.rope.theta == 300.0
    tokens, length = rows()
    made = np.asarray(ours.model.module.apply({"params": ours.params}, tokens, length))
    expected = GOLDEN["logits"](theirs, tokens)
    inside = np.arange(tokens.shape[1]) < length[:, None]
    assert np.abs(made - expected)[inside].max() < TOLERANCE * np.abs(expected).max()
