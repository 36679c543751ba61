"""Telling a model that listens what language it hears, and what to do with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from specjax.errors import UserError
from specjax.hf.families import speech as telling
from specjax.models.base import LanguageModel
from specjax.models.whisper import Whisper

TIMESTAMPS = "return_timestamps"
"""The setting by which timestamps are written."""


def in_language(loaded: Any, language: str = "", task: str = "", timestamps: bool = False) -> Any:
    """A model of `specjax.load` whose texts begin with a language and a task.

    The language is a name or a code ("german", "de"); without one a multilingual model detects it
    for each text. The task is "transcribe", as without one, or "translate": to English. With
    `timestamps` the tokens say when words were said (`adjusting.timestamps`).

    Raises:
      UserError: when the model does not listen, or does not know them.
    """
    try:
        model = told(loaded.model, language, task, timestamps)
    except ValueError as error:
        raise UserError(str(error)) from None
    if model is loaded.model:
        return loaded
    generation = told_generation(loaded.generation, language, task, timestamps)
    return dataclasses.replace(loaded, model=model, generation=generation)


def told_generation(
    generation: Mapping[str, Any], language: str = "", task: str = "", timestamps: bool = False
) -> Mapping[str, Any]:
    """What a model says of generation that was told so; the same where nothing is said."""
    said = language or task or timestamps
    return {**generation, TIMESTAMPS: timestamps} if said else generation


def told(model: LanguageModel, language: str, task: str, timestamps: bool) -> LanguageModel:
    """The model whose texts begin so; itself where nothing is said.

    Raises:
      ValueError: when it does not listen, or does not know them.
    """
    if not (language or task or timestamps):
        return model
    if not isinstance(model, Whisper):
        given = {"language": language, "task": task, "timestamps": timestamps}
        name, value = next((name, value) for name, value in given.items() if value)
        raise ValueError(f"{name} is {value!r}; only a model that listens is told one")
    speech = model.config.speech
    if timestamps and speech.no_timestamps is None:
        raise ValueError("timestamps is True; the model has no tokens for times")
    if language or task:
        forced = telling.prefix_tokens(speech, language or None, task or None, timestamps)
    else:
        forced = tuple(token for token in model.info.forced if token != speech.no_timestamps)
    return Whisper(dataclasses.replace(model.config, forced=forced))
