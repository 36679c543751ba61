"""Phi-3, Phi-4: Llama whose projections lie fused in checkpoints."""

from __future__ import annotations

from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families import llama, rotary
from specjax.hf.families.declared import declared_by
from specjax.hf.families.family import Stored
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.layer_types import same_windows
from specjax.hf.families.schema import Schema, number, raw, read, shown, size
from specjax.models.base import Where
from specjax.models.causal import CausalConfig

SCALINGS = ("default", "longrope")
OLD_NAMES = ("su", "yarn")
"""Under which the first checkpoints have the scaling that became "longrope"."""


def _renamed(fields: dict[str, Any], name: str) -> Any:
    """A field's scaling of the rotation by the name it has today.

    Raises:
      ValueError: when it is one that Phi-3 does not have.
    """
    written = fields[name]
    if not isinstance(written, dict):
        return written
    kind = written.get("rope_type", written.get("type", "default"))
    if kind not in (*SCALINGS, *OLD_NAMES):
        raise ValueError(
            f"{name} is {shown(written)}; its rope_type must be one of {', '.join(SCALINGS)}"
        )
    return written | {"rope_type": "longrope"} if kind in OLD_NAMES else written


@FAMILIES.register("phi3")
class Phi3(llama.Llama[CausalConfig]):
    """Phi-3, Phi-4: Llama with fused projections, LongRoPE and perhaps partial rotation."""

    schema = Schema(
        fields=llama.FIELDS
        | {
            "max_position_embeddings": size(4096),
            "original_max_position_embeddings": size(4096),
            "rms_norm_eps": number(1e-5),
            "partial_rotary_factor": number(1.0),
            "sliding_window": size(None),
            "layer_types": raw(),
        },
        harmless=llama.HARMLESS | {"embd_pdrop", "resid_pdrop"},
        declared=declared_by("phi3"),
    )

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, hf, GENERATION)
        fields |= {name: _renamed(fields, name) for name in ("rope_scaling", "rope_parameters")}
        own = {
            "windows": same_windows(fields),
            "rope": rotary.partial_rope_from_hf(fields, llama.d_head_of(fields)),
        }
        return llama.causal_config(fields, hf, generation, dtype, **own)

    def config_to_hf(self, config: CausalConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, ends = super().config_to_hf(config)
        rope = rotary.rope_of(config)
        own = {
            "sliding_window": config.windows[0] if config.windows else None,
            "original_max_position_embeddings": rope.original or config.max_positions,
            "partial_rotary_factor": rotary.share_to_hf(rope.width, config.d_head),
        }
        return shape | own, ends

    def names(self, config: CausalConfig) -> dict[Where, Stored]:
        """Where each parameter is stored; queries are as wide as several keys."""
        stored = super().names(config)
        spans = config.num_heads // config.num_kv_heads
        for index in range(config.num_layers):
            layer, block = f"layers_{index}", f"model.layers.{index}"
            fused = f"{block}.self_attn.qkv_proj.weight"
            for part, w in ((0, "q"), (spans, "k"), (spans + 1, "v")):
                stored[layer, "attention", w, "kernel"] = Stored(
                    fused, True, part=part, parts=spans + 2, spans=spans if w == "q" else 1
                )
            fused = f"{block}.mlp.gate_up_proj.weight"
            for part, w in enumerate(("gate", "up")):
                stored[layer, "ff", w, "kernel"] = Stored(fused, True, part=part, parts=2)
        return stored
