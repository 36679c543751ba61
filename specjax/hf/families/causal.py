"""What decoder-only families with rotary positions share, in the words of Llama's `config.json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from specjax.hf.families import rotary
from specjax.hf.families.family import Family, Shape, Stored, Tensors, nest_modules
from specjax.hf.families.layer_types import KINDS, window_of, windows_of
from specjax.hf.families.schema import (
    CAUSAL,
    COMMON,
    MOST_LAYERS,
    Field,
    Schema,
    choice,
    flag,
    number,
    size,
)
from specjax.models.causal import Causal, CausalConfig
from specjax.models.layers import ACTIVATIONS
from specjax.models.positions import Rope

FIELDS: dict[str, Field] = (
    CAUSAL
    | rotary.FIELDS
    | {
        "vocab_size": size(),
        "hidden_size": size(),
        "intermediate_size": size(),
        "num_hidden_layers": size(most=MOST_LAYERS),
        "num_attention_heads": size(),
        "num_key_value_heads": size(None),
        "head_dim": size(None),
        "max_position_embeddings": size(2048),
        "hidden_act": choice("silu", ACTIVATIONS),
        "rms_norm_eps": number(1e-6),
        "tie_word_embeddings": flag(False),
    }
)
"""Fields of Llama and all its relatives."""

BIAS: dict[str, Field] = {"attention_bias": flag(False)}

HARMLESS = COMMON | {"attention_dropout", "initializer_range"}
"""Declared fields of Llama's relatives that change no token."""

ATTENTION = {
    **{f"attention.{w}": f"self_attn.{w}_proj" for w in "qkvo"},
    **{f"attention.{w}_norm": f"self_attn.{w}_norm" for w in "qk"},
}
FEED_FORWARD = {f"ff.{w}": f"mlp.{w}_proj" for w in ("gate", "up", "down")}
LAYER: Tensors = {
    "attention_norm": "input_layernorm",
    "ff_norm": "post_attention_layernorm",
    **ATTENTION,
    **FEED_FORWARD,
}
"""Modules of a layer."""

SANDWICH: Tensors = {
    **LAYER,
    "ff_norm": "pre_feedforward_layernorm",
    "attention_post_norm": "post_attention_layernorm",
    "ff_post_norm": "post_feedforward_layernorm",
}
"""Modules of a layer with norms after its sublayers; the name of one norm moves."""


FUSED_FEED_FORWARD: Tensors = {
    "ff.gate": Stored("mlp.gate_up_proj", parts=2),
    "ff.up": Stored("mlp.gate_up_proj", part=1, parts=2),
}
"""Modules of a layer whose gate and way up are one tensor."""


def whole(
    layer: Tensors,
    model: str = "model",
    embedding: str = "embed_tokens",
    layers: str = "layers",
    norm: str = "norm",
) -> Tensors:
    """The modules of a model with such layers, under the names of its parts."""
    return {
        "embedding": f"{model}.{embedding}.weight",
        "final_norm": f"{model}.{norm}",
        "head": "lm_head",
        **nest_modules("layers_{}", f"{model}.{layers}.{{}}", layer),
    }


def rotate_windows_only(attributes: Mapping[str, Any], layers: int) -> tuple[Rope | None, ...]:
    """The rotation of each of the layers, where those without windows do not rotate."""
    windows = attributes["windows"] or (0,) * layers
    return tuple(attributes["rope"] if window else None for window in windows)


class Decoder(Family[Shape]):
    """A relative of Llama: fields, constants of its shapes, and their interpretation."""

    model, shape = Causal, CausalConfig
    schema = Schema(FIELDS, HARMLESS)
    words: ClassVar[dict[str, str]] = {
        "vocab_size": "vocab_size",
        "d_model": "hidden_size",
        "d_ff": "intermediate_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "max_positions": "max_position_embeddings",
        "activation": "hidden_act",
        "tied": "tie_word_embeddings",
        "eps": "rms_norm_eps",
    }
    tensors = whole(LAYER)
    prefix = "model."
    ignored = r".*rotary_emb\.inv_freq"

    windows: ClassVar[str] = ""
    """Which layers may slide: "all" or none, a "mixed" lot, or "", never."""

    needs_window: ClassVar[bool] = False
    """Whether transformers refuses a configuration without a window, even where no layer slides."""

    def slides(self, fields: Mapping[str, Any], window: int | None) -> Sequence[bool]:
        """Whether each layer slides, if `layer_types` does not specify it."""
        return [window is not None] * fields["num_hidden_layers"]

    def rope(self, fields: Mapping[str, Any], d_head: int) -> Rope:
        """The rotation of heads of this width."""
        return rotary.rope_from_hf(fields, d_head)

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        heads, bias = fields["num_attention_heads"], fields.get("attention_bias", False)
        d_head = fields["head_dim"] or fields["hidden_size"] // heads
        attributes = {
            "num_kv_heads": fields["num_key_value_heads"] or heads,
            "d_head": d_head,
            "rope": self.rope(fields, d_head),
            "qkv_bias": bias,
            "out_bias": bias,
            "ff_bias": fields.get("mlp_bias", False),
        }
        if self.windows:
            slides = self.slides(fields, window_of(fields))
            attributes["windows"] = windows_of(fields, slides, mixed=self.windows == "mixed")
        return attributes

    def to_fields(self, config: Any) -> dict[str, Any]:
        rope, windows = rotary.get_rope(config), config.layer_windows
        fields = {
            "num_key_value_heads": config.num_kv_heads,
            "head_dim": config.d_head,
            "rope_theta": rope.theta,
            "rope_scaling": rotary.rope_to_hf(rope),
        }
        some = {"attention_bias": config.qkv_bias, "mlp_bias": config.ff_bias}
        if self.windows:
            fields["sliding_window"] = max(windows) or (
                config.max_positions if self.needs_window else None
            )
            some["use_sliding_window"] = any(windows)
        if self.windows == "mixed":
            fields["layer_types"] = [KINDS[window > 0] for window in windows]
        return fields | {name: value for name, value in some.items() if name in self.schema.fields}


def find_local_base(config: Any) -> float | None:
    """The base of the rotation of layers with windows, if there are any."""
    both = zip(config.layer_ropes, config.layer_windows, strict=True)
    return next((rope.theta for rope, window in both if window), None)


class TwoRotations(Decoder[CausalConfig]):
    """A decoder whose layers with windows rotate by a base of their own, and without scaling."""

    windows = "mixed"
    needs_window = True

    def local_base(self, fields: Mapping[str, Any]) -> float:
        """The base of layers with windows, where `rope_parameters` has none."""
        return fields["rope_local_base_freq"]

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        """The rotation of layers that have all keys is what other families have for all."""
        both = rotary.split_rope_kinds(fields, self.local_base(fields))
        attributes = super().from_fields(both, hf)
        sliding, full = rotary.sliding_from_hf(both, attributes["d_head"]), attributes["rope"]
        ropes = tuple(sliding if window else full for window in attributes["windows"])
        return attributes | {"ropes": ropes}
