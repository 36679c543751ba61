"""Phi-3.5-MoE: Mixtral with layer norms, biases and the router of SparseMixer (Microsoft 2024)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

from specjax.contracts.registry import FAMILIES
from specjax.hf.families import rotary
from specjax.hf.families.causal import BIAS
from specjax.hf.families.mixtures import Mixtral
from specjax.hf.families.schema import flag, format_value, is_positive, only, rate, size
from specjax.models.positions import Rope

SCALES = ("short_mscale", "long_mscale")
"""Inside of the scaling: factors of queries and keys in short texts and in long ones."""


@FAMILIES.register("phimoe")
class PhiMoE(Mixtral):
    """Phi-3.5-MoE: Mixtral with layer norms, biases and the router of SparseMixer."""

    schema = Mixtral.schema.derive(
        "phimoe",
        ("input_jitter_noise",),
        **BIAS,
        num_local_experts=size(16, least=2),
        num_experts_per_tok=only(2, "the router always selects two experts"),
        router_jitter_noise=rate(0.01),
        lm_head_bias=flag(False),
    )
    words: ClassVar[dict[str, str]] = Mixtral.words | {"head_bias": "lm_head_bias"}
    constants: ClassVar[dict[str, Any]] = {"rms_norm": False}

    def rope(self, fields: Mapping[str, Any], d_head: int) -> Rope:
        """Waves are divided by the short factors in texts of any length, as in transformers."""
        name, written = rotary.find_scaling(fields)
        kind = written.get("rope_type", written.get("type", "default"))
        if kind == "default":
            return super().rope(fields, d_head)
        short, long = (written.get(word) for word in SCALES)
        if kind != "longrope" or not is_positive(short) or short != long:
            raise ValueError(
                f"{name} is {format_value(written)}; its rope_type must be one of default, longrope"
                f" and both of {' and '.join(SCALES)} the same positive number"
            )
        same = {"attention_factor": short, "long_factor": written.get("short_factor")}
        plain = {word: value for word, value in written.items() if word not in SCALES}
        return super().rope({**fields, name: plain | same}, d_head)

    def from_fields(self, fields: dict[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        if fields["lm_head_bias"] and fields["tie_word_embeddings"]:
            raise ValueError("lm_head_bias is true; it must be false where embeddings are tied")
        attributes, jitter = super().from_fields(fields, hf), float(fields["router_jitter_noise"])
        mixtures = (dataclasses.replace(one, jitter=jitter) for one in attributes["mixtures"])
        return attributes | {"mixtures": tuple(mixtures)}

    def to_fields(self, config: Any) -> dict[str, Any]:
        fields, scaling = super().to_fields(config), rotary.rope_to_hf(rotary.get_rope(config))
        if scaling:
            scaling |= dict.fromkeys(SCALES, scaling["attention_factor"])
        jitter = config.mixtures[0].jitter
        return fields | {"rope_scaling": scaling, "router_jitter_noise": jitter}
