"""Writes the golden Pix2Struct checkpoint and its expected outputs, computed by PyTorch.

    python tests/golden/make_pix2struct.py

Needs torch and transformers; the tests that read the files need neither. The directory has a tiny
random model, its processor's file, and `expected.safetensors`: pixels of images of several shapes,
their patches by transformers' processor, teacher-forced float32 logits, and greedy continuations by
`generate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import Pix2StructConfig, Pix2StructForConditionalGeneration
from transformers.models.pix2struct.image_processing_pil_pix2struct import (
    Pix2StructImageProcessorPil,
)

FOLDER = Path(__file__).parent / "pix2struct"
VOCABULARY, START, EOS, NEW_TOKENS = 96, 0, 1, 20
SIZES = (40, 60), (33, 20), (8, 90), (5, 5)
"""Heights and widths of images, which have fewer patches than there may be; the last is small."""

TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 24, "d_kv": 8, "d_ff": 20, "num_layers": 3,
    "num_heads": 3, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 20,
}  # fmt: skip
VISION: dict[str, Any] = {
    "hidden_size": 24, "patch_embed_hidden_size": 3 * 4 * 6, "d_kv": 5, "d_ff": 28,
    "num_hidden_layers": 2, "num_attention_heads": 4, "seq_len": 32,
}  # fmt: skip
PROCESSOR: dict[str, Any] = {"max_patches": 24, "patch_size": {"height": 4, "width": 6}}


def build(seed: int, text: Any = None, vision: Any = None, **changes: Any) -> Any:
    """A random model, with changes to the configurations of its sides."""
    sides = {"text_config": TEXT | (text or {}), "vision_config": VISION | (vision or {})}
    model = Pix2StructForConditionalGeneration(Pix2StructConfig(**sides, **changes)).eval()
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
        elif "embed_tokens" in name:
            weight.normal_(0.0, 0.7, generator=generator)
        elif "embed" in name and "projection" not in name or "attention_bias" in name:
            weight.normal_(0.0, 1.0, generator=generator)
        else:
            weight.normal_(0.0, 1.2 * weight[0].numel() ** -0.5, generator=generator)


def processor(**changes: Any) -> Pix2StructImageProcessorPil:
    return Pix2StructImageProcessorPil(**PROCESSOR | changes)


def images(seed: int, sizes: tuple[tuple[int, int], ...] = SIZES) -> list[np.ndarray]:
    """Random pixels [H, W, 3], brighter to the right and downwards by a slope of each."""
    rng, made = np.random.default_rng(seed), []
    for height, width in sizes:
        ramps = [np.linspace(0, 1, size) * rng.uniform(-1, 1) for size in (height, width)]
        slope = ramps[0][:, None, None] + ramps[1][:, None] + rng.uniform(0, 1, 3)
        pixels = 90 * slope + rng.uniform(0, 90, (height, width, 3))
        made.append(pixels.clip(0, 255).astype(np.uint8))
    return made


def patches(pixels: list[np.ndarray], **changes: Any) -> dict[str, torch.Tensor]:
    """What PyTorch's model reads of images: patches [B, P, M] and their mask."""
    return dict(
        processor(**changes)(pixels, return_tensors="pt", input_data_format="channels_last")
    )


@torch.no_grad()
def logits(model: Any, given: dict[str, torch.Tensor], target: np.ndarray) -> np.ndarray:
    """Teacher-forced logits [B, T, V]."""
    tokens = torch.tensor(target, dtype=torch.long)
    return model(**given, decoder_input_ids=tokens, use_cache=False).logits.numpy()


def greedy(model: Any, given: dict[str, torch.Tensor], new_tokens: int = NEW_TOKENS) -> list:
    """Texts of `generate` up to and with their EOS, without the start token."""
    settings = {"max_new_tokens": new_tokens, "do_sample": False, "num_beams": 1}
    made = model.generate(**given, **settings)[:, 1:].tolist()
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in made]


def main() -> None:
    model, pixels = build(3), images(5)
    model.save_pretrained(FOLDER)
    processor().save_pretrained(FOLDER)
    given = patches(pixels)
    target = np.random.default_rng(6).integers(2, VOCABULARY, (len(pixels), 12))
    target[:, 0] = START
    found = greedy(model, given)
    texts = np.full((len(pixels), NEW_TOKENS), EOS, np.int32)
    for row, text in enumerate(found):
        texts[row, : len(text)] = text
    expected = {f"pixels_{number}": image for number, image in enumerate(pixels)}
    expected |= {
        "patches": given["flattened_patches"].numpy(),
        "target": target.astype(np.int32),
        "logits": logits(model, given, target),
        "texts": texts,
    }
    arrays = {name: np.ascontiguousarray(array) for name, array in expected.items()}
    save_file(arrays, FOLDER / "expected.safetensors")
    print(found, np.abs(expected["logits"]).max())


if __name__ == "__main__":
    main()
