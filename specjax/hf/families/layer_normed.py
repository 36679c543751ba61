"""Relatives of Llama with layer norms: StarCoder 2, StableLM, Phi 1 and 2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import FEED_FORWARD, LAYER, Decoder, whole
from specjax.hf.families.family import Stored, Tensors, nest_modules
from specjax.hf.families.layer_types import WINDOWS
from specjax.hf.families.schema import ALL_FULL, filled_heads, flag, number, only
from specjax.models.causal import CausalConfig
from specjax.models.positions import Rope

SCHEMA = Decoder.schema.without("rms_norm_eps")
WORDS: dict[str, str] = Decoder.words | {"eps": "layer_norm_eps"}
PLAIN: Tensors = {name: entry for name, entry in LAYER.items() if name not in FEED_FORWARD}
"""Modules of a layer without those of a gated feed-forward."""


@FAMILIES.register("starcoder2")
class StarCoder2(Decoder[CausalConfig]):
    """StarCoder 2: biases, a plain feed-forward, and perhaps a window in every layer."""

    schema = SCHEMA.derive(
        "starcoder2",
        ("embedding_dropout", "residual_dropout"),
        **WINDOWS,
        norm_epsilon=number(1e-5),
        use_bias=flag(True),
    )
    words: ClassVar[dict[str, str]] = WORDS | {"eps": "norm_epsilon"}
    constants: ClassVar[dict[str, Any]] = {"rms_norm": False, "gated": False}
    tensors = whole({**PLAIN, "ff.up": "mlp.c_fc", "ff.down": "mlp.c_proj"})
    windows = "all"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        biases = dict.fromkeys(("qkv_bias", "out_bias", "ff_bias"), fields["use_bias"])
        return super().from_fields(fields, hf) | biases

    def to_fields(self, config: Any) -> dict[str, Any]:
        return super().to_fields(config) | {"use_bias": config.qkv_bias}


class _PartialRotation(Decoder[CausalConfig]):
    """Heads that fill the width, of which a share is rotated."""

    def rope(self, fields: Mapping[str, Any], d_head: int) -> Rope:
        return rotary.partial_rope_from_hf(fields, filled_heads(fields))

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields, width = super().to_fields(config), rotary.get_rope(config).width
        return fields | {"partial_rotary_factor": rotary.share_to_hf(width, config.d_head)}


@FAMILIES.register("stablelm")
class StableLM(_PartialRotation):
    """StableLM: a quarter of each head is rotated, perhaps with norms of single heads."""

    schema = SCHEMA.derive(
        "stablelm",
        ("hidden_dropout",),
        **ALL_FULL,
        partial_rotary_factor=number(0.25),
        layer_norm_eps=number(1e-5),
        use_qkv_bias=flag(False),
        qk_layernorm=flag(False),
        use_parallel_residual=flag(False),
    )
    words: ClassVar[dict[str, str]] = WORDS | {
        "head_norms": "qk_layernorm",
        "parallel": "use_parallel_residual",
        "shared_norm": "use_parallel_residual",
    }
    constants: ClassVar[dict[str, Any]] = {"rms_norm": False}
    architecture = "StableLmForCausalLM"

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        return super().from_fields(fields, hf) | {"qkv_bias": fields["use_qkv_bias"]}

    def to_fields(self, config: Any) -> dict[str, Any]:
        return super().to_fields(config) | {"use_qkv_bias": config.qkv_bias}

    def table(self, config: Any) -> Tensors:
        """Each head's scale is a tensor."""
        counts = {"q": config.num_heads, "k": config.num_kv_heads}
        scales: Tensors = {
            f"attention.{w}_norm.scale": Stored(
                f"self_attn.{w}_layernorm.norms.{{{{}}}}.weight", stacked=count
            )
            for w, count in counts.items()
        }
        return {**self.tensors, **nest_modules("layers_{}", "model.layers.{}", scales)}


@FAMILIES.register("phi")
class Phi(_PartialRotation):
    """Phi 1 to 2: biases everywhere, one norm before attention and feed-forward side by side."""

    schema = SCHEMA.derive(
        "phi",
        ("embd_pdrop", "resid_pdrop"),
        **ALL_FULL,
        partial_rotary_factor=number(0.5),
        layer_norm_eps=number(1e-5),
        qk_layernorm=flag(False),
        tie_word_embeddings=only(False, "the output layer has a bias"),
    )
    words: ClassVar[dict[str, str]] = WORDS | {"qk_norm": "qk_layernorm"}
    constants: ClassVar[dict[str, Any]] = {
        "rms_norm": False,
        "gated": False,
        "parallel": True,
        "shared_norm": True,
        "qkv_bias": True,
        "out_bias": True,
        "ff_bias": True,
        "head_bias": True,
    }
    tensors: ClassVar[Tensors] = {
        **whole(
            {
                **PLAIN,
                "attention.o": "self_attn.dense",
                "attention.q_norm": "self_attn.q_layernorm",
                "attention.k_norm": "self_attn.k_layernorm",
                "ff.up": "mlp.fc1",
                "ff.down": "mlp.fc2",
            }
        ),
        "final_norm": "model.final_layernorm",
    }
