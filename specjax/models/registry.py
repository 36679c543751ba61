"""The model families by the `model_type` of their Hugging Face `config.json`."""

from __future__ import annotations

from specjax.models.base import LanguageModel
from specjax.models.families import gpt2, llama, mistral, qwen, t5
from specjax.models.families.family import Family

FAMILIES: dict[str, Family] = {
    "t5": t5.FAMILY,
    "mt5": t5.FAMILY,
    "gpt2": gpt2.FAMILY,
    "llama": llama.FAMILY,
    "mistral": mistral.FAMILY,
    "qwen2": qwen.FAMILY,
    "qwen3": qwen.FAMILY,
}


def family_of(model: LanguageModel) -> Family:
    """The family a model object belongs to."""
    return FAMILIES[model.config.family]
