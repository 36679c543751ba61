"""Writes the golden T5Gemma (1 and 2) checkpoints and their expected outputs, from PyTorch.

    python tests/golden/make_t5gemma.py [NAME ...]

As `make_t5.py`, whose inputs these are. Windows are shorter than the texts, caps are low enough to
bend scores and logits, and one model has stacks of different sizes. T5Gemma 2 has a vision tower,
which no text passes, and a token behind images that is one of the texts' here.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.numpy import save_file
from transformers import (
    T5Gemma2Config,
    T5Gemma2ForConditionalGeneration,
    T5GemmaConfig,
    T5GemmaForConditionalGeneration,
)

T5 = runpy.run_path(str(Path(__file__).with_name("make_t5.py")))

STACK = {
    "vocab_size": T5["VOCABULARY"], "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
    "query_pre_attn_scalar": 9, "sliding_window": 7, "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 8.0, "bos_token_id": T5["START"], "eos_token_id": T5["EOS"],
    "pad_token_id": 0,
}  # fmt: skip

SHAPES: dict[str, dict[str, Any]] = {
    "t5gemma": {"encoder": {}, "decoder": {}},
    "t5gemma_unequal": {
        "encoder": {
            "hidden_size": 20, "intermediate_size": 30, "num_hidden_layers": 3, "head_dim": 4,
            "num_key_value_heads": 1, "attn_logit_softcapping": None, "sliding_window": 5,
            "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
        },
        "decoder": {"attention_bias": True, "num_attention_heads": 2, "sliding_window": 3},
        "tie_word_embeddings": False,
    },
    "t5gemma2": {
        "model_type": "t5gemma2",
        "encoder": {"sliding_window": 6, "num_key_value_heads": 4},
        "decoder": {
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 500.0},
                "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
            },
        },
        "eoi_token_index": 9,
    },
}  # fmt: skip

OF_TWO = {
    "attn_logit_softcapping": None,
    "layer_types": ["sliding_attention", "full_attention"],
}
"""In what both halves of T5Gemma 2 are not those of T5Gemma."""

EYES = {
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 2, "intermediate_size": 2,
        "num_hidden_layers": 1, "num_attention_heads": 1, "image_size": 2, "patch_size": 1,
    },
    "mm_tokens_per_image": 1,
}  # fmt: skip


def build(shape: dict[str, Any], seed: int) -> torch.nn.Module:
    """A random model; its `encoder` and `decoder` are `STACK` but for what they say."""
    if shape.get("model_type") == "t5gemma2":
        return build_two(shape, seed)
    stacks = {side: STACK | shape[side] for side in ("encoder", "decoder")}
    config = T5GemmaConfig(**shape | stacks, attn_implementation="eager")
    model = T5GemmaForConditionalGeneration(config).eval()
    randomize(model, torch.Generator().manual_seed(seed))
    return model


def build_two(shape: dict[str, Any], seed: int) -> torch.nn.Module:
    """The same of T5Gemma 2."""
    encoder, decoder = (STACK | OF_TWO | shape[side] for side in ("encoder", "decoder"))
    eyes = EYES | {"text_config": encoder, "eoi_token_index": shape["eoi_token_index"]}
    config = T5Gemma2Config(encoder=eyes, decoder=decoder)
    model = T5Gemma2ForConditionalGeneration(config).eval()
    randomize(model, torch.Generator().manual_seed(seed))
    return model


@torch.no_grad()
def randomize(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Weights of a scale at which every part of the model moves the logits, themselves O(1)."""
    for name, weight in model.named_parameters():
        if name == "model.decoder.norm.weight":
            # Of either sign, or a tied model repeats the token just read for ever.
            weight.uniform_(-3.0, 1.0, generator=generator)
        elif "norm" in name:
            weight.uniform_(-0.5, 0.5, generator=generator)
        elif "eoi_embedding" in name:
            weight.normal_(generator=generator)
        elif "embed_tokens" in name:
            weight.normal_(0.0, weight.shape[-1] ** -0.5, generator=generator)
        elif name.endswith("bias"):
            weight.normal_(0.0, 0.5, generator=generator)
        else:
            weight.normal_(0.0, 2.0 * weight.shape[-1] ** -0.5, generator=generator)


def save(model: torch.nn.Module, folder: Path) -> None:
    """Writes the checkpoint, without the settings of how it was run."""
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()


def main() -> None:
    T5["example"].__globals__["build"] = lambda name, seed: build(SHAPES[name], seed)
    for name in sys.argv[1:] or SHAPES:
        found = ((seed, T5["example"](name, seed)) for seed in range(500))
        seed, (model, arrays) = next((seed, made) for seed, made in found if made is not None)
        folder = Path(__file__).parent / name
        save(model, folder)
        save_file(arrays, folder / "expected.safetensors")
        spread = arrays["logits"].std()
        print(f"{name}: seed {seed}, logits of standard deviation {spread:.2f}")


if __name__ == "__main__":
    main()
