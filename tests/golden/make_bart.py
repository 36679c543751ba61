"""Writes the golden checkpoints of BART's kind and their expected outputs, computed by PyTorch.

    python tests/golden/make_bart.py [NAME ...]

As make_t5.py does, in the same layout; special tokens are where the published models have them:
Marian's decoder starts with padding, the others' with the end of sequence.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

logits = runpy.run_path(str(Path(__file__).with_name("make_t5.py")))["logits"]

VOCABULARY, PAD, EOS = 96, 1, 2
SOURCE_LENGTHS, TARGET_LENGTH = (31, 18), 16
SMALLEST_LEAD = 0.01
"""Least distance between the two best logits on a greedy path: rounding cannot flip a token."""

CLASSES = {
    "pegasus_x": (transformers.PegasusXConfig, transformers.PegasusXForConditionalGeneration),
    "led": (transformers.LEDConfig, transformers.LEDForConditionalGeneration),
    "bart": (transformers.BartConfig, transformers.BartForConditionalGeneration),
    "mbart": (transformers.MBartConfig, transformers.MBartForConditionalGeneration),
    "marian": (transformers.MarianConfig, transformers.MarianMTModel),
    "marian_two": (transformers.MarianConfig, transformers.MarianMTModel),
    "m2m_100": (transformers.M2M100Config, transformers.M2M100ForConditionalGeneration),
    "pegasus": (transformers.PegasusConfig, transformers.PegasusForConditionalGeneration),
}
ENDS = {
    "bos_token_id": 0, "pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": EOS,
    "forced_eos_token_id": None,
}  # fmt: skip
SHAPES: dict[str, dict[str, Any]] = {
    "bart": {
        "d_model": 18, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 3,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 22, "decoder_ffn_dim": 30,
        "max_position_embeddings": 40,
    },
    "mbart": {
        "d_model": 15, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 5,
        "decoder_attention_heads": 3, "encoder_ffn_dim": 30, "decoder_ffn_dim": 22,
        "max_position_embeddings": 40, "scale_embedding": True, "tie_word_embeddings": False,
        "activation_function": "relu",
    },
    "marian": {
        "d_model": 18, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
        "max_position_embeddings": 40, "scale_embedding": True, "activation_function": "swish",
        "decoder_start_token_id": PAD,
    },
    "marian_two": {
        "d_model": 18, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
        "max_position_embeddings": 40, "activation_function": "swish",
        "decoder_start_token_id": PAD, "share_encoder_decoder_embeddings": False,
        "vocab_size": VOCABULARY + 13, "decoder_vocab_size": VOCABULARY,
    },
    "pegasus": {
        "d_model": 18, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 3,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 22, "decoder_ffn_dim": 30,
        "max_position_embeddings": 40, "scale_embedding": True, "activation_function": "relu",
        "decoder_start_token_id": PAD,
    },
    "led": {
        "d_model": 18, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 3,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 22, "decoder_ffn_dim": 30,
        "max_encoder_position_embeddings": 60, "max_decoder_position_embeddings": 30,
        "attention_window": [4, 10], "global_tokens": 2,
    },
    "pegasus_x": {
        "d_model": 18, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 3,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 22, "decoder_ffn_dim": 30,
        "num_global_tokens": 3, "block_size": 6, "decoder_start_token_id": PAD,
    },
    "m2m_100": {
        "d_model": 20, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 28,
        "max_position_embeddings": 8,
    },
}  # fmt: skip


def build(name: str, seed: int, **changes: Any) -> torch.nn.Module:
    """A random model of the named kind and shape, with `changes` to its configuration."""
    config_class, model_class = CLASSES[name]
    shape = {"vocab_size": VOCABULARY} | ENDS | SHAPES[name] | changes
    model = model_class(config_class(**shape)).eval()
    shared = shape.get("share_encoder_decoder_embeddings", True)
    if shared and not shape.get("tie_word_embeddings", True):
        # As of published models; transformers 5 makes three tables where the output is not tied.
        base = model.base_model
        for stack in (base.encoder, base.decoder):
            stack.embed_tokens = base.shared
    randomize(model, torch.Generator().manual_seed(seed))
    return add_hooks(model)


def add_hooks(model: torch.nn.Module) -> torch.nn.Module:
    """The model with what its class leaves to callers, or gets wrong, in every call.

    An LED gets the global attention mask of `global_tokens`, a field that transformers does not
    have. Pegasus-X adds positions of several tokens to the wrong axis.
    """
    count = getattr(model.config, "global_tokens", 0)

    def add_mask(encoder: torch.nn.Module, args: tuple, given: dict[str, Any]) -> tuple:
        places = torch.arange(given["input_ids"].shape[1]) < count
        return args, given | {"global_attention_mask": places.long().expand_as(given["input_ids"])}

    def turn(embedding: torch.nn.Module, args: tuple) -> tuple:
        return *args[:2], args[2].reshape(-1, 1)

    if count:
        model.get_encoder().register_forward_pre_hook(add_mask, with_kwargs=True)
    if model.config.model_type == "pegasus_x":
        model.model.decoder.embed_positions.register_forward_pre_hook(turn)
    return model


@torch.no_grad()
def randomize(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Weights of a scale at which every part of the model moves the logits."""
    last = f"decoder.layers.{model.config.decoder_layers - 1}.final_layer_norm.weight"
    scale = model.config.d_model**0.5 if getattr(model.config, "scale_embedding", False) else 1.0
    for name, weight in model.named_parameters():
        if not weight.requires_grad:
            continue  # sinusoids
        if name.endswith((last, "decoder.layer_norm.weight")):
            # Of either sign, or a tied model repeats the token just read for ever.
            weight.uniform_(-2.0, 2.0, generator=generator)
        elif "norm" in name and name.endswith("weight"):
            weight.uniform_(0.5, 1.5, generator=generator)
        elif name.endswith("bias"):
            weight.normal_(0.0, 0.1, generator=generator)
        elif "embed_positions" in name:
            weight.normal_(0.0, 1.0, generator=generator)
        elif "shared" in name or "embed_tokens" in name:
            weight.normal_(0.0, 1.0 / scale, generator=generator)
        else:
            weight.normal_(0.0, weight.shape[-1] ** -0.5, generator=generator)
    padding = model.config.pad_token_id
    for table in (model.get_input_embeddings(), model.lm_head):
        table.weight[padding] = 0.0  # as in published models; it is then hardly ever decoded
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias.normal_(0.0, 0.3, generator=generator)


