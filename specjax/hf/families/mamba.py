"""Fields and tensors of Mamba-2 layers, which the hybrids of several families have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from specjax.hf.families.family import Stored, Tensors, split_outputs
from specjax.hf.families.schema import Field, flag, format_value, is_int, raw, size
from specjax.models.mamba2 import Mamba2

UNLIMITED = (
    [0, math.inf],
    [0, {"__float__": "Infinity"}],  # as transformers writes it
)

MAMBA: dict[str, Field] = {
    "mamba_n_heads": size(128),
    "mamba_n_groups": size(1),
    "mamba_d_state": size(256),
    "mamba_d_head": raw("auto"),
    "mamba_d_conv": size(4, least=2),
    "mamba_expand": size(2),
    "mamba_conv_bias": flag(True),
    "mamba_proj_bias": flag(False),
    "time_step_limit": Field(
        [0, math.inf],
        "[0, Infinity]: transformers limits the steps of prompts only",
        lambda value: value in UNLIMITED,
    ),
}
"""Fields of Mamba-2 layers."""

CHUNK = "mamba_chunk_size"
"""A field that changes no token: how many tokens of a prompt are computed together."""


def read_mamba(fields: Mapping[str, Any]) -> Mamba2:
    """The shape of Mamba-2 layers, of checked `fields`.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    heads, width = fields["mamba_n_heads"], fields["mamba_expand"] * fields["hidden_size"]
    if width % heads:
        raise ValueError(
            f"mamba_n_heads is {heads}; it must divide mamba_expand times hidden_size, {width}"
        )
    d_head = fields["mamba_d_head"]
    if d_head != "auto" and not (is_int(d_head) and d_head * heads == width):
        raise ValueError(
            f"mamba_d_head is {format_value(d_head)}; it must be 'auto' or {width // heads},"
            " mamba_expand times hidden_size over mamba_n_heads"
        )
    return Mamba2(
        key_heads=fields["mamba_n_groups"],
        value_heads=heads,
        d_key=fields["mamba_d_state"],
        d_value=width // heads,
        taps=fields["mamba_d_conv"],
        taps_bias=fields["mamba_conv_bias"],
        bias=fields["mamba_proj_bias"],
    )


def describe_mamba(config: Any) -> dict[str, Any]:
    """The fields that `read_mamba` reads; those of a shape without such layers fit its width."""
    width = config.d_model
    layer = next(filter(None, config.recurrences), Mamba2(1, 1, 1, width))
    return {
        "mamba_n_heads": layer.value_heads,
        "mamba_n_groups": layer.key_heads,
        "mamba_d_state": layer.d_key,
        "mamba_d_head": layer.d_value,
        "mamba_d_conv": layer.taps,
        "mamba_expand": layer.value_heads * layer.d_value // width,
        "mamba_conv_bias": layer.taps_bias,
        "mamba_proj_bias": layer.bias,
    }


def name_mamba(config: Any) -> Tensors:
    """The modules of Mamba-2 layers, whose projections are one tensor."""
    layer = next(filter(None, config.recurrences), None)
    if layer is None:
        return {}
    _, keys, values = layer.widths
    widths = {"gate": values, "v": values, "k": keys, "q": keys, "decay": layer.value_heads}
    return {
        **split_outputs("in_proj", widths),
        "taps": Stored("conv1d.weight"),
        "taps_bias": Stored("conv1d.bias"),
        "decay_bias": Stored("dt_bias"),
        "log_speed": Stored("A_log"),
        "skip": Stored("D"),
        "norm": "norm",
        "o": "out_proj",
    }
