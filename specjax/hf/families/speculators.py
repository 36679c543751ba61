"""Parts of `config.json` that all drafters in the layout of vLLM's speculators share.

`transformer_layer_config` holds the differences from the defaults of its class in transformers: an
absent field has the default of that class. The target, the layout's verifier, is only named.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from specjax.hf.families.generation import GENERATION
from specjax.hf.families.schema import NEEDED, Schema, format_value, part, read

TYPE = "speculators_model_type"

LAYER = "transformer_layer_config"

USUAL_CLASS = "qwen3"
"""Class of a layer whose configuration does not name one."""

HARMLESS = frozenset({"has_no_defaults_at_init", "speculators_version", "tie_word_embeddings"})
"""Fields of the base class that change no token."""

EMBEDDING, HEAD = "embed_tokens.weight", "lm_head.weight"
"""Copies of the target's tensors, which a file may leave out."""

MAPPING, DRAFTABLE = "d2t", "t2d"
"""Tensors of a reduced vocabulary: id i of the drafter is id i + d2t[i] of the target."""


def read_layer(words: Any, schemas: Mapping[str, Schema]) -> dict[str, Any]:
    """The checked fields of `transformer_layer_config`, by the schema of its class.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    if not isinstance(words, dict):
        raise ValueError(f"{LAYER} is {format_value(words)}; it must be an object")
    kind = words.get("model_type", USUAL_CLASS)
    if not isinstance(kind, str) or kind not in schemas:
        raise ValueError(
            f"model_type in {LAYER} is {format_value(kind)}; it must be one of {', '.join(schemas)}"
        )
    with part(LAYER):
        fields = read(schemas[kind], add_sizes(schemas[kind], words), GENERATION)
    return fields | {"model_type": kind}


def add_sizes(schema: Schema, words: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with the class's defaults of missing sizes, which a model's file must have."""
    sizes = {name for name, field in schema.fields.items() if field.default is NEEDED}
    defaults = schema.declaration.defaults
    return {name: value for name, value in defaults.items() if name in sizes} | dict(words)


def read_target_name(words: Any) -> str:
    """The name of the target in `speculators_config`; empty where there is none."""
    try:
        return words["verifier"]["name_or_path"] or ""
    except (KeyError, TypeError):
        return ""


def read_length(words: Any) -> int | None:
    """The draft length that `speculators_config` proposes; None where it proposes none."""
    try:
        return words["proposal_methods"][0]["speculative_tokens"]
    except (IndexError, KeyError, TypeError):
        return None


def describe_proposal(algorithm: str, tokens: int, target_name: str) -> dict[str, Any]:
    """`speculators_config`: an engine's default draft settings, with drafts of so many tokens."""
    greedy = {
        "proposal_type": "greedy",
        "speculative_tokens": tokens,
        "verifier_accept_k": 1,
        "accept_tolerance": 0.0,
    }
    return {
        "algorithm": algorithm,
        "default_proposal_method": "greedy",
        "proposal_methods": [greedy],
        "verifier": {"name_or_path": target_name or None, "architectures": []},
    }


def drafted_ids(layer: Mapping[str, Any], drafted: int | None) -> int:
    """How many ids of a layer's vocabulary can be drafted; None: all of them.

    Raises:
      ValueError: when there are not so many.
    """
    size = layer["vocab_size"]
    if drafted is not None and drafted > size:
        raise ValueError(f"draft_vocab_size is {drafted}; it must be at most vocab_size, {size}")
    return drafted or size


def require_mapping(drafted: int, size: int, tensors: Collection[str]) -> None:
    """Refuses a checkpoint of a reduced vocabulary without the ids of its tokens.

    Raises:
      ValueError: naming the tensor.
    """
    if drafted < size and MAPPING not in tensors:
        raise ValueError(f"it lacks the tensor {MAPPING!r}, which maps its {drafted} ids")


def draftable_ids(drafted: int, size: int, tensors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The tensor of a reduced vocabulary that says of each id whether it can be drafted."""
    if MAPPING not in tensors:
        return {}
    can = np.zeros(size, bool)
    can[tensors[MAPPING] + np.arange(drafted)] = True
    return {DRAFTABLE: can}
