"""Writes golden EAGLE-3 drafters in both published layouts, and what PyTorch computes with them.

    python tests/golden/make_eagle3.py

Needs torch; the tests that read the files do not. `Drafter` is the published forward pass, written
after the descriptions in docs/how_to/published_drafters.md: whole rows, no cache. Each directory
holds a tiny random drafter and `expected.safetensors`: a text, the target's states at its tokens,
the logits behind every token and those of the steps that follow the last one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

ROWS, LENGTH, STEPS = 2, 13, 4
VOCABULARY, DRAFTED, WIDTH = 96, 40, 24

LAYER = {
    "hidden_size": WIDTH, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 10, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64, "vocab_size": VOCABULARY, "bos_token_id": 2, "eos_token_id": 1,
    "pad_token_id": 0, "tie_word_embeddings": False, "attention_bias": False, "use_cache": True,
    "torch_dtype": "float32", "transformers_version": "4.57.1",
}  # fmt: skip
STRETCHED = {
    "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}  # fmt: skip


def make_config(**changes: Any) -> dict[str, Any]:
    """`config.json` as SafeAILab and SpecForge write it."""
    own = {"architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama"}
    return LAYER | own | {"draft_vocab_size": DRAFTED} | changes


def speculators(layer: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """`config.json` as vLLM's speculators write it."""
    proposal = {"proposal_type": "greedy", "speculative_tokens": 3, "verifier_accept_k": 1}
    own = {
        "architectures": ["Eagle3DraftModel"],
        "auto_map": {"": "config.Eagle3SpeculatorConfig"},
        "draft_vocab_size": DRAFTED,
        "eagle_aux_hidden_state_layer_ids": None,
        "embed_requires_grad": False,
        "has_no_defaults_at_init": False,
        "norm_before_residual": False,
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal | {"accept_tolerance": 0.0}],
            "verifier": {"name_or_path": "acme/target", "architectures": ["LlamaForCausalLM"]},
        },
        "speculators_model_type": "eagle3",
        "speculators_version": "0.3.0",
        "target_hidden_size": None,
        "tie_word_embeddings": False,
        "transformer_layer_config": LAYER | {"model_type": "llama"} | layer,
        "transformers_version": "4.57.1",
    }
    return own | changes


SHAPES: dict[str, dict[str, Any]] = {
    "eagle3": make_config(
        rope_theta=500.0,
        rope_scaling=STRETCHED,
        eagle_config={
            "eagle_aux_hidden_state_layer_ids": [1, 3, 5],
            "use_aux_hidden_state": True,
        },
    ),
    "eagle3_speculators": speculators(
        {"model_type": "qwen3", "rope_theta": 1e6, "rope_scaling": None},
        norm_before_residual=True,
    ),
}


