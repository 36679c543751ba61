"""Writes a golden DFlash drafter in the published layout, and what PyTorch computes with it.

    python tests/golden/make_dflash.py

Needs torch; the tests that read the files do not. `Drafter` is the published forward pass, written
after the descriptions in docs/how_to/published_drafters.md: whole rows, no cache. The directory
holds a tiny random drafter and `expected.safetensors`: a target's embedding and output matrix, a
text whose last token is pending, the target's states at the others, and the logits of a block.
"""

from __future__ import annotations

import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

FOLDER = Path(__file__).parent
EAGLE3 = runpy.run_path(str(FOLDER / "make_eagle3.py"))
LAYER, Layer, save = EAGLE3["LAYER"], EAGLE3["Drafter"], EAGLE3["save"]
ROWS, LENGTH, SEED = 2, 13, 7


def make_config(**changes: Any) -> dict[str, Any]:
    """`config.json` as z-lab and SpecForge write it."""
    own = {
        "architectures": ["DFlashDraftModel"], "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "model_type": "qwen3", "num_hidden_layers": 2, "block_size": 5, "num_target_layers": 7,
        "dflash_config": {"mask_token_id": 93, "target_layer_ids": [1, 3, 4]},
        "layer_types": ["full_attention"] * 2, "max_window_layers": 2, "rope_theta": 1e6,
        "rope_scaling": None, "sliding_window": None, "use_sliding_window": False,
    }  # fmt: skip
    return LAYER | own | changes


class Drafter(Layer):
    """The published forward pass on a checkpoint's own tensors and a target's two tables."""

    def __init__(
        self,
        config: Mapping[str, Any],
        tensors: Mapping[str, torch.Tensor],
        embedding: torch.Tensor,
        head: torch.Tensor,
    ) -> None:
        super().__init__(config, tensors)
        self.embedding, self.head = embedding, head

    def norms_heads(self) -> bool:
        return True

    def after_layer(self, x: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
        """The block's states [B, N, D]; read [B, T, D] are the fused states of the text."""
        begin = read.shape[1]
        h = self.norm(x, f"{self.block}.input_layernorm")
        q = self.heads(h, "q", True, begin)
        k = torch.cat([self.heads(read, "k", True), self.heads(h, "k", True, begin)], dim=2)
        v = torch.cat([self.heads(read, "v", False), self.heads(h, "v", False)], dim=2)
        unseen = torch.zeros(x.shape[1], k.shape[2], dtype=torch.bool)
        return self.fed_forward(x + self.attended(q, k, v, unseen))

    @torch.no_grad()
    def block_logits(self, tokens: np.ndarray, features: np.ndarray, size: int) -> np.ndarray:
        """Logits [B, N - 1, V] of the masks of a block behind a text [B, T].

        `features` [B, T - 1, F * E] are the target's states at all tokens but the last.
        """
        mask = self.config["dflash_config"]["mask_token_id"]
        block = torch.full((len(tokens), size), mask)
        block[:, 0] = torch.tensor(tokens)[:, -1]
        x = self.embedding[block]
        read = self.norm(self.linear(torch.tensor(features), "fc"), "hidden_norm")
        for number in range(self.config["num_hidden_layers"]):
            self.block = f"layers.{number}"
            x = self.after_layer(x, read)
        return (self.norm(x, "norm") @ self.head.T)[:, 1:].numpy()


def draw_tensors(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, torch.Tensor]:
    """Random tensors; those of one dimension are scales of norms, or biases."""
    generator = torch.Generator().manual_seed(seed)

    def one(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if len(shape) == 1:
            low, high = (-0.5, 0.5) if name.endswith("bias") else (0.5, 1.5)
            return torch.empty(shape).uniform_(low, high, generator=generator)
        return torch.empty(shape).normal_(0.0, 1.5 * shape[-1] ** -0.5, generator=generator)

    return {name: one(name, shape) for name, shape in shapes.items()}


def weights(config: Mapping[str, Any], seed: int) -> dict[str, torch.Tensor]:
    """Random tensors under the names of the layout."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or width // config["num_attention_heads"]
    queries, keys = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    read = len(config["dflash_config"]["target_layer_ids"])
    shapes = {"fc.weight": (width, read * width), "norm.weight": (width,)}
    shapes["hidden_norm.weight"] = (width,)
    of_layer = {
        "input_layernorm": (width,), "post_attention_layernorm": (width,),
        "self_attn.q_norm": (head,), "self_attn.k_norm": (head,),
        "self_attn.q_proj": (queries, width), "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width), "self_attn.o_proj": (width, queries),
        "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }  # fmt: skip
    for number in range(config["num_hidden_layers"]):
        for name, shape in of_layer.items():
            shapes[f"layers.{number}.{name}.weight"] = shape
            if config["attention_bias"] and name.startswith("self_attn.") and "proj" in name:
                shapes[f"layers.{number}.{name}.bias"] = shape[:1]
    return draw_tensors(shapes, seed)


def tables(config: Mapping[str, Any], seed: int) -> dict[str, torch.Tensor]:
    """A target's embedding and output matrix."""
    shape = config["vocab_size"], config["hidden_size"]
    return draw_tensors({"embedding": shape, "head": shape}, seed)


def text(config: Mapping[str, Any], seed: int, length: int = LENGTH) -> dict[str, np.ndarray]:
    """Random tokens, the last of them pending, and states of a target at the others."""
    random, read = np.random.default_rng(seed), len(config["dflash_config"]["target_layer_ids"])
    shape = ROWS, length - 1, read * config["hidden_size"]
    return {
        "tokens": random.integers(2, config["vocab_size"], (ROWS, length)).astype(np.int32),
        "features": random.normal(0, 2, shape).astype(np.float32),
    }


def main() -> None:
    config = make_config()
    tensors, target, given = weights(config, SEED), tables(config, SEED + 1), text(config, SEED)
    drafter = Drafter(config, tensors, **target)
    logits = drafter.block_logits(**given, size=config["block_size"])
    save(FOLDER / "dflash", config, tensors)
    arrays = {name: tensor.numpy() for name, tensor in target.items()}
    save_file(given | arrays | {"logits": logits.copy()}, FOLDER / "dflash/expected.safetensors")
    print(f"dflash: logits of standard deviation {logits.std():.2f}")


if __name__ == "__main__":
    main()