def save(model: torch.nn.Module, folder: Path) -> None:
    """Writes the checkpoint; what it decodes with stands in `config.json`."""
    model.save_pretrained(folder)
    (folder / "generation_config.json").unlink()
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["forced_eos_token_id"] = None  # left out, Hugging Face takes its class's default
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")


def sources(seed: int, vocabulary: int) -> tuple[np.ndarray, np.ndarray]:
    """Random sources [B, S] with EOS, padded, and their lengths [B]."""
    length = np.array(SOURCE_LENGTHS, np.int32)
    tokens = np.random.default_rng(seed).integers(3, vocabulary, (len(length), length.max()))
    tokens[np.arange(len(length)), length - 1] = EOS
    inside = np.arange(length.max()) < length[:, None]
    return np.where(inside, tokens, PAD).astype(np.int32), length


def greedy(model: torch.nn.Module, source: np.ndarray, length: np.ndarray) -> np.ndarray | None:
    """Greedy continuation [B, T]; None when it ends, pads, repeats itself or hangs by a hair."""
    tokens = np.full((len(source), 1), model.config.decoder_start_token_id, np.int32)
    for _ in range(TARGET_LENGTH):
        last = logits(model, source, length, tokens)[:, -1]
        second, first = np.sort(last, axis=-1)[:, -2:].T
        best = last.argmax(-1).astype(np.int32)
        if np.any(first - second < SMALLEST_LEAD) or np.any((best == EOS) | (best == PAD)):
            return None
        tokens = np.concatenate([tokens, best[:, None]], axis=1)
    varied = all(len(set(row.tolist())) >= TARGET_LENGTH // 3 for row in tokens)
    return tokens[:, 1:] if varied else None


def example(name: str, seed: int) -> tuple[torch.nn.Module, dict[str, np.ndarray]] | None:
    """A model with inputs and expected outputs; None when the seed gives a dull one."""
    model = build(name, seed)
    source, length = sources(seed, model.config.vocab_size)
    continuation = greedy(model, source, length)
    if continuation is None:
        return None
    rng = np.random.default_rng(seed + 1)
    target = rng.integers(3, VOCABULARY, (len(source), TARGET_LENGTH)).astype(np.int32)
    target[:, 0] = model.config.decoder_start_token_id
    return model, {
        "source": source,
        "source_length": length,
        "target": target,
        "logits": logits(model, source, length, target),
        "greedy": np.ascontiguousarray(continuation),
    }


def main() -> None:
    for name in sys.argv[1:] or SHAPES:
        found = ((seed, example(name, seed)) for seed in range(500))
        seed, (model, arrays) = next((seed, made) for seed, made in found if made is not None)
        folder = Path(__file__).parent / name
        save(model, folder)
        save_file(arrays, folder / "expected.safetensors")
        spread = arrays["logits"].std()
        print(f"{name}: seed {seed}, logits of standard deviation {spread:.2f}")


if __name__ == "__main__":
    main()
