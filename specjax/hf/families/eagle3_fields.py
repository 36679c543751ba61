"""The fields of published EAGLE-3 drafters: of their layer, of what they read, of their norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specjax.hf.families import causal
from specjax.hf.families.published import all_full
from specjax.hf.families.schema import Field, Schema, flag, is_int, only, size


def _layers() -> Field:
    def fits(value: Any) -> bool:
        numbers = isinstance(value, list | tuple) and bool(value) and all(map(is_int, value))
        return numbers and len(set(value)) == len(value) and min(value) >= 1

    return Field(None, "a list of different layers of the target, from 1 on", fits)


def equal(value: int, why: str) -> Field:
    return Field(value, f"{value}: {why}", lambda given: is_int(given) and given == value)


LAYER: dict[str, Field] = causal.FIELDS | {
    "num_hidden_layers": equal(1, "drafters of several layers are not supported"),
    "attention_bias": only(False, "biases are not supported"),
    "mlp_bias": only(False, "biases are not supported"),
    "use_sliding_window": only(False, "a drafter has no sliding window"),
    "layer_types": all_full(),
    "partial_rotary_factor": Field(None, "1: partial rotation is not supported", lambda x: x == 1),
}
"""Fields of the layer, by Llama's names."""

NORMS = {
    "norm_before_residual": flag(False),
    "norm_before_fc": flag(False),
    "fc_norm": flag(False),
    "norm_output": flag(False),
}
"""Where a drafter departs from the published EAGLE-3."""

COUNTS = {
    "draft_vocab_size": size(None),
    "target_hidden_size": size(None),
    "eagle_aux_hidden_state_layer_ids": _layers(),
}

NESTED = Schema(
    {
        "use_aux_hidden_state": only(True, "a drafter reads several layers of the target"),
        "eagle_aux_hidden_state_layer_ids": _layers(),
        "use_input_layernorm_in_first_layer": only(True, "the layer norms its input"),
        "use_last_layernorm": only(True, "the output layer reads normed states"),
        "use_mtp_layernorm": only(False, "such a norm is not supported"),
        "parallel_draft_step": equal(1, "drafting in parallel is not supported"),
    },
    # Fields of further layers, and of heads that draft in parallel: there are none.
    harmless=("next_layer_regular", "parallel_draft_heads_num_layers"),
)
"""`eagle_config`, as SpecForge and Model Optimizer write it."""


PLAIN = {
    "llama": "LlamaForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
"""What a drafter may call itself, with a Llama's layer in each; also the classes of models."""

VOCABULARIES = "draft_vocab_size", "truncated_vocab_size"

TELLING = *VOCABULARIES, "eagle_config"
"""Fields that no model has, and a drafter of a plain name."""

EAGLE3 = (
    "LlamaForCausalLMEagle3",
    "Eagle3LlamaForCausalLM",
    "EAGLE3LlamaForCausalLM",
    "LlamaEagle3DraftModel",
)
"""Classes of EAGLE-3 drafters."""

P_EAGLE = "PEagleDraftModel"
"""SpecForge's class of P-EAGLE drafters; other files name one of EAGLE-3's."""

MASKS = "mask_token_id", "pard_token", "ptd_token_id"
"""Fields with the token that masks are, any of which vLLM reads of a P-EAGLE drafter."""


def is_eagle3(hf: Mapping[str, Any]) -> bool:
    """Whether a configuration is of an EAGLE-3 drafter, or of a P-EAGLE one under its name."""
    named = hf.get("architectures") or []
    if not isinstance(named, list):
        return False
    if any(one in EAGLE3 for one in named):
        return True
    plain = hf.get("model_type") in list(PLAIN) and all(one in PLAIN.values() for one in named)
    return plain and any(field in hf for field in TELLING)


def is_p_eagle(hf: Mapping[str, Any]) -> bool:
    """Whether a configuration is of a P-EAGLE drafter in the layout of SpecForge."""
    if hf.get("architectures") == [P_EAGLE] and "speculators_model_type" not in hf:
        return True
    has_masks = any(hf.get(field) not in (None, False) for field in ("parallel_drafting", *MASKS))
    return has_masks and is_eagle3(hf)
