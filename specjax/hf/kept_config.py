"""The `config.json` of a saved model: the one that it was loaded from, with what has changed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from specjax.hf.families.family import Family
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.schema import Schema

ROUNDS = 3
"""Rounds of patching: the default of a field may depend on another field."""

DROPPED = ("auto_map", "quantization_config")
"""Fields about data that is not saved: code of the repository, quantized weights."""

DTYPES = ("dtype", "torch_dtype")

_ABSENT = object()


def config_to_save(
    family: Family,
    config: Any,
    original: Mapping[str, Any],
    generation: Mapping[str, Any],
    dtype: str,
) -> dict[str, Any]:
    """The fields of `config.json` for a model: those of `original`, with changed ones patched.

    `original` is empty or `Family.export_base` of what the model was loaded from, `config` the
    model's shape, `generation` the contents of the `generation_config.json` next to it, and `dtype`
    that of the weights. A field keeps the name that it has in `original`. Where patching does not
    give the model's shape, all fields but those that transformers does not declare are generated.
    """
    generated = _convert_to_json(family, config)
    if original.get("model_type") != generated.get("model_type"):
        return generated
    fields = dict(original)
    for _ in range(ROUNDS):
        fields = _as_stored(fields, dtype)
        if "architectures" in generated:
            fields["architectures"] = generated["architectures"]
        try:
            read = family.config_from_hf(fields, {**generation}, config.dtype)
        except ValueError:
            break
        described = _convert_to_json(family, read)
        if described == generated:
            return fields
        fields = _patch_fields(fields, described, generated, family.schema.aliases)
    return _select_undeclared(family.schema, original) | generated


def floating_dtype(tensors: Iterable[np.ndarray]) -> str:
    """The name of the dtype that holds all floating-point tensors."""
    dtypes = {one.dtype for one in tensors if jnp.issubdtype(one.dtype, jnp.floating)}
    return jnp.result_type(*dtypes).name


def _convert_to_json(family: Family, config: Any) -> dict[str, Any]:
    """A shape's fields as they are read back from JSON."""
    return json.loads(json.dumps(family.config_to_hf(config)[0]))


def _is_config(value: Any) -> bool:
    """Whether a field's value is the configuration of a part of the model."""
    return isinstance(value, dict) and "model_type" in value


def _as_stored(fields: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """The fields for floating-point weights of a dtype, also those of parts."""
    made = {name: value for name, value in fields.items() if name not in DROPPED}
    for name, value in made.items():
        if _is_config(value):
            made[name] = _as_stored(value, dtype)
        elif name in DTYPES and value is not None:
            made[name] = dtype
    return made


def _patch_fields(
    fields: Mapping[str, Any],
    described: Mapping[str, Any],
    generated: Mapping[str, Any],
    aliases: Mapping[str, str],
) -> dict[str, Any]:
    """The fields, with values of `generated` where `described` differs."""
    made = dict(fields)
    for name in {**described, **generated}:
        before, after = described.get(name, _ABSENT), generated.get(name, _ABSENT)
        if before == after:
            continue
        names = [name, *(alias for alias, meant in aliases.items() if meant == name)]
        for written in [one for one in names if one in fields] or [name]:
            if after is _ABSENT:
                made.pop(written, None)
            elif _is_config(before) and _is_config(after) and isinstance(fields.get(written), dict):
                made[written] = _patch_fields(fields[written], before, after, {})
            else:
                made[written] = after
    return made


def _select_undeclared(schema: Schema, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that neither the family reads nor transformers declares."""
    declared = {
        *schema.fields, *schema.aliases, *schema.harmless, *schema.declaration.defaults, *GENERATION
    }  # fmt: skip
    return {name: value for name, value in fields.items() if name not in declared}
