"""Writes golden Medusa heads in the published layout, and what PyTorch computes with them.

    python tests/golden/make_medusa.py

Needs torch; the tests that read the files do not. The heads are on the golden Llama. `logits` is
the published forward pass, written after the description in docs/how_to/published_drafters.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

FOLDER = Path(__file__).parent
COUNT, LAYERS, SEED = 3, 2, 5


def weights(
    width: int, vocabulary: int | None, seed: int, count: int = COUNT, layers: int = LAYERS
) -> dict[str, torch.Tensor]:
    """Random tensors under the names of the layout; without output matrices if those are shared."""
    generator = torch.Generator().manual_seed(seed)

    def draw_tensor(*shape: int) -> torch.Tensor:
        return torch.empty(shape).normal_(0.0, 1.5 * width**-0.5, generator=generator)

    tensors = {}
    for head in range(count):
        for layer in range(layers):
            tensors[f"{head}.{layer}.linear.weight"] = draw_tensor(width, width)
            tensors[f"{head}.{layer}.linear.bias"] = draw_tensor(width)
        if vocabulary is not None:
            tensors[f"{head}.{layers}.weight"] = draw_tensor(vocabulary, width)
    return tensors


@torch.no_grad()
def logits(
    target: torch.nn.Module,
    tensors: Mapping[str, torch.Tensor],
    tokens: np.ndarray,
    count: int = COUNT,
    layers: int = LAYERS,
) -> np.ndarray:
    """Logits [B, T, k, V] of all heads at the target's states at tokens [B, T]."""
    normed = target.model(torch.tensor(tokens, dtype=torch.long)).last_hidden_state
    made = []
    for head in range(count):
        x = normed
        for layer in range(layers):
            name = f"{head}.{layer}.linear"
            x = x + torch.nn.functional.silu(
                x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]
            )
        own = tensors.get(f"{head}.{layers}.weight", target.lm_head.weight)
        made.append(x @ own.T)
    return torch.stack(made, dim=2).numpy()


def save(folder: Path, tensors: Mapping[str, torch.Tensor], count: int, layers: int) -> None:
    """Writes heads as they are published."""
    folder.mkdir(exist_ok=True)
    words = {
        "base_model_name_or_path": "acme/target",
        "medusa_num_heads": count,
        "medusa_num_layers": layers,
        "transformers_version": "4.35.2",
    }
    (folder / "config.json").write_text(json.dumps(words, indent=2) + "\n", "utf-8")
    arrays = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in tensors.items()}
    save_file(arrays, folder / "medusa_lm_head.safetensors", metadata={"format": "pt"})


def main() -> None:
    target = AutoModelForCausalLM.from_pretrained(FOLDER / "llama").eval()
    tokens = load_file(FOLDER / "llama" / "expected.safetensors")["tokens"]
    config = target.config
    tensors = weights(config.hidden_size, config.vocab_size, SEED)
    made = logits(target, tensors, tokens)
    save(FOLDER / "medusa", tensors, COUNT, LAYERS)
    arrays = {"tokens": tokens, "logits": np.ascontiguousarray(made)}
    save_file(arrays, FOLDER / "medusa" / "expected.safetensors")
    print(f"medusa: logits of standard deviation {made.std():.2f}")


if __name__ == "__main__":
    main()
