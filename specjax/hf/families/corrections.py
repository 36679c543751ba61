"""Corrections, convolutions and confidence heads of blocks: their fields and tensors.

The names are those of DeepSpec (DSpark), z-lab (DFlash 2) and SpecForge (Domino); drafters that are
made here have the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specjax.hf.families.family import Stored, Tensors
from specjax.hf.families.schema import Field, choice, flag, is_positive, size
from specjax.models.convolution import Convolution
from specjax.models.correction import Correction
from specjax.models.dflash import Blocks

MARKOV = {"vanilla": "markov", "gated": "gated", "rnn": "rnn"}
"""Kinds of corrections by the names of DSpark's Markov heads."""


def _positive_numbers() -> Field:
    def fits(value: Any) -> bool:
        return isinstance(value, list | tuple) and all(map(is_positive, value))

    return Field([], "a list of positive numbers", fits)


FIELDS: dict[str, Field] = {
    "markov_rank": size(None, least=0),
    "markov_head_type": choice("vanilla", tuple(MARKOV)),
    "enable_confidence_head": flag(False),
    "confidence_head_with_markov": flag(True),
    "confidence_temperatures": _positive_numbers(),
    "selector_rank": size(None),
    "selector_top_k": size(16),
    "gru_hidden_dim": size(None),
    "emb_dim": size(256),
    "pure_draft_prefix_len": size(0, least=0),
    "conv_kernel_size": size(None),
    "conv_group_size": size(16),
}
"""Fields of a drafter's configuration about corrections."""

_MARKOV: Tensors = {
    "before": "markov_head.markov_w1.weight",
    "output": "markov_head.markov_w2",
    "gate": "markov_head.gate_proj",
    "joint": "markov_head.joint_proj",
}
_SELECTOR: Tensors = {
    "before": "candidate_selector.predecessor_codebook",
    "after": "candidate_selector.successor_codebook",
    "project": "candidate_selector.hidden_projection",
}
_GRU: Tensors = {
    "inputs.kernel": Stored("prefix_gru.weight_ih_l0", transposed=True),
    "recurrent.kernel": Stored("prefix_gru.weight_hh_l0", transposed=True),
    "enter": "embed_proj.0",
    "output": "embed_proj.2",
}

CONVOLUTIONS: Tensors = {
    f"{ours}.{name}": f"{theirs}.{tensor}"
    for ours, theirs in (("attention_conv", "attention_conv"), ("ff_conv", "mlp_conv"))
    for name, tensor in (("base", "base_kernel"), ("coefficients", "kernel_projection"))
}
"""Of a layer."""


def correction_tensors(config: Blocks) -> Tensors:
    """Where the parameters of a shape's correction are."""
    if config.correction is None:
        return {}
    own = {"selector": _SELECTOR, "gru": _GRU}.get(config.correction.kind, _MARKOV)
    table = {**own, "confidence": "confidence_head.proj"}
    return {f"corrector.{name}": tensor for name, tensor in table.items()}


def read_correction(fields: Mapping[str, Any]) -> Correction | None:
    """The correction that checked fields describe, if any.

    Raises:
      ValueError: where they describe two, a confidence head without one, or temperatures without
        that head.
    """
    given = [name for name in ("markov_rank", "selector_rank", "gru_hidden_dim") if fields[name]]
    if len(given) > 1:
        settings = " and ".join(f"{name} is {fields[name]}" for name in given)
        raise ValueError(f"{settings}; a drafter has one correction, so one of them must be null")
    confidence = {
        "confidence": fields["enable_confidence_head"],
        "confidence_reads_token": fields["confidence_head_with_markov"],
        "temperatures": tuple(map(float, fields["confidence_temperatures"])),
    }
    if confidence["temperatures"] and not confidence["confidence"]:
        raise ValueError(
            f"confidence_temperatures is {fields['confidence_temperatures']}; it must be empty"
            " without enable_confidence_head"
        )
    if fields["selector_rank"]:
        candidates = fields["selector_top_k"]
        return Correction("selector", fields["selector_rank"], candidates=candidates, **confidence)
    if fields["gru_hidden_dim"]:
        first = fields["pure_draft_prefix_len"]
        hidden = fields["gru_hidden_dim"]
        return Correction("gru", fields["emb_dim"], hidden=hidden, first=first, **confidence)
    if fields["markov_rank"]:
        return Correction(MARKOV[fields["markov_head_type"]], fields["markov_rank"], **confidence)
    if fields["enable_confidence_head"]:
        raise ValueError(
            "enable_confidence_head is true; it must be false in a drafter without a correction"
        )
    return None


def read_convolution(fields: Mapping[str, Any], width: int) -> Convolution | None:
    """The convolution that checked fields describe, if any, of a drafter so wide.

    Raises:
      ValueError: where its groups do not divide the width.
    """
    taps, group = fields["conv_kernel_size"], fields["conv_group_size"]
    if taps is None:
        return None
    if width % group:
        raise ValueError(f"conv_group_size is {group}; it must divide hidden_size, {width}")
    return Convolution(taps, group)


def written_corrections(config: Blocks) -> dict[str, Any]:
    """The fields of a shape, those of what it has."""
    correction, convolution, fields = config.correction, config.convolution, {}
    if convolution is not None:
        fields |= {"conv_kernel_size": convolution.taps, "conv_group_size": convolution.group}
    if correction is None:
        return fields
    if correction.kind == "selector":
        fields |= {
            "selector_rank": correction.rank, "selector_top_k": correction.candidates
        }  # fmt: skip
    elif correction.kind == "gru":
        fields |= {
            "gru_hidden_dim": correction.hidden,
            "emb_dim": correction.rank,
            "pure_draft_prefix_len": correction.first,
        }
    else:
        names = {kind: name for name, kind in MARKOV.items()}
        fields |= {"markov_rank": correction.rank, "markov_head_type": names[correction.kind]}
    if correction.confidence:
        fields["enable_confidence_head"] = True
        fields["confidence_head_with_markov"] = correction.confidence_reads_token
    if correction.temperatures:
        fields["confidence_temperatures"] = list(correction.temperatures)
    return fields
