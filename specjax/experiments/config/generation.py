"""The generation settings of a planned decode."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from specjax.contracts.context import Options
from specjax.experiments.config.fields import generation_arguments, model_source
from specjax.hf.descriptions import describe_generation
from specjax.hf.families.generation import beams_in, beams_words, settings_in
from specjax.hf.families.schema import format_value
from specjax.hf.languages import check_one_language, language_generation
from specjax.hf.speech import set_language_generation
from specjax.hf.tokenizer import load_tokenizer
from specjax.logits.settings import apply_settings, parse_settings
from specjax.models.base import LanguageModel
from specjax.runtime.errors import UserError

STOPS, LANGUAGE = "stop_strings", "target_language"
"""The setting and the config field that need the target's tokenizer."""


@dataclasses.dataclass(frozen=True)
class PlannedSettings:
    """The settings of a plan, as far as their files are available."""

    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tokenizer: Any = None
    lines: tuple[str, ...] = ()  # lines about them
    note: str = ""  # of decodes without beams although the target's file sets beams

    def apply_settings(self, options: Options, target: LanguageModel) -> Options:
        """The options of a decode of the target under them.

        Raises:
          UserError: when one does not fit the target.
        """
        return apply_settings(options, self.settings, target, self.tokenizer)


NOTHING = PlannedSettings()
"""The settings of models that do not exist yet."""


def plan_settings(config: ConfigDict) -> PlannedSettings:
    """The target's generation settings with the config's changes.

    Raises:
      UserError: when a setting is not supported.
    """
    target = model_source(config, "target")[0]
    found = describe_generation(target, **generation_arguments(config))
    language = config.get("target_language", "")
    values = set_language_generation(found.generation, **config.get("speech", {}))
    check_one_language(language, config.generation, "config.")
    needed = [STOPS] * (STOPS in values) + [LANGUAGE] * bool(language)
    tokenizer = load_tokenizer(found.path) if needed and found.path else None
    here, missing = tokenizer is not None or found.complete, []
    if found.path is None:
        missing.append(f"what the generation_config.json of {target} says; it is not here")
    if not here:
        values = {name: value for name, value in values.items() if name not in needed}
        missing += [f"{name}; the target's tokenizer is not here" for name in needed]
    else:
        values = language_generation(values, tokenizer, language, f"config.{LANGUAGE}")
    settings = parse_settings(settings_in(values))
    given = ", ".join(f"{name}={format_value(value)}" for name, value in settings.items()) or "none"
    lines = f"settings: {given}", *(f"left out: {what}" for what in missing)
    return PlannedSettings(settings, tokenizer, lines, _note(target, found.generation))


def _note(target: str, generation: Mapping[str, Any]) -> str:
    try:
        beams = beams_in(generation)
    except ValueError as error:
        raise UserError(f"config.generation: {error}") from None
    return beams_words(target, beams) if beams > 1 else ""
