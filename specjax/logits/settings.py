"""Generation settings by Hugging Face's names, and the decode options that apply them.

Hugging Face reads their defaults from `generation_config.json`; so does `specjax.load`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from specjax.contracts import fields
from specjax.contracts.context import Options
from specjax.contracts.fields import ConfigField, Number, get_config_fields, make_hashable
from specjax.contracts.logits_processor import LogitsProcessor
from specjax.contracts.registry import PROCESSORS
from specjax.contracts.stopping import Stops
from specjax.hf.pieces import pieces
from specjax.logits.guidance import Guidance
from specjax.logits.stop_strings import StopStrings
from specjax.models.base import LanguageModel
from specjax.runtime.errors import UserError

STOP_STRINGS = "stop_strings"
"""The setting's name."""


def schema() -> dict[str, ConfigField]:
    """The field of every setting."""
    return {name: get_config_fields(entry.cls)[name] for name, entry in PROCESSORS.items()}


def parse_settings(given: Mapping[str, Any], where: str = "generation.") -> dict[str, Any]:
    """The active settings, parsed from values of `generation_config.json`; None is off.

    As in transformers `min_new_tokens`, even 0, replaces `min_length`.

    Raises:
      UserError: naming the field, its value and what is allowed.
    """
    known, on = schema(), {}
    for name, value in given.items():
        if name not in known:
            raise UserError(
                f"{where}{name} is no generation setting; it must be one of {', '.join(known)}"
            )
        value = make_hashable(value)
        replaced = name == "min_length" and given.get("min_new_tokens") is not None
        if replaced or value is None or value == PROCESSORS[name].cls.off:
            continue
        if known[name].kind is tuple and isinstance(value, (int, str)):
            value = (value,)  # transformers accepts one token or text in place of a list
        try:
            on[name] = known[name].value(f"{where}{name}", value)
        except ValueError as error:
            raise UserError(str(error)) from None
    return on


def apply_settings(
    options: Options,
    settings: Mapping[str, Any],
    model: LanguageModel,
    tokenizer: Any = None,
    *,
    beams: bool = False,
) -> Options:
    """The options of a decode of `model` under settings, with or without `beams`.

    Raises:
      UserError: when one is unknown, or does not fit the model.
    """
    on = parse_settings(settings)
    parts, numbers = [], dict(options.numbers)
    try:
        for name, value in on.items():
            part, traced = fields.build(PROCESSORS[name].cls, {name: value})
            parts.append(part)
            if isinstance(part, LogitsProcessor):
                _check_tokens(name, part.tokens(value), model)
            if isinstance(part, Guidance):
                part.check(model)
            numbers |= {name: _make_traced(number) for name, number in traced.items()}
        made = _sort_processors(parts, beams)
        bound = tuple(one.bind_model(model, tuple(made)) for one in made)
        stops = [_stops(p, model, tokenizer) for p in parts if isinstance(p, StopStrings)]
    except ValueError as error:
        raise UserError(f"generation: {error}") from None
    found = stops[0] if stops else None
    return options.replace(processors=bound, numbers=numbers, stops=found)


def _sort_processors(parts: Sequence[Any], beams: bool) -> list[LogitsProcessor]:
    """The logits processors among parts in their order.

    A processor of scores has no effect without beams, nor without another processor.
    """
    made = sorted((p for p in parts if isinstance(p, LogitsProcessor)), key=lambda one: one.order)
    scored = beams and not all(one.scores_only for one in made)
    return [one for one in made if scored or not one.scores_only]


def _check_tokens(name: str, tokens: tuple[int, ...], model: LanguageModel) -> None:
    for token in tokens:
        if token >= model.info.vocab_size:
            raise ValueError(
                f"{name} has {token}; it must have token ids below {model.info.vocab_size}, the"
                " size of the vocabulary"
            )


def parse_stop_strings(where: str, given: Any, tokenizer: Any) -> tuple[str, ...]:
    """The stop strings of a single prompt, for a target with this tokenizer.

    Raises:
      UserError: when they are invalid, in a sentence that begins with `where`.
    """
    strings = parse_settings({STOP_STRINGS: given}, where).get(STOP_STRINGS, ())
    try:
        StopStrings(strings)
        if strings:
            _check_tokenizer(strings, tokenizer)
    except ValueError as error:
        raise UserError(f"{where}{error}") from None
    return strings


def _check_tokenizer(strings: tuple[str, ...], tokenizer: Any) -> None:
    if tokenizer is None:
        raise ValueError(
            f"stop_strings is {strings}, which needs the target's tokenizer; it has none"
        )


def _stops(part: StopStrings, model: LanguageModel, tokenizer: Any) -> Stops:
    _check_tokenizer(part.stop_strings, tokenizer)
    return part.stops(pieces(tokenizer), model.info.vocab_size)


def _make_traced(number: Number) -> jax.Array:
    return jnp.int32(number) if isinstance(number, int) else jnp.float32(number)
