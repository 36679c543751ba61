"""OLMo 2: Llama with its norms behind the sublayers, and norms of all queries and of all keys."""

from __future__ import annotations

from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families import llama
from specjax.hf.families.declared import declared_by
from specjax.hf.families.generation import GENERATION
from specjax.hf.families.schema import ALL_FULL, Schema, flag, number, read
from specjax.models.causal import CausalConfig


@FAMILIES.register("olmo2")
class Olmo2(llama.Llama[CausalConfig]):
    """Llama with norms behind the sublayers instead of before, and norms of queries and keys.

    OLMo 2 (2025), section 3.2; a query's or key's norm is over all heads together.
    """

    schema = Schema(
        fields=llama.FIELDS
        | {
            "rms_norm_eps": number(1e-5),
            "attention_bias": flag(False),
            **ALL_FULL,
        },
        harmless=llama.HARMLESS,
        declared=declared_by("olmo2"),
    )

    def config_from_hf(
        self, hf: dict[str, Any], generation: dict[str, Any] | None, dtype: Any
    ) -> CausalConfig:
        fields = read(self.schema, hf, GENERATION)
        bias = fields["attention_bias"]
        return llama.causal_config(
            fields,
            hf,
            generation,
            dtype,
            qkv_bias=bias,
            out_bias=bias,
            wide_qk_norm=True,
            pre_norm=False,
            post_norm=True,
        )
