"""Which layers have a sliding window, or are recurrent: `layer_types`, a field of many families."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specjax.hf.families.schema import Field, flag, format_value, raw, size

KINDS = ("full_attention", "sliding_attention")
FULL, RECURRENT = KINDS[0], "linear_attention"
OLDER = {"attention": FULL, "mamba": RECURRENT}
"""Older names of kinds."""

WINDOWS: dict[str, Field] = {"sliding_window": size(None), "layer_types": raw()}
SWITCHED: dict[str, Field] = WINDOWS | {"use_sliding_window": flag(False)}
"""Fields of families whose layers may slide, without and with a switch for it."""


def window_of(fields: Mapping[str, Any]) -> int | None:
    """The window of sliding layers; None if none slides."""
    return (fields["sliding_window"] or None) if fields.get("use_sliding_window", True) else None


def every(count: int, fields: Mapping[str, Any]) -> list[bool]:
    """That all layers slide but each `count`-th."""
    return [(layer + 1) % count > 0 for layer in range(fields["num_hidden_layers"])]


def windows_of(
    fields: Mapping[str, Any], slides: Sequence[bool], *, mixed: bool = True
) -> tuple[int, ...]:
    """The window of each layer, 0 for none; empty if none slides.

    `layer_types` selects sliding layers, otherwise `slides`. Both must agree in families that are
    not `mixed`: Hugging Face's masks ignore that field, but its caches use it.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    window, kinds, layers = window_of(fields), fields["layer_types"], len(slides)
    usual = [KINDS[one] for one in slides]
    kinds = usual if kinds is None else kinds
    if not mixed and kinds != usual:
        raise ValueError(
            f"layer_types is {format_value(kinds)}; with sliding_window {window} every one of the"
            f" {layers} layers is {usual[0]!r}"
        )
    kinds = read_kinds(kinds, layers, KINDS)
    if KINDS[1] not in kinds:
        return ()
    if window is None:
        switch = ", and use_sliding_window true" if "use_sliding_window" in fields else ""
        raise ValueError(
            f"layer_types is {format_value(kinds)}; layers that slide need sliding_window{switch}"
        )
    return tuple(window if kind == KINDS[1] else 0 for kind in kinds)


def read_kinds(
    kinds: Any, layers: int, known: Sequence[str], field: str = "layer_types"
) -> list[str]:
    """The kind of each of the layers by `layer_types` or such a field, of the `known` names.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    named = isinstance(kinds, list) and all(kind in known for kind in kinds)
    if not named or len(kinds) != layers:
        raise ValueError(
            f"{field} is {format_value(kinds)}; it must name each of the {layers} layers"
            f" {' or '.join(map(repr, known))}"
        )
    named_kinds: list[str] = kinds
    return [OLDER.get(kind, kind) for kind in named_kinds]
