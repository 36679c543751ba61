"""gpt-oss: sinks in alternating windows, experts with biases and a clamped gate (OpenAI 2025)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import LAYER, Decoder, whole
from specjax.hf.families.family import Stored, Tensors
from specjax.hf.families.layer_types import WINDOWS, every
from specjax.hf.families.mixtures import LOSSES
from specjax.hf.families.schema import flag, number, size
from specjax.models.causal import CausalConfig
from specjax.models.experts import ClampedGate, Mixture
from specjax.models.positions import Rope


@FAMILIES.register("gpt_oss")
class GptOss(Decoder[CausalConfig]):
    """gpt-oss: attention sinks, windows in every other layer, experts with a clamped gate."""

    schema = Decoder.schema.without("hidden_act").derive(
        "gpt_oss",
        LOSSES,
        **WINDOWS,
        attention_bias=flag(True),
        rope_theta=number(150_000.0),
        num_local_experts=size(128),
        num_experts_per_tok=size(4),
        swiglu_alpha=number(1.702),
        swiglu_limit=number(7.0),
    )
    architecture = "GptOssForCausalLM"
    words: ClassVar[dict[str, str]] = {
        name: field for name, field in Decoder.words.items() if name != "activation"
    }
    constants: ClassVar[dict[str, Any]] = {"sinks": True}
    windows = "mixed"
    unsaid: ClassVar[dict[str, Any]] = {
        "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "truncate": False, "original_max_position_embeddings": 4096,
    }  # fmt: skip
    """The rotation where the configuration has none."""

    def slides(self, fields: Mapping[str, Any], window: int | None) -> Sequence[bool]:
        return every(2, fields)

    def rope(self, fields: Mapping[str, Any], d_head: int) -> Rope:
        given = fields["rope_parameters"]
        return rotary.rope_from_hf(
            {**fields, "rope_parameters": self.unsaid if given is None else given}, d_head
        )

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        mixture = Mixture(
            experts=fields["num_local_experts"],
            chosen=fields["num_experts_per_tok"],
            d_ff=fields["intermediate_size"],
            router_bias=True,
            biased=True,
            clamp=ClampedGate(float(fields["swiglu_alpha"]), float(fields["swiglu_limit"])),
        )
        mixtures = {"mixtures": (mixture,) * fields["num_hidden_layers"]}
        return super().from_fields(fields, hf) | mixtures

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields, mixture = super().to_fields(config), config.mixtures[0]
        return fields | {
            "num_local_experts": mixture.experts,
            "num_experts_per_tok": mixture.chosen,
            "swiglu_alpha": mixture.clamp.steepness,
            "swiglu_limit": mixture.clamp.limit,
            # transformers takes null for a rotation of its own, and refuses to have no window.
            "rope_scaling": fields["rope_scaling"] or {"rope_type": "default"},
            "sliding_window": fields["sliding_window"] or config.max_positions,
        }

    def table(self, config: Any) -> Tensors:
        """Gates and ways up take turns in one tensor, inputs first."""
        width, experts = config.mixtures[0].d_ff, "mlp.experts"
        layer: dict[str, str | Stored] = {
            **LAYER,
            "attention.sinks": "self_attn.sinks",
            "ff.router.logits": "mlp.router",
            "ff.downs": f"{experts}.down_proj",
            "ff.down_biases": f"{experts}.down_proj_bias",
        }
        for part, name in enumerate(("gate", "up")):
            for ours, theirs in ((f"{name}s", ""), (f"{name}_biases", "_bias")):
                tensor = f"{experts}.gate_up_proj{theirs}"
                layer[f"ff.{ours}"] = Stored(tensor, part=part, parts=2, groups=width)
        return whole(layer)
