"""Random targets with a head for multi-token prediction, in the layouts that checkpoints have."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from safetensors.numpy import load_file, save_file

from specjax.hf import huggingface
from specjax.hf.families.mtp import Mtp
from specjax.models.base import LanguageModel, Params

DEPTH = 3
SIZES = {
    "vocab_size": 24, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": DEPTH,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "eos_token_id": 1,
    "pad_token_id": 0, "bos_token_id": 2, "max_position_embeddings": 128,
}  # fmt: skip
NAMES = ("input_proj", "token_layernorm", "hidden_layernorm", "final_layernorm")
"""Modules of a head besides its layer, in the layout of speculators."""
JOINED_NAMES = dict(zip(("eh_proj", "enorm", "hnorm", "post_norm"), NAMES, strict=True))
"""Those of transformers' `MtpModel`."""
LAYOUTS = {
    "deepseek": (f"model.layers.{DEPTH}.", ("eh_proj", "enorm", "hnorm", "shared_head.norm")),
    "qwen": ("mtp.layers.0.", ("fc", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")),
    "mimo": ("model.mtp_layers.0.", NAMES),
    "mimo_v2": ("model.mtp.layers.0.", ("eh_proj", "enorm", "hnorm", "final_layernorm")),
}
"""Prefixes in targets' checkpoints, and their words for these modules."""


def random_params(model: LanguageModel, seed: int) -> Params:
    """Parameters with enough noise for the choice of tokens to depend on all of them."""
    params = jax.jit(model.init)(jax.random.key(seed))
    leaves, tree = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(seed + 1), len(leaves))
    noisy = [
        x + 0.3 * jax.random.normal(key, x.shape) if x.dtype == jnp.float32 else x
        for key, x in zip(keys, leaves, strict=True)
    ]
    return jax.tree.unflatten(tree, noisy)


def write_pair(folder: Path, **changes: Any) -> tuple[Path, Path]:
    """The folders of a random target and of its head, in the layout of speculators."""
    target, head = folder / "target", folder / "head"
    words = {"model_type": "qwen3", **SIZES, **changes}
    family, shape = huggingface.parse_config("target", words, None, jnp.float32)
    model = family.model(shape)
    huggingface.save(target, model, random_params(model, 0), original_config=words)
    given = {"model_type": "mtp"} | Mtp().get_target_fields(model)
    family, shape = huggingface.parse_config("head", given, None, jnp.float32)
    huggingface.save(head, family.model(shape), random_params(family.model(shape), 2))
    return target, head


def embed_head(target: Path, head: Path, layout: str) -> Path:
    """The folder of a copy of the target with the head in its checkpoint."""
    prefix, words = LAYOUTS[layout]
    renamed = {}
    for name, tensor in load_file(head / "model.safetensors").items():
        module, _, kind = name.removeprefix("mtp_layers.0.").rpartition(".")
        word = dict(zip(NAMES, words, strict=True)).get(module)
        # Only Qwen's layer has a prefix of its own.
        top = "mtp." if word and layout == "qwen" else prefix
        renamed[f"{top}{word or module}.{kind}"] = tensor
    if layout == "deepseek":
        renamed[f"{prefix}embed_tokens.weight"] = renamed[f"{prefix}enorm.weight"]
    if layout == "mimo_v2":
        norm = renamed.pop(f"{prefix}post_attention_layernorm.weight")
        renamed[f"{prefix}pre_mlp_layernorm.weight"] = norm
    made = shutil.copytree(target, target.parent / layout)
    save_file(load_file(target / "model.safetensors") | renamed, made / "model.safetensors")
    return made


def change_config(folder: Path, **changes: Any) -> None:
    """Changes fields of the `config.json` in a folder."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | changes), "utf-8")
