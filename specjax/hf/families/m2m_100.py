"""M2M100 and NLLB checkpoints in Hugging Face's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specjax.core.registry import FAMILIES
from specjax.hf.families.bart import BartLike
from specjax.hf.families.schema import choice, flag, is_int, shown
from specjax.models.bart import BartConfig
from specjax.models.layers import ACTIVATIONS
from specjax.models.sinusoids import Sinusoids

PAD = 1
"""Of Hugging Face's class: where a `config.json` names no token, positions begin behind this."""


@FAMILIES.register("m2m_100")
class M2M100Family(BartLike[BartConfig]):
    """M2M100 and NLLB-200's dense models; positions have no end."""

    architecture = "M2M100ForConditionalGeneration"
    schema = BartLike.schema.changed(
        "m2m_100",
        activation_function=choice("relu", ACTIVATIONS),
        scale_embedding=flag(True),
    )

    def places(self, fields: Mapping[str, Any], hf: Mapping[str, Any]) -> dict[str, Any]:
        """Positions are numbered behind the padding token's id, and padding has none."""
        pad = hf.get("pad_token_id", PAD)
        if not (is_int(pad) and 0 <= pad < fields["vocab_size"]):
            raise ValueError(
                f"pad_token_id is {shown(pad)}; positions begin behind it, so it must be a token id"
                f" from 0 to {fields['vocab_size'] - 1}"
            )
        return {
            "max_positions": None,
            "sinusoids": Sinusoids(fields["d_model"], to_base=True),
            "offset": pad + 1,
            "unplaced": pad,
        }

    def config_to_hf(self, config: BartConfig) -> tuple[dict[str, Any], dict[str, Any]]:
        shape, generation = super().config_to_hf(config)
        return shape | {"pad_token_id": config.unplaced}, generation
