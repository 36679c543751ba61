"""Shared parts of the layouts of published drafters for decoder-only targets."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from specjax.hf.families import causal
from specjax.hf.families.schema import Field, Schema, format_value, read
from specjax.models.positions import Rope

ROPES = ("default", "linear", "llama3", "yarn")
"""Rotations that depend only on distances, for any origin of positions."""

UNUSED = causal.HARMLESS | {
    "max_window_layers",
    "pretraining_tp",
    "sliding_window",
    "target_model_type",
}
"""Fields that change nothing: another field turns windows on."""


def read_nested(schema: Schema, inside: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The fields of an exporter's own object, all of which must be known.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    known = {*schema.fields, *schema.harmless}
    fields = read(schema, {name: inside[name] for name in inside if name in known})
    refuse_others(inside, known, where)
    return fields


def refuse_others(inside: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Refuses fields of an exporter's own object that are not `known`.

    Raises:
      ValueError: naming the first one.
    """
    for name in sorted(set(inside) - set(known)):
        raise ValueError(
            f"{name} in {where} is {format_value(inside[name])}; specjax does not know what this "
            "field"
            " changes, and reads no drafter whose configuration has it"
        )


def all_full() -> Field:
    """Kinds of attention by layer: that to all tokens."""

    def fits(value: Any) -> bool:
        listed = isinstance(value, list) and bool(value)
        return listed and all(kind == "full_attention" for kind in value)

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


def refuse_images(fields: Mapping[str, Any]) -> None:
    """Refuses rotations by image position, which the targets here do not support.

    Raises:
      ValueError: naming the field.
    """
    for name in ("rope_scaling", "rope_parameters"):
        if isinstance(fields[name], dict) and "mrope_section" in fields[name]:
            raise ValueError(
                f"mrope_section in {name} is {format_value(fields[name]['mrope_section'])}; it "
                "must not be"
                " there: the drafter of a target that sees images is not supported"
            )


def get_object(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The object that is a field, empty where it is null.

    Raises:
      ValueError: when it is something else.
    """
    inside = fields[name] or {}
    if not isinstance(inside, dict):
        raise ValueError(f"{name} is {format_value(inside)}; it must be an object, or null")
    return inside


def read_agreeing(key: str, outside: Any, inside: Any, where: str) -> Any:
    """The value of a field that a configuration may have in two places, or None.

    Raises:
      ValueError: when both are there and differ.
    """
    if None not in (outside, inside) and outside != inside:
        raise ValueError(
            f"{key} is {format_value(outside)} and {format_value(inside)} in {where}; both name the"
            " same field and must agree"
        )
    return inside if outside is None else outside
