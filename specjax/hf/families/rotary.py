"""Rotary positions in Hugging Face's fields: `rope_parameters`, and the older `rope_scaling`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from specjax.hf.families import layer_types
from specjax.hf.families.schema import (
    NOTHING,
    Field,
    Schema,
    choice,
    flag,
    format_value,
    is_number,
    is_positive,
    number,
    part,
    rate,
    raw,
    read,
    size,
)
from specjax.models.causal import CausalConfig
from specjax.models.positions import KINDS, Rope

SHARE = "partial_rotary_factor"
"""The share of each head that is rotated, in `config.json` or inside of the scaling."""

WHOLE = Field(None, "1: models of this type rotate whole heads", lambda value: value == 1)

FIELDS: dict[str, Field] = {
    "rope_theta": number(10_000.0),
    "rope_scaling": raw(),
    "rope_parameters": raw(),
    SHARE: WHOLE,
    "original_max_position_embeddings": size(0),
}
"""Fields of `config.json`; the last wins over the one inside the scaling, and is 0 when absent."""

TWO_KINDS: dict[str, Field] = {
    "rope_theta": number(1_000_000.0),
    "rope_local_base_freq": number(10_000.0),
}
"""Those of Gemma 3, whose layers with windows rotate by a base of their own."""


def _factors() -> Field:
    def fits(value: Any) -> bool:
        return isinstance(value, list) and all(is_positive(factor) for factor in value)

    return Field((), "a list of positive numbers, one for each pair of a head's numbers", fits)


def _scale() -> Field:
    """A factor of YaRN's temperature, which 0 leaves out, as null does."""
    return Field(None, "a number of at least 0", lambda value: is_number(value) and value >= 0)


_PLAIN: dict[str, Field] = {
    "rope_type": choice("default", KINDS),
    "type": choice("default", KINDS),
    "rope_theta": number(None),
    SHARE: dataclasses.replace(WHOLE, default=1.0),
}
_ORIGINAL = {"original_max_position_embeddings": size(0)}
_KINDS: dict[str, dict[str, Field]] = {
    "default": {},
    "linear": {"factor": number(1.0)},
    "dynamic": {"factor": number(1.0)},
    "llama3": {
        **_ORIGINAL,
        "factor": number(1.0),
        "low_freq_factor": number(1.0),
        "high_freq_factor": number(4.0),
    },
    "yarn": {
        **_ORIGINAL,
        "factor": number(None),
        "attention_factor": number(None),
        "beta_fast": number(None),
        "beta_slow": number(None),
        "mscale": _scale(),
        "mscale_all_dim": _scale(),
        "truncate": flag(True),
    },
    "proportional": {"factor": number(1.0), SHARE: rate(1.0)},
    "longrope": {
        **_ORIGINAL,
        "factor": number(None),
        "attention_factor": number(None),
        "short_factor": _factors(),
        "long_factor": _factors(),
    },
}
"""The fields of each kind of scaling besides those of all."""

_NEEDED = {
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor"),
    "yarn": ("factor",),
    "longrope": ("short_factor", "long_factor"),
}