def layer_words(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("transformer_layer_config", config)


class Drafter:
    """The published forward pass on a checkpoint's own tensors."""

    def __init__(self, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
        self.config, self.layer, self.tensors = config, layer_words(config), tensors
        self.block = "layers.0" if "transformer_layer_config" in config else "midlayer"

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        scale = self.tensors[f"{name}.weight"]
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.layer["rms_norm_eps"]) * scale

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x @ self.tensors[f"{name}.weight"].T + self.tensors.get(f"{name}.bias", 0.0)

    def fused(self, features: torch.Tensor) -> torch.Tensor:
        """Of the target's states [B, T, 3 * E]."""
        if self.config.get("norm_before_fc"):
            features = self.norm(features, "input_norm")
        if self.config.get("fc_norm"):
            parts = features.chunk(3, dim=-1)
            parts = [self.norm(part, f"fc_norm.{number}") for number, part in enumerate(parts)]
            features = torch.cat(parts, dim=-1)
        return self.linear(features, "fc")

    def waves(self) -> torch.Tensor:
        """Radians per position of each pair of a head's numbers."""
        width = self.head_width()
        theta = self.layer.get("rope_theta") or 10_000.0
        waves = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        scaling = self.layer.get("rope_scaling") or {}
        if not scaling:
            return waves
        assert scaling["rope_type"] == "llama3"
        turns = scaling["original_max_position_embeddings"] * waves / (2 * math.pi)
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        kept = ((turns - low) / (high - low)).clamp(0, 1)
        return kept * waves + (1 - kept) * waves / scaling["factor"]

    def head_width(self) -> int:
        width, heads = self.layer["hidden_size"], self.layer["num_attention_heads"]
        return self.layer.get("head_dim") or width // heads

    def norms_heads(self) -> bool:
        return self.layer.get("model_type") == "qwen3" and self.block == "layers.0"

    def heads(self, x: torch.Tensor, name: str, turned: bool, begin: int = 0) -> torch.Tensor:
        """Projected [B, heads, T, d], normed and rotated to the positions from `begin` on."""
        y = self.linear(x, f"{self.block}.self_attn.{name}_proj")
        y = y.unflatten(-1, (-1, self.head_width())).transpose(1, 2)
        if not turned:
            return y
        if self.norms_heads():
            y = self.norm(y, f"{self.block}.self_attn.{name}_norm")
        angles = (begin + torch.arange(x.shape[1]))[:, None] * self.waves()
        cos, sin = angles.cos().float(), angles.sin().float()
        one, other = y.chunk(2, dim=-1)
        return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)

    def attended(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, unseen: torch.Tensor
    ) -> torch.Tensor:
        """What heads read, projected [B, T, D]; `unseen` [T, keys] says where they do not look."""
        groups = q.shape[1] // k.shape[1]
        k, v = (y.repeat_interleave(groups, dim=1) for y in (k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        mixed = scores.masked_fill(unseen, -math.inf).softmax(-1) @ v
        return self.linear(mixed.transpose(1, 2).flatten(2), f"{self.block}.self_attn.o_proj")

    def fed_forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x, f"{self.block}.post_attention_layernorm")
        gate = torch.nn.functional.silu(self.linear(h, f"{self.block}.mlp.gate_proj"))
        h = gate * self.linear(h, f"{self.block}.mlp.up_proj")
        return x + self.linear(h, f"{self.block}.mlp.down_proj")

    def states(self, tokens: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """The layer's states [B, T, D] of tokens, each beside the state before it."""
        residual = before
        hidden = self.norm(before, f"{self.block}.hidden_norm")
        if self.config.get("norm_before_residual"):
            residual = hidden
        embedded = self.norm(
            self.tensors["embed_tokens.weight"][tokens], f"{self.block}.input_layernorm"
        )
        x = torch.cat([embedded, hidden], dim=-1)
        q, k = self.heads(x, "q", True), self.heads(x, "k", True)
        v = self.heads(x, "v", False)
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        x = self.fed_forward(residual + self.attended(q, k, v, later))
        return self.norm(x, "norm") if self.config.get("norm_output") else x

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """[B, T, U] of states as they are handed on."""
        normed = states if self.config.get("norm_output") else self.norm(states, "norm")
        return self.linear(normed, "lm_head")

    @torch.no_grad()
    def draft(
        self,
        tokens: np.ndarray,
        features: np.ndarray,
        drafted: np.ndarray | None = None,
        steps: int = STEPS,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Logits [B, T - 1, U] behind tokens 1 .. T - 1 of a text [B, T]; those [B, K, U] of the
        steps behind it that feed drafted ids [B, K]; and these ids, by default the likeliest.

        `features` [B, T, 3 * E] are the target's states at the text's tokens. The text's first
        token is not read: each of the others goes with the states of the token before it.
        """
        ids = torch.arange(len(self.tensors["lm_head.weight"]))
        if "d2t" in self.tensors:
            ids = ids + self.tensors["d2t"]
        read = torch.tensor(tokens, dtype=torch.long)[:, 1:]
        before = self.fused(torch.tensor(features)[:, :-1])
        made = self.states(read, before)
        first = self.logits(made)
        last, later, fed = first[:, -1], [], []
        for step in range(steps if drafted is None else drafted.shape[1]):
            token = ids[last.argmax(-1)]
            if drafted is not None:
                token = torch.tensor(drafted[:, step], dtype=torch.long)
            fed.append(token)
            read = torch.cat([read, token[:, None]], dim=1)
            # Its own state stands in for the target's.
            before = torch.cat([before, made[:, -1:]], dim=1)
            made = self.states(read, before)
            last = self.logits(made)[:, -1]
            later.append(last)
        return first.numpy(), torch.stack(later, 1).numpy(), torch.stack(fed, 1).numpy()


def weights(config: Mapping[str, Any], seed: int, embedded: bool = True) -> dict[str, torch.Tensor]:
    """Random tensors under the names of a configuration's layout."""
    generator = torch.Generator().manual_seed(seed)
    layer, block = layer_words(config), Drafter(config, {}).block
    width, inner = layer["hidden_size"], layer["intermediate_size"]
    target = config.get("target_hidden_size") or width
    head = Drafter(config, {}).head_width()
    queries, keys = layer["num_attention_heads"] * head, layer["num_key_value_heads"] * head
    drafted = config["draft_vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "fc": (width, 3 * target), "norm": (width,), "lm_head": (drafted, width),
        f"{block}.hidden_norm": (width,), f"{block}.input_layernorm": (width,),
        f"{block}.post_attention_layernorm": (width,),
        f"{block}.self_attn.q_proj": (queries, 2 * width),
        f"{block}.self_attn.k_proj": (keys, 2 * width),
        f"{block}.self_attn.v_proj": (keys, 2 * width),
        f"{block}.self_attn.o_proj": (width, queries), f"{block}.mlp.gate_proj": (inner, width),
        f"{block}.mlp.up_proj": (inner, width), f"{block}.mlp.down_proj": (width, inner),
    }  # fmt: skip
    if embedded:
        shapes["embed_tokens"] = layer["vocab_size"], width
    if layer.get("model_type") == "qwen3" and block == "layers.0":
        shapes |= {f"{block}.self_attn.{w}_norm": (head,) for w in "qk"}
    if config.get("norm_before_fc"):
        shapes["input_norm"] = (3 * target,)
    if config.get("fc_norm"):
        shapes |= {f"fc_norm.{number}": (target,) for number in range(3)}

    def draw_tensors(shape: tuple[int, ...]) -> torch.Tensor:
        if len(shape) == 1:
            return torch.empty(shape).uniform_(0.5, 1.5, generator=generator)
        return torch.empty(shape).normal_(0.0, 1.5 * shape[-1] ** -0.5, generator=generator)

    tensors = {f"{name}.weight": draw_tensors(shape) for name, shape in shapes.items()}
    if drafted < layer["vocab_size"]:
        order = torch.randperm(layer["vocab_size"], generator=generator)
        ids = order[:drafted].sort().values
        tensors["d2t"] = ids - torch.arange(drafted)
        tensors["t2d"] = torch.isin(torch.arange(layer["vocab_size"]), ids)
    return tensors


def text(config: Mapping[str, Any], seed: int, length: int = LENGTH) -> dict[str, np.ndarray]:
    """Random tokens, states of a target at them, and ids that are drafted behind them."""
    random, layer = np.random.default_rng(seed), layer_words(config)
    width = config.get("target_hidden_size") or layer["hidden_size"]
    return {
        "tokens": random.integers(2, layer["vocab_size"], (ROWS, length)).astype(np.int32),
        "features": random.normal(0, 2, (ROWS, length, 3 * width)).astype(np.float32),
        "drafted": random.integers(2, layer["vocab_size"], (ROWS, STEPS)).astype(np.int32),
    }


def save(folder: Path, config: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Writes a checkpoint."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
    arrays = {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in tensors.items()}
    save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    for seed, (name, config) in enumerate(SHAPES.items()):
        tensors, given = weights(config, seed), text(config, seed)
        first, later, _ = Drafter(config, tensors).draft(**given)
        folder = Path(__file__).parent / name
        save(folder, config, tensors)
        arrays = given | {"first": np.ascontiguousarray(first), "later": later}
        save_file(arrays, folder / "expected.safetensors")
        print(f"{name}: logits of standard deviation {first.std():.2f}")


if __name__ == "__main__":
    main()
