"""Unsupported formats of drafters, and their distinctive marks in published files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from specjax.hf.families.eagle3_fields import is_p_eagle
from specjax.hf.families.schema import format_value
from specjax.hf.families.speculators import TYPE

READ = (
    "EAGLE-3, P-EAGLE, DFlash, DSpark, DFlash 2, Domino, Medusa's heads, and MTP heads of"
    " speculators or as `folder#mtp` of a target with one"
)

ARCHITECTURES = {
    r"(?!Qwen3DSparkModel|DSpark(DraftModel|Speculator)).*DSpark.*": "DSpark with the layers of"
    " another model",
    r".*JetSpec.*": "JetSpec",
    r"DFlash(?!2?DraftModel|Speculator).+": "DFlash with the layers of another model",
    r"(?!Specjax|PEagleDraftModel|PEagleSpeculator).*P-?Eagle.*": "P-EAGLE with other layers",
    r"Eagle3Deep[Ss]eek\w*": "EAGLE-3 with multi-head latent attention",
    r"(LlamaForCausalLM|Qwen2ForCausalLM|MistralForCausalLM)Eagle": "EAGLE-1 or EAGLE-2",
    r"Eagle(Llama|MiniCPM|Mistral|Cohere|Deepseek)\w*|EAGLEModel": "EAGLE-1 or EAGLE-2",
    r"(?!MTPDraftModel).*MTP.*|.*NextN": "multi-token prediction (MTP)",
    r"MLPSpeculator\w*": "MLPSpeculator",
    r"Medusa\w*": "Medusa in the layout of vLLM",
    r"\w+(?<!Llama)Eagle3Model": "EAGLE-3 of DeepSpec, on five layers of its target",
    r"CosyVoice\w*": "EAGLE-3 for speech tokens (CosyVoice)",
}
"""Names of classes in `architectures`, as patterns."""

SPECULATORS_READ = ("eagle3", "peagle", "dflash", "dspark", "dflash2", "mtp")
"""Values of `speculators_model_type` that a family claims."""

SPECULATORS = {
    "eagle": "EAGLE-1 or EAGLE-2",
    "mlp": "MLPSpeculator",
    "jetspec": "JetSpec",
}
"""Values of `speculators_model_type` that no family claims."""

MODEL_TYPES = {
    r"mlp_speculator": "MLPSpeculator",
    r"medusa": "Medusa in the layout of vLLM",
    r"eagle": "EAGLE-1 or EAGLE-2",
    r".*_mtp": "multi-token prediction (MTP)",
}

FIELDS = {
    "parallel_drafting": "P-EAGLE",
    "ptd_token_id": "P-EAGLE",
    "pard_token": "PARD",
    "hydra_num_heads": "Hydra",
    "dspark_block_size": "DSpark inside of its target",
}
"""Fields that only drafters of one format have."""


def refuse_unread(hf: Mapping[str, Any]) -> None:
    """Refuses configurations of drafters whose format no family reads.

    Raises:
      ValueError: naming the field, its value and the format.
    """
    _refuse_medusa(hf)
    found = next(_formats(hf), None)
    if found:
        field, value, name = found
        raise ValueError(
            f"{field} is {format_value(value)}: a drafter of the format {name}, which specjax "
            "does not"
            f" read; it reads {READ}"
        )
    kind = hf.get(TYPE, SPECULATORS_READ[0])
    if kind not in SPECULATORS_READ:
        raise ValueError(
            f"{TYPE} is {format_value(kind)}; it must be one of {', '.join(SPECULATORS_READ)}"
        )


def _formats(hf: Mapping[str, Any]) -> Iterator[tuple[str, Any, str]]:
    """Fields that identify an unsupported format, their values and its name."""
    for architecture in _list_strings(hf.get("architectures")):
        for pattern, name in ARCHITECTURES.items():
            if re.fullmatch(pattern, architecture):
                yield "architectures", hf["architectures"], name
    for field, named in ((TYPE, SPECULATORS), ("model_type", MODEL_TYPES)):
        for pattern, name in named.items():
            if re.fullmatch(pattern, str(hf.get(field))):
                yield field, hf[field], name
    if not is_p_eagle(hf):
        yield from _iterate_fields(hf, FIELDS)


def _iterate_fields(
    fields: Mapping[str, Any], named: Mapping[str, str]
) -> Iterator[tuple[str, Any, str]]:
    for field, name in named.items():
        value = fields.get(field)
        if value is not None and value is not False:
            yield field, value, name


def _list_strings(value: Any) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _refuse_medusa(hf: Mapping[str, Any]) -> None:
    """Refuses Medusa's heads in place of a model.

    Raises:
      ValueError: saying how they are read.
    """
    count = hf.get("medusa_num_heads")
    if count is None:
        return
    if "model_type" in hf:
        raise ValueError(
            f"medusa_num_heads is {format_value(count)}: a model with Medusa's heads in it, a "
            "format that"
            f" specjax does not read; it reads {READ}"
        )
    raise ValueError(
        f"medusa_num_heads is {format_value(count)}: Medusa's heads, which are a table next to "
        "their target"
        " and no model; specjax.hf.heads.load reads them, in experiments config.heads"
    )


def refuse_fused(tensors: Collection[str]) -> None:
    """Refuses drafters whose configurations are those of small models, as EAGLE-1's are.

    Raises:
      ValueError: naming the tensor that tells them apart.
    """
    tensor = next((name for name in tensors if re.fullmatch(r"(model\.)?fc\.weight", name)), None)
    if tensor is None:
        return
    later = any("hidden_norm" in name for name in tensors)
    name = "EAGLE-3 or DFlash under another name" if later else "EAGLE-1 or EAGLE-2"
    raise ValueError(
        f"it has the tensor {tensor.removeprefix('model.')!r}: a drafter of the format {name},"
        f" which specjax does not read; it reads {READ}"
    )
