"""What the layouts of published drafters for decoder-only targets have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specjax.models.families import llama
from specjax.models.families.schema import Field, shown
from specjax.models.rope import Rope

ROPES = ("default", "linear", "llama3", "yarn")
"""Rotations that depend on distances alone: who counts positions from where does not matter."""

UNUSED = llama.HARMLESS | {"max_window_layers", "sliding_window", "target_model_type"}
"""Fields that change nothing: a window is used where another field says so."""


def all_full() -> Field:
    """Kinds of attention by layer: that to all tokens."""

    def fits(value: Any) -> bool:
        return isinstance(value, list) and set(value) == {"full_attention"}

    return Field(None, "a list of 'full_attention': a drafter has no sliding window", fits)


def refuse_rotation(rope: Rope) -> None:
    """Refuses rotations that depend on more than distances.

    Raises:
      ValueError: naming those that do not.
    """
    if rope.kind not in ROPES:
        raise ValueError(
            f"rope_type is {rope.kind!r}; in a drafter it must be one of {', '.join(ROPES)}"
        )


def nested(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object that is a field, empty where it is null.

    Raises:
      ValueError: when it is something else.
    """
    inside = fields[name] or {}
    if not isinstance(inside, dict):
        raise ValueError(f"{name} is {shown(inside)}; it must be an object, or null")
    return inside


def agreed(key: str, outside: Any, inside: Any, where: str) -> Any:
    """What one field says that a configuration may have at two places, or None.

    Raises:
      ValueError: when both are there and differ.
    """
    if None not in (outside, inside) and outside != inside:
        raise ValueError(
            f"{key} is {shown(outside)} and {shown(inside)} in {where}; both name the"
            " same field and must agree"
        )
    return inside if outside is None else outside
