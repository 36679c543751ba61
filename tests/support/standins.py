"""Tiny random checkpoints of the architectures that a config names, and rows for its task."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from ml_collections import ConfigDict
from PIL import Image, ImageDraw
from transformers import NllbTokenizer

from specjax.data.audio import RATE
from specjax.experiments.config.fields import model_names
from specjax.hf import huggingface
from specjax.hf.hub import SHAPES, split_head
from specjax.hf.tokenizer import train_tokenizer

SENTENCES = [
    "the old teacher reads a book in the park",
    "two children and a friendly dog play behind the big house",
    "how many apples are left if you eat three of ten apples",
]
WORDS = " ".join(SENTENCES)

_TRANSLATION = {"translation": {"en": SENTENCES[0], "de": "die alte Lehrerin liest ein Buch"}}
ROWS: dict[str, dict[str, Any]] = {
    "wmt14_ende": _TRANSLATION,
    "wmt14_deen": _TRANSLATION,
    "iwslt17_deen": _TRANSLATION,
    "xsum": {"document": WORDS, "summary": SENTENCES[1]},
    "cnn_dailymail": {"article": WORDS, "highlights": SENTENCES[0]},
    "gsm8k": {"question": SENTENCES[2], "answer": "10 - 3 = 7\n#### 7"},
    "mmlu": {"question": SENTENCES[2], "choices": ["one", "two", "seven", "ten"], "answer": 2},
    "lm1b": {"text": WORDS},
    "spec_bench": {"question_id": 1, "category": "qa", "turns": [SENTENCES[2]]},
    "transcribe": {"audio": "speech.wav", "text": SENTENCES[0]},
    "read_image": {"image": "line.png", "text": SENTENCES[0]},
    "alpaca": {"instruction": SENTENCES[2], "input": "", "output": "seven"},
}

SMALL = {
    "t5": {"d_model": 16, "d_kv": 4, "d_ff": 32, "num_heads": 4},
    "llama": {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 4},
    "gpt2": {"n_embd": 16, "n_inner": 32, "n_head": 4},
    "moonshine": {
        "hidden_size": 16, "intermediate_size": 32, "encoder_num_hidden_layers": 2,
        "encoder_num_attention_heads": 2, "decoder_num_attention_heads": 2,
        "partial_rotary_factor": 0.5,
    },
    "whisper": {
        "d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_mel_bins": 8,
        "max_source_positions": 50, "decoder_start_token_id": 3, "eos_token_id": 1,
        "pad_token_id": 0, "forced_decoder_ids": [[1, 4], [2, 5]],
    },
}  # fmt: skip
SMALL |= {
    name: SMALL["llama"] | {"num_key_value_heads": 2, "head_dim": 8, "eos_token_id": 1}
    for name in ("gemma3_text", "qwen3", "qwen3_moe", "t5gemma")
}
SMALL["qwen3_moe"] |= {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
SMALL["qwen3_5_text"] = SMALL["qwen3"] | {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4,
    "linear_value_head_dim": 4, "full_attention_interval": 2, "pad_token_id": 0,
}  # fmt: skip
SMALL["gpt_oss"] = SMALL["qwen3"] | {
    "num_hidden_layers": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "pad_token_id": 0,
}  # fmt: skip
SMALL["deepseek_v3"] = SMALL["llama"] | {
    "num_key_value_heads": 4, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "n_group": 2, "topk_group": 1, "moe_intermediate_size": 8, "first_k_dense_replace": 1,
}  # fmt: skip
SIDES = ("encoder", "decoder")
OF_A_SIDE = {"layers": 2, "ffn_dim": 32, "attention_heads": 4}
SMALL["m2m_100"] = {"d_model": 16} | {
    f"{side}_{name}": size for side in SIDES for name, size in OF_A_SIDE.items()
}
SMALL["vision-encoder-decoder"] = {
    "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2,
    "image_size": 32, "d_model": 16, "decoder_layers": 2, "decoder_ffn_dim": 32,
    "decoder_attention_heads": 4, "cross_attention_hidden_size": 16,
}  # fmt: skip
SMALL["vit"] = SMALL.pop("vision-encoder-decoder")
SMALL["donut-swin"] = {
    "embed_dim": 4, "depths": [1, 2], "num_heads": [1, 2], "window_size": 2, "image_size": 16,
    **{name: SMALL["vit"][name] for name in SMALL["vit"] if "decoder" in name or name == "d_model"},
}  # fmt: skip
SMALL["pix2struct"] = {
    "text_config": {
        "hidden_size": 16, "d_kv": 8, "d_ff": 32, "num_heads": 2, "num_layers": 2,
        "decoder_start_token_id": 0, "eos_token_id": 1, "pad_token_id": 0,
    },
    "vision_config": {
        "hidden_size": 16, "d_kv": 8, "d_ff": 32, "num_attention_heads": 2, "num_hidden_layers": 2,
        "seq_len": 65,
    },
}  # fmt: skip
SMALL["gemma4_text"] = SMALL["gemma3_text"] | {
    "global_head_dim": 16, "num_global_key_value_heads": 1, "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip
SMALL["gemma4_assistant"] = {
    "backbone_hidden_size": 16,
    "text_config": SMALL["gemma4_text"] | {
        "num_hidden_layers": 2, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0,
        "vocab_size_per_layer_input": 0,
    },
}  # fmt: skip
SMALL["canary"] = {
    "encoder_config": {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_mel_bins": 8, "subsampling_conv_channels": 4,
    },
    "decoder_config": {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 8,
    },
    "decoder_start_token_id": 3, "eos_token_id": 1, "pad_token_id": 0,
}  # fmt: skip
DECODERS = {
    "canary": "decoder_config", "gemma4_assistant": "text_config", "pix2struct": "text_config",
}  # fmt: skip
"""Parts of a configuration that have the vocabulary."""
OF_FOUR_LAYERS = {
    "num_hidden_layers": 1, "num_key_value_heads": 2, "head_dim": 8,
    "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 2, 3]},
}  # fmt: skip
"""Fields of a published EAGLE-3 drafter for a target of four layers."""
KINDS = {"mt5": "t5"}
LAYERS = {
    "t5": "num_layers", "gpt2": "n_layer", "whisper": "decoder_layers", "m2m_100": "decoder_layers",
    "moonshine": "decoder_num_hidden_layers",
}  # fmt: skip
TEMPLATE = (
    "{% for m in messages %}{{ m['content'] }} {% endfor %}{{ 'so ' if enable_thinking else '' }}"
    "{{ reasoning_effort or '' }}"
)


def stand_in(config: ConfigDict, folder: Path) -> ConfigDict:
    """The config on stand-ins: the same strategies, tiny models, a few rows of its task."""
    made = config.copy_and_resolve_references()
    row = json.dumps(ROWS.get(config.task, WORDS))
    tokenizer = multilingual(config) or train_tokenizer([WORDS, row], 200)
    tokenizer.chat_template = TEMPLATE if config.chat else None
    paths = {}
    for seed, (name, checkpoint) in enumerate(model_names(config).items()):
        paths[name] = str(folder / name)
        write_model(folder / name, checkpoint, tokenizer, seed)
    write_speech(folder / "speech.wav")
    write_line(folder / "line.png")
    (folder / "rows.jsonl").write_text("\n".join([row] * 6), "utf-8")
    (folder / "lines.txt").write_text("\n".join(SENTENCES * 2), "utf-8")
    with made.unlocked():
        made.target = paths.pop("target")
        for name, path in paths.items():
            (made if name == "drafter" else made.drafters)[name] = path
        if config.task:
            made.data.path = str(folder / "rows.jsonl")
        else:
            made.source_file = made.reference_file = str(folder / "lines.txt")
        made.update(examples=2, ngram_examples=3, repeats=1, dtype="float32", bucket=128)
        made.update(max_new_tokens=6, max_prompt_tokens=512, mesh={"data": 1, "model": 1})
    return made


def multilingual(config: ConfigDict) -> Any:
    """A tokenizer of letters that has the languages of a config; None where this names none."""
    codes = [config.source_language, config.target_language]
    if not any(codes):
        return None
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", *sorted({*WORDS} - {" "})]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    return NllbTokenizer(vocabulary, [], extra_special_tokens=codes)


def write_speech(file: Path, pitch: float = 220, seconds: float = 1.0) -> None:
    """Two sines."""
    time = np.arange(round(RATE * seconds)) / RATE
    sound = np.sin(2 * np.pi * pitch * time) + np.sin(2 * np.pi * 800 * time**2)
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 2, RATE, 0, "NONE", ""))
        out.writeframes((sound * 2**13).astype("<i2").tobytes())


def write_line(file: Path) -> None:
    """A line of text in the font that Pillow brings along."""
    image = Image.new("L", (120, 20), 255)
    ImageDraw.Draw(image).text((4, 4), SENTENCES[0][:16], fill=0)
    image.save(file)


def write_model(folder: Path, checkpoint: str, tokenizer: Any, seed: int) -> None:
    """A random model of a published shape's architecture; vocabularies padded differently."""
    place, head = split_head(checkpoint)
    shape = dict(SHAPES[str(place)])
    if shape["model_type"] not in DECODERS:
        shape |= shape.pop("text_config", {})
    kind = KINDS.get(shape["model_type"], shape["model_type"])
    sided = isinstance(shape.get("decoder"), dict)
    kind = shape["encoder"].get("model_type", kind) if sided else kind
    own = {LAYERS.get(kind, "num_hidden_layers"): 2} | SMALL[kind]
    own |= {"vocab_size": len(tokenizer) + 3 * seed * (not (head or kind == "gemma4_assistant"))}
    if part := DECODERS.get(kind):
        own[part] = own[part] | {"vocab_size": own["vocab_size"]}
    if "eagle_config" in shape:
        own |= OF_FOUR_LAYERS | {"vocab_size": len(tokenizer), "draft_vocab_size": len(tokenizer)}
    if "num_target_layers" in shape:
        own |= of_small_target(shape, len(tokenizer))
    if shape.get("decoder_start_token_id", 0) >= own["vocab_size"]:
        shape["decoder_start_token_id"] = 3
    small = shape | ({side: shape[side] | own for side in SIDES} if sided else own)
    family, config = huggingface.parse_config(checkpoint, small, None, jnp.float32, head=head)
    model = family.model(config)
    huggingface.save(folder, model, model.init(jax.random.key(seed)), tokenizer)


def of_small_target(shape: dict[str, Any], vocab_size: int) -> dict[str, Any]:
    """Fields of a published block drafter for a target of two layers and so many ids."""
    read = {"mask_token_id": vocab_size - 1, "target_layer_ids": [0]}
    nested = shape.get("dflash_config")
    fields = {"dflash_config": nested | read} if nested else read
    return fields | {"vocab_size": vocab_size, "num_target_layers": 2}
