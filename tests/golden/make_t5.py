"""Writes the golden T5 checkpoints and their expected outputs, computed by PyTorch.

    python tests/golden/make_t5.py

Needs torch and transformers; the tests that read the files need neither. Each directory holds a
tiny random model (`config.json`, `model.safetensors`) and `expected.safetensors`: two padded
sources, teacher-forced float32 logits and a greedy continuation, all without a cache.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import (
    LongT5Config,
    LongT5ForConditionalGeneration,
    MT5Config,
    MT5ForConditionalGeneration,
    SwitchTransformersConfig,
    SwitchTransformersForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    UMT5Config,
    UMT5ForConditionalGeneration,
)

VOCABULARY, START, EOS = 96, 0, 1
SOURCE_LENGTHS, TARGET_LENGTH = (40, 27), 24
SMALLEST_LEAD = 0.01
"""Least distance between the two best logits on a greedy path: rounding cannot flip a token."""

GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
SHAPES: dict[str, dict[str, Any]] = {
    "t5_v1_0": {
        "feed_forward_proj": "relu", "tie_word_embeddings": True, "d_model": 20, "d_kv": 6,
        "num_heads": 3, "d_ff": 44, "num_layers": 3, "num_decoder_layers": 2,
        "relative_attention_num_buckets": 12, "relative_attention_max_distance": 16,
    },
    "t5_v1_1": GATED | {
        "d_model": 18, "d_kv": 5, "num_heads": 4, "d_ff": 28, "num_layers": 2,
        "num_decoder_layers": 3, "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 16,
    },
    "mt5": GATED | {
        "d_model": 16, "d_kv": 7, "num_heads": 3, "d_ff": 26, "num_layers": 3,
        "num_decoder_layers": 2, "relative_attention_num_buckets": 16,
        "relative_attention_max_distance": 20,
    },
    "umt5": GATED | {
        "d_model": 18, "d_kv": 6, "num_heads": 2, "d_ff": 24, "num_layers": 2,
        "num_decoder_layers": 3, "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 12,
    },
    "longt5": GATED | {
        "d_model": 18, "d_kv": 5, "num_heads": 3, "d_ff": 28, "num_layers": 3,
        "num_decoder_layers": 2, "relative_attention_num_buckets": 8,
        "relative_attention_max_distance": 16, "encoder_attention_type": "transient-global",
        "local_radius": 3, "global_block_size": 4,
    },
    "switch_transformers": {
        "tie_word_embeddings": False, "d_model": 18, "d_kv": 5, "num_heads": 3, "d_ff": 20,
        "num_layers": 3, "num_decoder_layers": 2, "num_sparse_encoder_layers": 1,
        "num_sparse_decoder_layers": 1, "num_experts": 4, "router_bias": True,
        "relative_attention_num_buckets": 8, "relative_attention_max_distance": 16,
    },
}  # fmt: skip
SWITCH = "switch_transformers"
CLASSES = {
    SWITCH: (SwitchTransformersConfig, SwitchTransformersForConditionalGeneration),
    "longt5": (LongT5Config, LongT5ForConditionalGeneration),
    "mt5": (MT5Config, MT5ForConditionalGeneration),
    "umt5": (UMT5Config, UMT5ForConditionalGeneration),
}


def build(name: str, seed: int, **changes: Any) -> torch.nn.Module:
    """A random model of the named shape, with `changes` to its configuration."""
    config_class, model_class = CLASSES.get(name, (T5Config, T5ForConditionalGeneration))
    ends = {"decoder_start_token_id": START, "eos_token_id": EOS, "pad_token_id": 0}
    shape = {"vocab_size": VOCABULARY} | ends | SHAPES[name] | changes
    model = model_class(config_class(**shape)).eval()
    if not shape["tie_word_embeddings"]:
        # transformers 5 ties every new T5.
        model.lm_head.weight = torch.nn.Parameter(torch.empty_like(model.shared.weight))
    if name == SWITCH:  # as of published models; it has three tables where the output is not tied
        for stack in (model.encoder, model.decoder):
            stack.embed_tokens = model.shared
    randomize(model, torch.Generator().manual_seed(seed))
    return model


@torch.no_grad()
def randomize(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Weights of a scale at which every part of the model moves the logits, themselves O(1)."""
    for name, weight in model.named_parameters():
        if name == "decoder.final_layer_norm.weight":
            # Of either sign, or a tied model repeats the token just read for ever.
            weight.uniform_(-3.0, 3.0, generator=generator)
        elif "norm" in name:
            weight.uniform_(0.5, 1.5, generator=generator)
        elif name == "shared.weight" or "relative_attention_bias" in name:
            weight.normal_(0.0, 1.0, generator=generator)
        else:
            gain = 4.0 if name.endswith((".o.weight", ".wo.weight")) else 1.0
            weight.normal_(0.0, gain * weight.shape[-1] ** -0.5, generator=generator)


