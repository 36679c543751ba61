"""Writes the golden image-to-text checkpoint and its expected outputs, computed by PyTorch.

    python tests/golden/make_trocr.py

Needs torch and transformers; the tests that read the files need neither. The directory holds a tiny
random model and `expected.safetensors`: images as their processor leaves them, teacher-forced
float32 logits, and greedy continuations by `generate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import (
    AutoConfig,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
)

FOLDER = Path(__file__).parent / "trocr"
VOCABULARY, EOS, PAD, START, NEW_TOKENS = 96, 2, 1, 2, 20
ENCODER: dict[str, Any] = {
    "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40,
    "image_size": [16, 48], "patch_size": 8,
}  # fmt: skip
DECODER: dict[str, Any] = {
    "vocab_size": VOCABULARY, "d_model": 16, "decoder_layers": 2, "decoder_attention_heads": 2,
    "decoder_ffn_dim": 20, "max_position_embeddings": 64, "is_decoder": True,
    "cross_attention_hidden_size": ENCODER["hidden_size"],
}  # fmt: skip


SWIN: dict[str, Any] = {
    "embed_dim": 6, "depths": [1, 2], "num_heads": [1, 2], "window_size": 3, "patch_size": 4,
    "image_size": [28, 48],
}  # fmt: skip


def build(
    seed: int, kind: str = "vit", encoder: Any = None, decoder: Any = None, writer: str = "trocr"
) -> VisionEncoderDecoderModel:
    """A random model, with changes to the configurations of its sides."""
    sides = (
        AutoConfig.for_model(kind, **(SWIN if kind == "donut-swin" else ENCODER) | (encoder or {})),
        AutoConfig.for_model(writer, **DECODER | (decoder or {})),
    )
    shape = VisionEncoderDecoderConfig.from_encoder_decoder_configs(*sides)
    shape.decoder_start_token_id, shape.pad_token_id, shape.eos_token_id = START, PAD, EOS
    model = VisionEncoderDecoderModel(config=shape).eval()
    randomize(model, torch.Generator().manual_seed(seed))
    return model


@torch.no_grad()
def randomize(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Weights of a scale at which every part of the model moves the logits, themselves O(1)."""
    for name, weight in model.named_parameters():
        if "norm" in name and name.endswith("weight"):
            weight.uniform_(0.5, 1.5, generator=generator)
        elif name.endswith("bias"):
            weight.normal_(0.0, 0.3, generator=generator)
        elif "embed" in name and "projection" not in name:
            weight.normal_(0.0, 0.7, generator=generator)
        else:
            weight.normal_(0.0, 1.5 * weight[0].numel() ** -0.5, generator=generator)


def images(model: Any, seed: int, rows: int) -> np.ndarray:
    """Random images [B, C, H, W] as a model of this shape reads them.

    Each has a color of its own, or attention over all patches would find them much alike.
    """
    shape = model.config.encoder
    rng = np.random.default_rng(seed)
    size = shape.image_size
    height, width = (size, size) if isinstance(size, int) else size
    color = 2.0 * rng.normal(size=(rows, shape.num_channels, 1, 1))
    pixels = rng.normal(size=(rows, shape.num_channels, height, width))
    return (color + pixels).astype(np.float32)


@torch.no_grad()
def logits(model: Any, pixels: np.ndarray, target: np.ndarray) -> np.ndarray:
    """Teacher-forced logits [B, T, V]."""
    given = {"decoder_input_ids": torch.tensor(target, dtype=torch.long)}
    return model(pixel_values=torch.tensor(pixels), **given, use_cache=False).logits.numpy()


def greedy(model: Any, pixels: np.ndarray, new_tokens: int = NEW_TOKENS) -> list[list[int]]:
    """Texts of `generate` up to and with their EOS, without the start token."""
    settings = {"max_new_tokens": new_tokens, "do_sample": False, "num_beams": 1}
    made = model.generate(pixel_values=torch.tensor(pixels), **settings)[:, 1:].tolist()
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in made]


def main() -> None:
    model = build(3)
    model.save_pretrained(FOLDER)
    pixels, rows = images(model, 5, 3), 3
    target = np.random.default_rng(6).integers(3, VOCABULARY, (rows, 12))
    target[:, 0] = START
    found = greedy(model, pixels)
    texts = np.full((rows, NEW_TOKENS), PAD, np.int32)
    for row, text in enumerate(found):
        texts[row, : len(text)] = text
    expected = {
        "pixels": pixels,
        "target": target.astype(np.int32),
        "logits": logits(model, pixels, target),
        "texts": texts,
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in expected.items()}
    save_file(arrays, FOLDER / "expected.safetensors")
    print(found, np.abs(expected["logits"]).max())


if __name__ == "__main__":
    main()