def drop_unfit_factors(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a drafter, without its target's LongRoPE where heads have another number of waves.

    The factors are of the waves of the target's heads, one by one.
    """
    scaling = fields.get("rope_scaling")
    if not isinstance(scaling, Mapping) or "short_factor" not in scaling:
        return dict(fields)
    width = fields.get("head_dim") or fields["hidden_size"] // fields["num_attention_heads"]
    fits = len(scaling["short_factor"]) == width // 2
    return dict(fields) if fits else {**fields, "rope_scaling": None}


def rope_from_hf(fields: Mapping[str, Any], width: int) -> Rope:
    """The rotation of heads of `width` by the checked `fields` of a configuration.

    `rope_scaling` wins over `rope_parameters` where both are there, as it does in transformers.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    if width % 2:
        raise ValueError(f"head_dim is {width}; rotation needs an even one")
    name, written = find_scaling(fields)
    try:
        with part(name):
            return _rope(written, fields, width)
    except ValueError as error:
        raise ValueError(f"{name} {format_value(written)}: {error}") from None


def partial_rope_from_hf(fields: Mapping[str, Any], d_head: int, outside: str = SHARE) -> Rope:
    """The rotation of a share of each head: that inside of the scaling, or the field `outside`.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    name, written = find_scaling(fields)
    source = f"{name} {format_value(written)}: {SHARE}" if SHARE in written else outside
    share = written.get(SHARE, fields[outside])
    width = int(d_head * share) if is_positive(share) else 0
    if not 2 <= width <= d_head or width % 2:
        raise ValueError(
            f"{source} is {format_value(share)}; of the {d_head} numbers of a head it must rotate "
            "an even"
            " count"
        )
    if written.get("rope_type", written.get("type")) == "proportional":
        raise ValueError(
            f"{name} is {format_value(written)}; models of this type, which rotate a share of each"
            " head, have no rope_type 'proportional'"
        )
    others = {word: value for word, value in written.items() if word != SHARE}
    return rope_from_hf({**fields, name: others}, width)


def rename_long(name: str, written: Any) -> Any:
    """A scaling of Phi-3's by the name it has today: the first checkpoints have others.

    Raises:
      ValueError: when it is one that Phi-3 does not have.
    """
    if not isinstance(written, dict):
        return written
    kind = written.get("rope_type", written.get("type", "default"))
    if kind not in ("default", "longrope", "su", "yarn"):
        raise ValueError(
            f"{name} is {format_value(written)}; its rope_type must be one of default, longrope"
        )
    return written if kind == "default" else written | {"rope_type": "longrope"}


def share_to_hf(width: int, d_head: int) -> float:
    """The share of a head of which Hugging Face, which rounds down, makes the width again."""
    share = width / d_head
    return share if int(d_head * share) == width else math.nextafter(share, 1.0)


def find_scaling(fields: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the contents of the field that counts of `rope_scaling`, `rope_parameters`."""
    name = "rope_scaling" if fields["rope_scaling"] else "rope_parameters"
    written = fields[name] or {}
    if not isinstance(written, dict):
        raise ValueError(f"{name} is {format_value(written)}; it must be an object, or null")
    return name, written


def split_rope_kinds(fields: Mapping[str, Any], local_base: float) -> dict[str, Any]:
    """The fields with `rope_parameters` of layers that have all keys, as `rope_from_hf` takes them.

    Those of the others, whose base is by default `local_base`, are in `sliding_rope`, which
    `sliding_from_hf` takes.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    kinds = layer_types.KINDS
    both = {} if fields["rope_parameters"] is None else fields["rope_parameters"]
    named = isinstance(both, dict) and not set(both) - set(kinds)
    if not named or not all(isinstance(one, dict | None) for one in both.values()):
        raise ValueError(
            f"rope_parameters is {format_value(both)}; it must hold an object for each of"
            f" {' and '.join(map(repr, kinds))}"
        )
    scaling = {} if fields["rope_scaling"] is None else fields["rope_scaling"]
    if not isinstance(scaling, dict):
        raise ValueError(f"rope_scaling is {format_value(scaling)}; it must be an object, or null")
    # As in Hugging Face, this one takes precedence over the older name `type`.
    full, sliding = ({"rope_type": "default", **(both.get(kind) or {})} for kind in kinds)
    return {
        **fields,
        "rope_parameters": full | scaling,
        "rope_scaling": None,
        "sliding_rope": {"rope_theta": local_base} | sliding,
    }


def sliding_from_hf(fields: Mapping[str, Any], width: int) -> Rope:
    """The rotation of layers with windows, of fields from `split_rope_kinds`.

    Raises:
      ValueError: when it is scaled.
    """
    rope = rope_from_hf({**fields, "rope_parameters": fields["sliding_rope"]}, width)
    if rope.kind != "default":
        raise ValueError(
            f"rope_type of 'sliding_attention' is {rope.kind!r}; only layers with all keys may have"
            " one other than 'default'"
        )
    return rope


def _rope(written: Mapping[str, Any], fields: Mapping[str, Any], width: int) -> Rope:
    kind = written.get("rope_type", written.get("type", "default"))
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"rope_type is {format_value(kind)}; it must be one of {', '.join(KINDS)}")
    missing = [name for name in _NEEDED.get(kind, ()) if name not in written]
    if missing:
        raise ValueError(f"{missing[0]} is missing; rope_type {kind!r} needs it")
    # transformers warns of other fields and ignores them.
    values = read(Schema(_PLAIN | _KINDS[kind], (), NOTHING), written)
    theta = values["rope_theta"]
    if "rope_theta" in written and theta is None:
        raise ValueError("rope_theta is null; it must be a positive number")
    rope = Rope(width, float(fields["rope_theta"] if theta is None else theta), kind)
    longest = fields["max_position_embeddings"]
    outside = fields["original_max_position_embeddings"]
    original = outside or values.get("original_max_position_embeddings") or longest
    return _BUILD[kind](rope, values, original, longest)


def _default(rope: Rope, values: Mapping[str, Any], original: int, longest: int) -> Rope:
    return rope


def _linear(rope: Rope, values: Mapping[str, Any], original: int, longest: int) -> Rope:
    return dataclasses.replace(rope, factor=float(values["factor"]))


def _dynamic(rope: Rope, values: Mapping[str, Any], original: int, longest: int) -> Rope:
    if rope.width == 2:
        raise ValueError("rope_type is 'dynamic'; it needs heads wider than 2")
    return dataclasses.replace(rope, factor=float(values["factor"]), original=longest)


def _llama3(rope: Rope, values: Mapping[str, Any], original: int, longest: int) -> Rope:
    low, high = float(values["low_freq_factor"]), float(values["high_freq_factor"])
    if high < low:
        raise ValueError(f"high_freq_factor is {high}; it must be at least low_freq_factor, {low}")
    factor = float(values["factor"])
    return dataclasses.replace(rope, factor=factor, original=original, low=low, high=high)


def _yarn(rope: Rope, values: Mapping[str, Any], original: int, longest: int) -> Rope:
    if rope.theta <= 1:
        raise ValueError(f"rope_theta is {rope.theta}; rope_type 'yarn' needs one above 1")
    factor = float(values["factor"] or longest / original)
    return dataclasses.replace(
        rope,
        factor=factor,
        original=original,
        attention=float(values["attention_factor"] or _yarn_attention(factor, values)),
        fast=float(values["beta_fast"] or rope.fast),
        slow=float(values["beta_slow"] or rope.slow),
        truncate=values["truncate"],
    )


def _yarn_attention(factor: float, values: Mapping[str, Any]) -> float:
    """The temperature of YaRN's attention (Peng et al. 2023, section 3.4), as DeepSeek has it."""

    if values["mscale"] and values["mscale_all_dim"]:
        both = values["mscale"], values["mscale_all_dim"]
        one, all_dim = (compute_yarn_scale(factor, scale) for scale in both)
        return one / all_dim
    return compute_yarn_scale(factor, 1.0)


def compute_yarn_scale(factor: float, scale: float) -> float:
    """The factor of queries and keys, weighted by `scale`; 0 leaves it out."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _proportional(rope: Rope, values: Mapping[str, Any], original: int, longest: int) -> Rope:
    pairs = int(values[SHARE] * rope.width // 2)
    return dataclasses.replace(rope, factor=float(values["factor"]), pairs=pairs)


def _longrope(rope: Rope, values: Mapping[str, Any], original: int, longest: int) -> Rope:
    for name in ("short_factor", "long_factor"):
        if len(values[name]) != rope.width // 2:
            raise ValueError(
                f"{name} has {len(values[name])} numbers; heads of {rope.width} need"
                f" {rope.width // 2}"
            )
    factor = float(values["factor"] or longest / original)
    attention = values["attention_factor"]
    if attention is None and factor > 1 and original == 1:
        raise ValueError("original_max_position_embeddings is 1; it must be at least 2")
    if attention is None:
        attention = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return dataclasses.replace(
        rope,
        original=original,
        attention=float(attention),
        short=tuple(map(float, values["short_factor"])),
        long=tuple(map(float, values["long_factor"])),
    )


_BUILD = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "proportional": _proportional,
}


def get_rope(config: CausalConfig) -> Rope:
    """The rotation of a shape whose positions are rotary.

    Raises:
      ValueError: when they are not.
    """
    if config.rope is None:
        raise ValueError(
            f"model_type is {config.family!r}, whose positions are rotary; this shape has others"
        )
    return config.rope


def rope_to_hf(rope: Rope) -> dict[str, Any] | None:
    """`rope_scaling`, which transformers 4 and 5 both read."""
    words = {
        "factor": rope.factor,
        "original_max_position_embeddings": rope.original,
        "low_freq_factor": rope.low,
        "high_freq_factor": rope.high,
        "attention_factor": rope.attention,
        "beta_fast": rope.fast,
        "beta_slow": rope.slow,
        "truncate": rope.truncate,
        SHARE: share_to_hf(2 * rope.pairs, rope.width),
        "short_factor": list(rope.short),
        "long_factor": list(rope.long),
    }
    if rope.kind == "default":
        return None
    allowed = _KINDS[rope.kind]
    return {"rope_type": rope.kind} | {name: words[name] for name in words if name in allowed}