def save(model: torch.nn.Module, folder: Path, tied: bool) -> None:
    """Writes the checkpoint with `tie_word_embeddings` as published configurations have it.

    transformers 5 writes true even when it stores an output layer of its own. To its class of umT5
    it also says that outputs are scaled, which published configurations do not.
    """
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["tie_word_embeddings"] = tied or config["model_type"] == "umt5"
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def sources(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Random sources [B, S] with EOS, padded with 0, and their lengths [B]."""
    length = np.array(SOURCE_LENGTHS, np.int32)
    tokens = np.random.default_rng(seed).integers(2, VOCABULARY, (len(length), length.max()))
    tokens[np.arange(len(length)), length - 1] = EOS
    inside = np.arange(length.max()) < length[:, None]
    return np.where(inside, tokens, 0).astype(np.int32), length


@torch.no_grad()
def logits(
    model: torch.nn.Module, source: np.ndarray, length: np.ndarray, target: np.ndarray
) -> np.ndarray:
    """Teacher-forced logits [B, T, V]."""
    inside = np.arange(source.shape[1]) < length[:, None]
    return model(
        input_ids=torch.tensor(source, dtype=torch.long),
        attention_mask=torch.tensor(inside, dtype=torch.long),
        decoder_input_ids=torch.tensor(target, dtype=torch.long),
        decoder_attention_mask=torch.ones(target.shape, dtype=torch.long),
        use_cache=False,
    ).logits.numpy()


def greedy(model: torch.nn.Module, source: np.ndarray, length: np.ndarray) -> np.ndarray | None:
    """Greedy continuation [B, T]; None when it ends, repeats itself or hangs by a hair."""
    tokens = np.full((len(source), 1), START, np.int32)
    for _ in range(TARGET_LENGTH):
        last = logits(model, source, length, tokens)[:, -1]
        second, first = np.sort(last, axis=-1)[:, -2:].T
        best = last.argmax(-1).astype(np.int32)
        if np.any(first - second < SMALLEST_LEAD) or np.any(best == EOS):
            return None
        tokens = np.concatenate([tokens, best[:, None]], axis=1)
    varied = all(len(set(row.tolist())) >= TARGET_LENGTH // 3 for row in tokens)
    return tokens[:, 1:] if varied else None


def example(name: str, seed: int) -> tuple[torch.nn.Module, dict[str, np.ndarray]] | None:
    """A model with inputs and expected outputs; None when the seed gives a dull one."""
    model = build(name, seed)
    source, length = sources(seed)
    continuation = greedy(model, source, length)
    if continuation is None:
        return None
    rng = np.random.default_rng(seed + 1)
    target = rng.integers(2, VOCABULARY, (len(source), TARGET_LENGTH)).astype(np.int32)
    target[:, 0] = START
    expected = logits(model, source, length, target)
    return model, {
        "source": source,
        "source_length": length,
        "target": target,
        "logits": expected,
        "greedy": np.ascontiguousarray(continuation),
    }


def main() -> None:
    for name, shape in SHAPES.items():
        found = ((seed, example(name, seed)) for seed in range(500))
        seed, (model, arrays) = next((seed, made) for seed, made in found if made is not None)
        folder = Path(__file__).parent / name
        save(model, folder, shape["tie_word_embeddings"])
        save_file(arrays, folder / "expected.safetensors")
        spread = arrays["logits"].std()
        print(f"{name}: seed {seed}, logits of standard deviation {spread:.2f}")


if __name__ == "__main__":
    main()
