"""RecurrentGemma: RG-LRU in two of three layers, attention in windows in the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import BIAS, Decoder, whole
from specjax.hf.families.family import Stored, Tensors, nest_modules
from specjax.hf.families.gemma import TANH
from specjax.hf.families.schema import choice, flag, format_value, number, only, raw, size
from specjax.models.causal import CausalConfig
from specjax.models.layers import ACTIVATIONS
from specjax.models.positions import Rope
from specjax.models.rg_lru import RgLru

RECURRENT, ATTENTION = "recurrent", "attention"
MODULES: Tensors = {
    "v": "linear_x",
    "gate": "linear_y",
    "o": "linear_out",
    "taps": Stored("conv_1d.weight"),
    "taps_bias": Stored("conv_1d.bias"),
    "log_speed": Stored("rg_lru.recurrent_param"),
    "input_gate.weight": Stored("rg_lru.input_gate_weight"),
    "input_gate.bias": Stored("rg_lru.input_gate_bias"),
    "decay_gate.weight": Stored("rg_lru.recurrent_gate_weight"),
    "decay_gate.bias": Stored("rg_lru.recurrent_gate_bias"),
}
"""Modules of a recurrent layer."""

LAYER: Tensors = {
    "attention_norm": "temporal_pre_norm",
    "ff_norm": "channel_pre_norm",
    **nest_modules("attention", "temporal_block", {w: f"{w}_proj" for w in "qkvo"}),
    **nest_modules("recurrent", "temporal_block", MODULES),
    **nest_modules("ff", "mlp_block", {w: f"{w}_proj" for w in ("gate", "up", "down")}),
}


@FAMILIES.register("recurrent_gemma")
class RecurrentGemma(Decoder[CausalConfig]):
    """RecurrentGemma: channels with gated decays (RG-LRU), and local attention."""

    schema = Decoder.schema.without("hidden_act").derive(
        "recurrent_gemma",
        ("w_init_variance_scale", "final_w_init_variance_scale"),
        **BIAS,
        intermediate_size=size(7680, least=2),
        lru_width=size(None),
        attention_window_size=size(2048),
        conv1d_width=size(4, least=2),
        block_types=raw([RECURRENT, RECURRENT, ATTENTION]),
        logits_soft_cap=number(30.0),
        hidden_activation=choice(TANH, ACTIVATIONS),
        partial_rotary_factor=number(0.5),
        tie_word_embeddings=flag(True),
        layer_types=only(None),
    )
    architecture = "RecurrentGemmaForCausalLM"
    words: ClassVar[dict[str, str]] = {
        name: field for name, field in Decoder.words.items() if name not in ("activation", "d_ff")
    } | {"activation": "hidden_activation", "logit_cap": "logits_soft_cap"}
    constants: ClassVar[dict[str, Any]] = {"unit_offset": True, "out_bias": True, "ff_bias": True}
    tensors = whole(LAYER, norm="final_norm")

    def rope(self, fields: Mapping[str, Any], d_head: int) -> Rope:
        made = rotary.partial_rope_from_hf(fields, d_head)
        if made.kind != "default":
            raise ValueError(f"rope_type is {made.kind!r}; of this family it must be 'default'")
        return made

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        width, heads = fields["hidden_size"], fields["num_attention_heads"]
        layer = RgLru(
            key_heads=1,
            value_heads=fields["lru_width"] or width,
            d_key=1,
            d_value=1,
            taps=fields["conv1d_width"],
            blocks=heads,
        )
        kinds = [kind == RECURRENT for kind in _repeat_kinds(fields)]
        window = fields["attention_window_size"]
        # The factor is stored in bfloat16.
        scale = float(np.asarray(math.sqrt(width), jnp.bfloat16))
        return super().from_fields(fields, hf) | {
            "d_ff": fields["intermediate_size"] // 2,
            "embedding_scale": scale,
            "recurrences": tuple(layer if kind else None for kind in kinds),
            "windows": tuple(0 if kind else window for kind in kinds),
        }

    def to_fields(self, config: Any) -> dict[str, Any]:
        layer = next(filter(None, config.recurrences), RgLru(1, config.d_model, 1, 1))
        rope, kinds = rotary.get_rope(config), config.recurrences
        return super().to_fields(config) | {
            "intermediate_size": 2 * config.d_ff,
            "lru_width": layer.value_heads,
            "conv1d_width": layer.taps,
            "attention_window_size": max(config.layer_windows) or config.max_positions,
            "block_types": [RECURRENT if kind else ATTENTION for kind in kinds],
            "partial_rotary_factor": rotary.share_to_hf(rope.width, config.d_head),
        }


def _repeat_kinds(fields: Mapping[str, Any]) -> list[str]:
    """The kind of each layer: `block_types` again and again.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    kinds, layers = fields["block_types"], fields["num_hidden_layers"]
    known = isinstance(kinds, list | tuple) and all(k in (RECURRENT, ATTENTION) for k in kinds)
    if not known or not kinds:
        raise ValueError(
            f"block_types is {format_value(kinds)}; it must be a list of {RECURRENT!r} and"
            f" {ATTENTION!r}"
        )
    return [kinds[layer % len(kinds)] for layer in range(layers)]
