"""Gemma 4: layers of two kinds, which differ in heads, windows and rotations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import BIAS, SANDWICH, Decoder, whole
from specjax.hf.families.gemma import TANH
from specjax.hf.families.layer_types import KINDS, WINDOWS, every
from specjax.hf.families.schema import (
    choice,
    flag,
    format_value,
    is_int,
    number,
    only,
    part,
    raw,
    size,
)
from specjax.hf.families.text_parts import TextPart, make_schema
from specjax.models.causal import CausalConfig
from specjax.models.causal_config import Heads
from specjax.models.layer_inputs import LayerInputs
from specjax.models.layers import ACTIVATIONS
from specjax.models.positions import Rope

FULL, SLIDING = KINDS
UNSAID: dict[str, dict[str, Any]] = {
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1e6},
    SLIDING: {"rope_type": "default", "rope_theta": 1e4},
}
"""Both rotations where the configuration has none."""

LAYER_INPUTS: dict[str, str] = {
    "layer_embedding.embedding": "model.embed_tokens_per_layer.weight",
    "layer_embedding.projection": "model.per_layer_model_projection",
    "layer_embedding.norm": "model.per_layer_projection_norm",
    "layers_{}.input_gate.gating": "model.layers.{}.per_layer_input_gate",
    "layers_{}.input_gate.projection": "model.layers.{}.per_layer_projection",
    "layers_{}.input_gate.norm": "model.layers.{}.post_per_layer_input_norm",
}
"""Modules of embeddings that each layer reads."""

UNSHARED = rf"{Decoder.ignored}|model\.layers\.\d+\.self_attn\.([kv]_proj|k_norm)\.\w+"
"""Tensors without a place here: of layers that read the cache of another one."""


@FAMILIES.register("gemma4_text")
class Gemma4Text(Decoder[CausalConfig]):
    """Gemma 4 E2B, E4B and 31B: norms of values, wider heads in layers without windows.

    Small models' last layers read caches of earlier ones, and all layers embeddings of their own;
    in the large one keys stand for values. Models with experts are refused.
    """

    schema = Decoder.schema.without("hidden_act").derive(
        "gemma4_text",
        **BIAS,
        **WINDOWS,
        hidden_activation=choice(TANH, ACTIVATIONS),
        final_logit_softcapping=number(None),
        use_bidirectional_attention=choice(None, ("vision",)),
        attention_k_eq_v=flag(False),
        global_head_dim=size(512),
        num_global_key_value_heads=size(None),
        per_layer_config=raw(),
        rope_scaling=only(None, "rope_parameters has both rotations"),
        hidden_size_per_layer_input=size(256, least=0),
        vocab_size_per_layer_input=size(262_144, least=0),
        num_kv_shared_layers=size(0, least=0),
        use_double_wide_mlp=flag(False),
        enable_moe_block=only(False, "experts beside a feed-forward are not supported"),
        num_experts=raw(),
        top_k_experts=raw(),
        moe_intermediate_size=raw(),
    )
    words: ClassVar[dict[str, str]] = Decoder.words | {"activation": "hidden_activation"}
    constants: ClassVar[dict[str, Any]] = {
        "post_norm": True,
        "qk_norm": True,
        "value_norm": True,
        "layer_scale": True,
        "query_scale": 1.0,
    }
    architecture = "Gemma4ForCausalLM"
    tensors: ClassVar[dict[str, Any]] = {
        **whole(SANDWICH),
        **LAYER_INPUTS,
        "layers_{}.scale": "model.layers.{}.layer_scalar",
    }
    windows = "mixed"
    ignored = UNSHARED

    def slides(self, fields: Mapping[str, Any], window: int | None) -> Sequence[bool]:
        return [*every(6, fields)[:-1], False]

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        kinds, rotations = fields["layer_types"], fields["rope_parameters"]
        if isinstance(kinds, list) and kinds:
            fields = fields | {"layer_types": [*kinds[:-1], FULL]}  # as transformers does
        attributes = super().from_fields(fields | {"rope_parameters": None}, hf)
        windows = attributes["windows"] or (0,) * fields["num_hidden_layers"]
        rotations = UNSAID if rotations is None else rotations
        heads = _read_heads(fields, windows)
        ropes = _read_rotations(fields, rotations, heads, windows)
        shared, d_ff = share_caches(fields, heads, windows), fields["intermediate_size"]
        d_ffs = (d_ff,) * (len(heads) - len(shared)) + (2 * d_ff,) * len(shared)
        return attributes | {
            "shared_caches": shared,
            "d_ffs": d_ffs if shared and fields["use_double_wide_mlp"] else (),
            "layer_inputs": read_layer_inputs(fields),
            "heads": tuple(heads),
            "rope": ropes[-1],
            "ropes": tuple(ropes),
            "embedding_scale": math.sqrt(fields["hidden_size"]),
            "logit_cap": fields["final_logit_softcapping"] or 0.0,
        }

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields = super().to_fields(config)
        windows, last, inputs = config.layer_windows, config.heads[-1], config.layer_inputs
        rotations = UNSAID | {
            SLIDING if window else FULL: _rotation_to_hf(rope)
            for window, rope in zip(windows, config.layer_ropes, strict=True)
        }
        for name in ("rope_theta", "rope_scaling"):
            fields.pop(name)
        return fields | {
            "sliding_window": fields["sliding_window"] or config.max_positions,
            "rope_parameters": rotations,
            "attention_k_eq_v": last.values_are_keys,
            "global_head_dim": last.width,
            "num_global_key_value_heads": last.kv_heads,
            "per_layer_config": {
                str(layer): {"head_dim": one.width, "num_key_value_heads": one.kv_heads}
                for layer, one in enumerate(config.heads)
                if not windows[layer]
            },
            "hidden_size_per_layer_input": inputs.width if inputs else 0,
            "vocab_size_per_layer_input": (inputs or config).vocab_size,
            "num_kv_shared_layers": len(config.shared_caches),
            "use_double_wide_mlp": bool(config.d_ffs),
            "final_logit_softcapping": config.logit_cap or None,
        }


def read_layer_inputs(fields: Mapping[str, Any]) -> LayerInputs | None:
    """The embeddings that each layer reads.

    Raises:
      ValueError: when tokens have none.
    """
    rows, width = fields["vocab_size_per_layer_input"], fields["hidden_size_per_layer_input"]
    if width and rows < fields["vocab_size"]:
        raise ValueError(
            f"vocab_size_per_layer_input is {rows}; it must be at least vocab_size,"
            f" {fields['vocab_size']}"
        )
    return LayerInputs(width, rows) if width else None


def share_caches(
    fields: Mapping[str, Any], heads: Sequence[Heads], windows: Sequence[int]
) -> tuple[int, ...]:
    """The layer whose cache each of the last layers reads: the last one of its kind before them.

    Raises:
      ValueError: when there is none, or its heads are others.
    """
    count = fields["num_kv_shared_layers"]
    first = len(windows) - count
    found = []
    for layer in range(max(first, 0), len(windows)):
        before = [i for i in range(max(first, 0)) if bool(windows[i]) == bool(windows[layer])]
        if not before or heads[before[-1]][:2] != heads[layer][:2]:
            raise ValueError(
                f"num_kv_shared_layers is {count}; layer {layer} must have an earlier layer of its"
                " kind, with the same heads, whose keys and values it shares"
            )
        found.append(before[-1])
    return tuple(found)


def _read_heads(fields: Mapping[str, Any], windows: Sequence[int]) -> list[Heads]:
    """Key and value heads of each layer: by its own fields, or by those of layers without windows.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    given, same = fields["per_layer_config"], fields["attention_k_eq_v"]
    own: dict[str, Any] = {"head_dim": fields["global_head_dim"]}
    if same and fields["num_global_key_value_heads"] is not None:
        own["num_key_value_heads"] = fields["num_global_key_value_heads"]
    if given is None:
        given = {str(layer): own for layer, window in enumerate(windows) if not window}
    _check_layers(given, own, len(windows))
    heads = []
    for layer, window in enumerate(windows):
        one = {name: fields[name] for name in ("num_key_value_heads", "head_dim")}
        kv_heads, width = (one | given.get(str(layer), {})).values()
        if fields["num_attention_heads"] % kv_heads:
            raise ValueError(
                f"num_key_value_heads of layer {layer} is {kv_heads}; it must divide"
                f" num_attention_heads, {fields['num_attention_heads']}"
            )
        heads.append(Heads(kv_heads, width, same and not window))
    return heads


