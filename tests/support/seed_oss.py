"""Seed-OSS as a model family outside of the package: all that its users would write."""

from specjax.contracts.registry import FAMILIES
from specjax.hf.families.causal import BIAS, Decoder
from specjax.hf.families.schema import ALL_FULL, flag
from specjax.models.causal import CausalConfig

OWN = {"mlp_bias": flag(False), "attention_out_bias": flag(False)}


@FAMILIES.register("seed_oss")
class SeedOss(Decoder[CausalConfig]):
    """Llama with biases of queries, keys and values, and perhaps of the attention's output."""

    architecture = "SeedOssForCausalLM"
    schema = Decoder.schema.derive(
        "seed_oss", ("pretraining_tp", "residual_dropout"), **BIAS, **OWN, **ALL_FULL
    )

    def from_fields(self, fields: dict, hf: dict) -> dict:
        return super().from_fields(fields, hf) | {"out_bias": fields["attention_out_bias"]}

    def to_fields(self, config: CausalConfig) -> dict:
        return super().to_fields(config) | {"attention_out_bias": config.out_bias}
