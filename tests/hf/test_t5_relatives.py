"""T5's published relatives: what their `config.json` says, and tiny checkpoints that say it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file
from transformers import UMT5Config

from specjax.hf.hub import SHAPES
from specjax.hf.huggingface import load, parse_config
from specjax.hf.tensors import gather
from specjax.hf.tokenizer import load_tokenizer
from specjax.models.t5 import T5Config

COMMON = {
    "architectures": ["T5ForConditionalGeneration"],
    "decoder_start_token_id": 0,
    "dropout_rate": 0.1,
    "eos_token_id": 1,
    "feed_forward_proj": "gated-gelu",
    "initializer_factor": 1.0,
    "is_encoder_decoder": True,
    "layer_norm_epsilon": 1e-06,
    "model_type": "t5",
    "pad_token_id": 0,
    "relative_attention_num_buckets": 32,
    "tie_word_embeddings": False,
    "transformers_version": "4.23.1",
    "use_cache": True,
}
SPELLED = {
    "dense_act_fn": "gelu_new",
    "is_gated_act": True,
    "relative_attention_max_distance": 128,
}
PUBLISHED: dict[str, dict[str, Any]] = {
    "google/byt5-small": COMMON | {
        "_name_or_path": "/home/patrick/t5/byt5-small", "d_ff": 3584, "d_kv": 64, "d_model": 1472,
        "gradient_checkpointing": False, "num_decoder_layers": 4, "num_heads": 6, "num_layers": 12,
        "tokenizer_class": "ByT5Tokenizer", "vocab_size": 384,
    },
    "google/flan-ul2": COMMON | SPELLED | {
        "d_ff": 16384, "d_kv": 256, "d_model": 4096, "dense_act_fn": "silu", "dropout_rate": 0.0,
        "feed_forward_proj": "gated-silu", "n_positions": 512, "num_decoder_layers": 32,
        "num_heads": 16, "num_layers": 32, "output_past": True, "torch_dtype": "bfloat16",
        "vocab_size": 32128,
    },
    "CohereForAI/aya-101": COMMON | SPELLED | {
        "classifier_dropout": 0.0, "d_ff": 10240, "d_kv": 64, "d_model": 4096,
        "num_decoder_layers": 24, "num_heads": 64, "num_layers": 24, "output_past": True,
        "tokenizer_class": "T5Tokenizer", "torch_dtype": "float32", "vocab_size": 250112,
    },
    "google/madlad400-3b-mt": COMMON | SPELLED | {
        "classifier_dropout": 0.0, "d_ff": 8192, "d_kv": 128, "d_model": 1024, "eos_token_id": 2,
        "n_positions": 512, "num_decoder_layers": 32, "num_heads": 16, "num_layers": 32,
        "output_past": True, "pad_token_id": 1, "torch_dtype": "float32", "vocab_size": 256000,
    },
    "google/umt5-small": COMMON | SPELLED | {
        "architectures": ["UMT5ForConditionalGeneration"], "classifier_dropout": 0.0, "d_ff": 1024,
        "d_kv": 64, "d_model": 512, "model_type": "umt5", "num_decoder_layers": 8, "num_heads": 6,
        "num_layers": 8, "output_past": True, "scalable_attention": True,
        "tokenizer_class": "T5Tokenizer", "torch_dtype": "float32", "vocab_size": 256384,
    },
}  # fmt: skip
"""Fields as their repositories have them; paths and versions aside, nothing is left out."""

SMALL = {"d_model": 12, "d_kv": 4, "d_ff": 16, "num_heads": 3, "num_layers": 2, "vocab_size": 40}
NAMES = sorted(PUBLISHED)


def shape(words: dict[str, Any]) -> T5Config:
    return parse_config("config.json", words, None, jnp.float32)[1]


@pytest.mark.parametrize("name", NAMES)
def test_a_published_configuration_is_read_as_planned(name: str) -> None:
    found, known = shape(PUBLISHED[name]), shape(SHAPES[name])
    assert found.__dict__ | {"dropout": 0.1} == known.__dict__ | {"dropout": 0.1}
    assert found.gated and not found.tied and not found.scale_outputs
    assert found.activation == ("silu" if name == "google/flan-ul2" else "gelu_new")
    assert found.layer_tables is (found.family == "umt5")
    assert (found.start_token, found.eos, found.pad) == (
        (0, (2,), 1) if "madlad" in name else (0, (1,), 0)
    )


def write_published(name: str, folder: Path) -> tuple[Any, dict[str, Any]]:
    """The shape and parameters of a tiny checkpoint that is written as its repository is."""
    words = PUBLISHED[name] | SMALL | {"num_decoder_layers": 3}
    (folder / "config.json").write_text(json.dumps(words), "utf-8")
    family, config = parse_config("config.json", words, None, jnp.float32)
    params = family.model(config).init(jax.random.key(0))
    tensors = gather(params, family.names(config))
    table = tensors.pop("shared.weight")
    if "madlad" not in name:  # which keeps the decoder's name only
        tensors |= {"shared.weight": table, "encoder.embed_tokens.weight": table.copy()}
    tensors["decoder.embed_tokens.weight"] = table
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return config, params


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_checkpoint_in_a_published_layout_loads(name: str, tmp_path: Path) -> None:
    config, params = write_published(name, tmp_path)
    loaded = load(tmp_path)
    assert loaded.model.config == config
    jax.tree.map(np.testing.assert_array_equal, loaded.params, params)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("scaled", [True, False])
def test_umt5_says_what_it_does_to_outputs_wherever_it_is_read(tied: bool, scaled: bool) -> None:
    family, config = parse_config("config.json", PUBLISHED["google/umt5-small"], None, jnp.float32)
    config = dataclasses.replace(config, tied=tied, scale_outputs=scaled)
    words, _ = family.config_to_hf(config)
    again = shape(words)
    assert again.scale_outputs is scaled
    assert again.tied is tied or scaled  # the file says the rest: it has an output layer or not
    assert UMT5Config(**words).to_dict().get("scale_decoder_outputs", scaled) is scaled


@pytest.mark.parametrize("tied", [True, False, None])
def test_what_transformers_says_of_umt5_is_read_as_it_means_it(tied: bool | None) -> None:
    """Before 5.24 it scaled all; since then it says so of those that were not to be tied."""
    theirs = UMT5Config(tie_word_embeddings=tied)
    assert shape(theirs.to_dict()).scale_outputs is getattr(theirs, "scale_decoder_outputs", True)


def test_byt5_reads_and_writes_bytes(tmp_path: Path) -> None:
    """Its repository has a description of its tokenizer, and no vocabulary."""
    config, _ = write_published("google/byt5-small", tmp_path)
    described = {
        "tokenizer_class": "ByT5Tokenizer",
        "eos_token": {"content": "</s>", "single_word": False, "lstrip": False, "rstrip": False,
                      "normalized": True, "__type": "AddedToken"},
        "extra_ids": 125,
        "additional_special_tokens": [f"<extra_id_{i}>" for i in range(125)],
    }  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(described), "utf-8")
    tokenizer = load_tokenizer(tmp_path, 384)
    text = "Schönes Wetter, 天気!"
    ids = tokenizer(text).input_ids
    assert ids == [byte + 3 for byte in text.encode()] + [1]
    assert tokenizer.decode(ids, skip_special_tokens=True) == text
    assert len(tokenizer) == config.vocab_size + 384 - SMALL["vocab_size"]