def _check_layers(given: Any, own: Mapping[str, Any], layers: int) -> None:
    """Refuses a `per_layer_config` that is not one of heads."""
    names = {"head_dim", "num_key_value_heads"}
    fits = isinstance(given, dict) and all(
        layer in map(str, range(layers))
        and isinstance(one, dict)
        and not set(one) - names
        and all(is_int(value) and value > 0 for value in one.values())
        for layer, one in given.items()
    )
    if not fits:
        raise ValueError(
            f"per_layer_config is {format_value(given)}; it must give layers from 0 to {layers - 1}"
            " a positive head_dim or num_key_value_heads, and nothing else"
        )


def _read_rotations(
    fields: Mapping[str, Any], rotations: Any, heads: Sequence[Heads], windows: Sequence[int]
) -> list[Rope]:
    """The rotation of each layer.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    ropes = []
    for one, window in zip(heads, windows, strict=True):
        kind = SLIDING if window else FULL
        written = rotations.get(kind) if isinstance(rotations, dict) else None
        if not isinstance(written, dict) or "rope_theta" not in written:
            raise ValueError(
                f"rope_parameters is {format_value(rotations)}; it must hold an object with"
                f" rope_theta for {kind!r}"
            )
        with part(kind):
            rope = rotary.rope_from_hf({**fields, "rope_parameters": written}, one.width)
        if rope.kind not in ("default", "proportional"):
            raise ValueError(
                f"rope_type of {kind!r} is {rope.kind!r}; it must be 'default' or 'proportional'"
            )
        ropes.append(rope)
    return ropes


def _rotation_to_hf(rope: Rope) -> dict[str, Any]:
    return (rotary.rope_to_hf(rope) or {"rope_type": "default"}) | {"rope_theta": rope.theta}


@FAMILIES.register("gemma4")
class Gemma4(TextPart):
    """The text part of a Gemma 4 that also sees; it is exported as a text model."""

    schema = make_schema(
        "gemma4",
        (
            "audio_config",
            "audio_token_id",
            "boa_token_id",
            "boi_token_id",
            "eoa_token_index",
            "eoi_token_id",
            "image_token_id",
            "initializer_range",
            "video_token_id",
        ),
    )
    families: ClassVar[dict[str, str]] = {"gemma4_text": "gemma4_text"}
    ignored = rf"{Decoder.ignored}|model\.(vision_tower|audio_tower|embed_vision|embed_audio)\..*"
