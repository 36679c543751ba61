"""GGUF files of checkpoints, written by the package `gguf` and llama.cpp's rules.

What is written is found by the package's own tables, which the reader does not use.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

from specjax.hf.tokenizer import train_byte_tokenizer

OF_TYPE = {"gemma3_text": "gemma3", "mistral": "llama"}
"""Architectures that are not called as their `model_type`."""

UNIFORM = gguf.GGMLQuantizationType.F32


def write_gguf(
    file: Path,
    folder: Path,
    kind: gguf.GGMLQuantizationType = UNIFORM,
    *,
    metadata: dict[str, Any] | None = None,
    without: tuple[str, ...] = (),
    tokenizer: str = "",
) -> Path:
    """Writes a checkpoint's folder as a GGUF file, kernels in blocks of a `kind`.

    `metadata` are more keys after the architecture's name, and keys `without` are left out; with a
    `tokenizer`, `gpt2` or `llama`, one of that type is in the file.
    """
    config = json.loads((folder / "config.json").read_text("utf-8"))
    name = OF_TYPE.get(config["model_type"], config["model_type"])
    writer = gguf.GGUFWriter(file, name)
    rope = {"rope_type": "default", "rope_theta": config.get("rope_theta")}
    rope |= config.get("rope_parameters") or config.get("rope_scaling") or {}
    keys = _keys(config, rope.get("full_attention", rope)) | (metadata or {})
    for key, value in keys.items():
        if key not in without and value is not None:
            _ADD[type(value)](writer, f"{name}.{key}", value)
    _add_special_tokens(writer, config)
    if tokenizer:
        _ADD_TOKENIZER[tokenizer](writer, config["vocab_size"])
    for tensor, values in _tensors(config, name, load_file(folder / "model.safetensors")).items():
        _add_tensor(writer, tensor, values, kind)
    for tensor, values in _factors(config, rope).items():
        writer.add_tensor(tensor, np.array(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


_ADD = {
    int: gguf.GGUFWriter.add_uint32,
    float: gguf.GGUFWriter.add_float32,
    str: gguf.GGUFWriter.add_string,
    bool: gguf.GGUFWriter.add_bool,
    list: gguf.GGUFWriter.add_array,
}


def _keys(config: dict[str, Any], rope: dict[str, Any]) -> dict[str, Any]:
    """Keys of an architecture, as llama.cpp's converter writes them."""
    heads = config["num_attention_heads"]
    width = config.get("head_dim") or config["hidden_size"] // heads
    scaled = rope["rope_type"] in ("linear", "yarn")
    local = (config.get("rope_parameters") or {}).get("sliding_attention", {})
    return {
        "context_length": config["max_position_embeddings"],
        "block_count": config["num_hidden_layers"],
        "embedding_length": config["hidden_size"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": heads,
        "attention.head_count_kv": config["num_key_value_heads"],
        "attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "attention.key_length": width,
        "attention.value_length": width,
        "attention.sliding_window": config.get("sliding_window"),
        "attn_logit_softcapping": config.get("attn_logit_softcapping"),
        "final_logit_softcapping": config.get("final_logit_softcapping"),
        "rope.dimension_count": width,
        "rope.freq_base": rope["rope_theta"],
        "rope.freq_base_swa": local.get("rope_theta"),
        "rope.scaling.type": rope["rope_type"] if scaled else None,
        "rope.scaling.factor": rope["factor"] if scaled else None,
        "vocab_size": config["vocab_size"],
    }


def _add_special_tokens(writer: gguf.GGUFWriter, config: dict[str, Any]) -> None:
    for key, field in (("bos", "bos"), ("eos", "eos"), ("padding", "pad")):
        token = config.get(f"{field}_token_id")
        if token is not None:
            writer.add_uint32(f"tokenizer.ggml.{key}_token_id", token)


def _tensors(
    config: dict[str, Any], name: str, weights: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """The weights under the names, and in the layouts, of an architecture."""
    arch = next(key for key, value in gguf.MODEL_ARCH_NAMES.items() if value == name)
    names = gguf.get_tensor_name_map(arch, config["num_hidden_layers"])
    found = {}
    for tensor, values in weights.items():
        module, _, suffix = tensor.rpartition(".")
        if name == "llama" and module.endswith(("q_proj", "k_proj")):
            queries = module.endswith("q_proj")
            heads = config["num_attention_heads" if queries else "num_key_value_heads"]
            values = _interleave(values, heads)
        if name.startswith("gemma") and module.endswith("norm"):
            values = values + np.float32(1)
        found[f"{names.get_name(module)}.{suffix}"] = values
    return found


def _interleave(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows [out, in] of heads, the halves of each one's as pairs."""
    halves = weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1)
    return halves.swapaxes(1, 2).reshape(weight.shape)


def _factors(config: dict[str, Any], rope: dict[str, Any]) -> dict[str, list[float]]:
    """Tensors of a scaled rotation, for which llama.cpp has no keys."""
    if rope.get("rope_type") == "longrope":
        return {f"rope_factors_{k}.weight": rope[f"{k}_factor"] for k in ("short", "long")}
    if rope.get("rope_type") != "llama3":
        return {}
    width = config["head_dim"]
    factors = []
    for wave in range(width // 2):
        length = 2 * np.pi * rope["rope_theta"] ** (2 * wave / width)
        turns = rope["original_max_position_embeddings"] / length
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = min(max((turns - low) / (high - low), 0.0), 1.0)
        factors.append(1 / ((1 - kept) / rope["factor"] + kept))
    return {"rope_freqs.weight": factors}


def _add_tensor(writer: gguf.GGUFWriter, name: str, values: np.ndarray, kind: Any) -> None:
    block = gguf.GGML_QUANT_SIZES[kind][0]
    if values.ndim == 1 or values.shape[-1] % block:
        kind = UNIFORM
    stored = gguf.quantize(values.astype(np.float32), kind)
    writer.add_tensor(name, stored, raw_dtype=kind)


TEXTS = ("The cat sat on the mat.", "Über 1234 Wörter:  zwei Leerzeichen!", "don't\n\ttab")
TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"


def _add_bytes(writer: gguf.GGUFWriter, size: int) -> None:
    """A byte-level vocabulary, as GPT-2's, with its merges."""
    tokenizer = train_byte_tokenizer(TEXTS * 3, size)
    made = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    tokens = sorted(made["vocab"], key=made["vocab"].get)
    kinds = [gguf.TokenType.CONTROL] * 2 + [gguf.TokenType.NORMAL] * (len(tokens) - 2)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(merge) for merge in made["merges"]])
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)


def _add_sentencepiece(writer: gguf.GGUFWriter, size: int) -> None:
    """A vocabulary with byte fallback, as Llama's, whose scores are the order of merges."""
    letters = sorted(set("▁".join(TEXTS).replace(" ", "▁")) - set("\n\tÜü"))
    pieces = ["▁t", "he", "▁the", "at", "▁c", "▁cat", "er", "ei"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    kind = gguf.TokenType
    kinds = [kind.UNKNOWN, kind.CONTROL, kind.CONTROL] + [kind.BYTE] * 256
    scores = [0.0] * len(tokens) + [-float(order) for order in range(len(pieces + letters))]
    tokens += pieces + letters
    assert len(tokens) <= size
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_scores(scores)
    writer.add_token_types(kinds + [kind.NORMAL] * (len(tokens) - len(kinds)))
    writer.add_unk_token_id(0)
    writer.add_chat_template(TEMPLATE)


_ADD_TOKENIZER = {"gpt2": _add_bytes, "llama": _add_sentencepiece}
