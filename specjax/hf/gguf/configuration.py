"""The metadata of a GGUF file as the fields of a `config.json`.

A file has no `generation_config.json`: as in transformers, it only has special tokens, and
`tokenizer.ggml.eot_token_id` ends nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from specjax.hf.families.schema import format_value, is_int
from specjax.hf.gguf.architectures import (
    ALL_FACTORS,
    FIELDS,
    LONG_FACTORS,
    SHORT_FACTORS,
    Architecture,
)
from specjax.hf.gguf.header import ARCHITECTURE, Header, Texts, read_header
from specjax.hf.gguf.tensors import get_architecture, read_factors
from specjax.runtime.errors import UserError

TOKENS = "tokenizer.ggml.tokens"
SPECIAL = {
    "tokenizer.ggml.bos_token_id": "bos_token_id",
    "tokenizer.ggml.eos_token_id": "eos_token_id",
    "tokenizer.ggml.padding_token_id": "pad_token_id",
}
SCALING = {
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "attn_factor": "attention_factor",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
"""Keys after `rope.scaling.` and the fields of `rope_scaling`."""
OF_KINDS = {
    "none": (),
    "linear": ("factor",),
    "yarn": tuple(SCALING.values()),
    "longrope": ("original_max_position_embeddings", "attention_factor"),
}
"""Fields that each kind of scaling has."""
NEUTRAL = {"expert_count": 0, "expert_used_count": 0}
HARMLESS = {
    "rope.dimension_count",
    "attention.value_length",
    "tensor_data_layout",
    "rope.scaling.type",
    "rope.scaling.finetuned",
    *(f"rope.scaling.{name}" for name in SCALING),
}
"""Keys that are checked elsewhere or do not affect the computation."""


def read_config(path: Path) -> dict[str, Any]:
    """The fields of the `config.json` equivalent to a GGUF file.

    Raises:
      UserError: when the file cannot be read, or has a key or an architecture that is not.
    """
    header, architecture = read_header(path), get_architecture(path)
    try:
        return _config(path, header, architecture)
    except ValueError as error:
        raise UserError(f"GGUF file {str(path)!r} cannot be used: {error}") from None


def rename_to_keys(path: Path) -> Callable[[str], str]:
    """Replaces a `config.json` field at the start of an error message by the file's key."""
    prefix = f"{read_header(path).metadata[ARCHITECTURE]}."
    keys = {field: prefix + key for key, field in get_architecture(path).fields().items()}
    keys |= {field: key for key, field in SPECIAL.items()}

    def rename_field(refusal: str) -> str:
        field, verb, rest = refusal.partition(" is ")
        return f"{keys.get(field, field)}{verb}{rest}"

    return rename_field


def _config(path: Path, header: Header, architecture: Architecture) -> dict[str, Any]:
    prefix = f"{header.metadata[ARCHITECTURE]}."
    values = {
        key.removeprefix(prefix): value
        for key, value in header.metadata.items()
        if key.startswith(prefix)
    }
    known = architecture.fields()
    _check_keys(prefix, values, known)
    config = {known[key]: value for key, value in values.items() if key in known}
    config |= {"model_type": architecture.model_type} | _vocabulary(header)
    config |= {
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "num_key_value_heads": config.get("num_key_value_heads", config["num_attention_heads"]),
    }
    scalar = architecture.query_scalars.get(config["num_hidden_layers"])
    if scalar is not None:
        config["query_pre_attn_scalar"] = scalar
    return config | _heads(prefix, values, config) | _scaling(path, prefix, values)


def _check_keys(prefix: str, values: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuses a file that lacks a key, or has one that may change what is computed."""
    missing = [key for key in FIELDS if key not in values]
    if missing:
        raise ValueError(f"the key {prefix + missing[0]!r} is missing")
    for key, value in values.items():
        if key not in HARMLESS and key not in known and NEUTRAL.get(key) != value:
            raise ValueError(
                f"{prefix}{key} is {format_value(value)}; specjax does not know what this key "
                "changes"
            )
        if isinstance(value, (list, Texts)):
            raise ValueError(
                f"{prefix}{key} is {format_value(value)}; it must be one for all layers"
            )


def _vocabulary(header: Header) -> dict[str, Any]:
    """The size of the vocabulary, and special tokens."""
    metadata, tokens = header.metadata, header.metadata.get(TOKENS)
    special = {field: metadata[key] for key, field in SPECIAL.items() if key in metadata}
    if f"{metadata[ARCHITECTURE]}.vocab_size" in metadata:
        return special
    if not isinstance(tokens, Texts):
        raise ValueError(f"the key {TOKENS!r} is missing")
    return special | {"vocab_size": tokens.count}


def _heads(prefix: str, values: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The width of heads, and the part of it that is rotated.

    Some Llama files only have the width as that of the rotation.
    """
    rotated, width = values.get("rope.dimension_count"), config.get("head_dim")
    heads = config["num_attention_heads"]
    value_width = values.get("attention.value_length", width)
    if value_width != width:
        raise ValueError(
            f"{prefix}attention.value_length is {format_value(value_width)}; it must be"
            f" {prefix}attention.key_length, {format_value(width)}"
        )
    if rotated is None or not all(map(_is_size, (config["hidden_size"], heads, width or 1))):
        return {}  # what is no size, the family refuses
    if not _is_size(rotated):
        raise ValueError(
            f"{prefix}rope.dimension_count is {format_value(rotated)}; it must be a positive "
            "integer"
        )
    if width is None and prefix == "llama.":
        return {"head_dim": rotated}
    width = width or max(1, config["hidden_size"] // heads)
    return {} if rotated == width else {"partial_rotary_factor": rotated / width}


def _is_size(value: Any) -> bool:
    return is_int(value) and value > 0


def _scaling(path: Path, prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The scaling of the rotation: from the metadata, or by tensors of factors.

    A file has factors for each pair of a head's numbers where `config.json` has a rule that makes
    them (`llama3`), or lists of them (`longrope`).
    """
    kind = values.get("rope.scaling.type", "none")
    declared = {
        field: values[f"rope.scaling.{key}"]
        for key, field in SCALING.items()
        if f"rope.scaling.{key}" in values
    }
    if factors := read_factors(path):
        return _by_factors(declared, factors)
    if kind not in OF_KINDS or kind == "longrope":
        raise ValueError(
            f"{prefix}rope.scaling.type is {format_value(kind)}; without tensors of factors it "
            "must be one"
            " of none, linear, yarn"
        )
    if kind == "none":
        return {}
    known = {field: declared[field] for field in OF_KINDS[kind] if field in declared}
    return {"rope_scaling": {"rope_type": kind} | known}


def _by_factors(values: Mapping[str, Any], factors: Mapping[str, list[float]]) -> dict[str, Any]:
    """The rotation by one list of factors, or one for short and one for long texts."""
    one = factors.get(ALL_FACTORS)
    short, long = factors.get(SHORT_FACTORS, one), factors.get(LONG_FACTORS, one)
    if short is None or long is None:
        raise ValueError(f"of the tensors {SHORT_FACTORS!r} and {LONG_FACTORS!r} one is missing")
    scaling: dict[str, Any] = {
        "rope_type": "longrope",
        "short_factor": short,
        "long_factor": long,
    }
    if one is not None:
        return {"rope_scaling": scaling | {"attention_factor": 1.0}}
    if "attention_factor" in values:
        scaling["attention_factor"] = values["attention_factor"]
    original = values.get("original_max_position_embeddings")
    outside = {} if original is None else {"original_max_position_embeddings": original}
    return {"rope_scaling": scaling} | outside
