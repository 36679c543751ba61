"""Loaded speech models: their language and task, and drafters that share tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from specjax.checks import check_integer
from specjax.hf.families import speech as telling
from specjax.hf.families.speech import prefix_tokens
from specjax.hf.speech_prompts import set_task
from specjax.models.base import LanguageModel
from specjax.models.canary import Canary
from specjax.models.vocabularies import OtherVocabulary, restrict_vocabulary
from specjax.models.whisper import SpeechTokens, Whisper
from specjax.runtime.errors import UserError

TIMESTAMPS = "return_timestamps"
"""The setting for timestamps."""


def in_language(loaded: Any, language: str = "", task: str = "", timestamps: bool = False) -> Any:
    """A model of `specjax.load` whose texts begin with a language and a task.

    The language is a name or a code ("german", "de"); without one a multilingual model detects it
    for each text. The task is "transcribe", as without one, or "translate": to English. With
    `timestamps` outputs contain timestamp tokens (`logits.timestamps`). A Canary's language is
    English where none is given; it writes no timestamps, and an export of it keeps no language.

    Raises:
      UserError: when it is not a speech model, or does not know them.
    """
    if isinstance(loaded.model, Canary):
        model = set_task(loaded, language, task, timestamps)
        return dataclasses.replace(loaded, model=model)
    try:
        model = set_prefix(loaded.model, language, task, timestamps)
    except ValueError as error:
        raise UserError(str(error)) from None
    if model is loaded.model:
        return loaded
    generation = set_language_generation(loaded.generation, language, task, timestamps)
    return dataclasses.replace(loaded, model=model, generation=generation)


def set_language_generation(
    generation: Mapping[str, Any], language: str = "", task: str = "", timestamps: bool = False
) -> Mapping[str, Any]:
    """Generation fields with a language, task and timestamps; unchanged without any."""
    changed = language or task or timestamps
    return {**generation, TIMESTAMPS: timestamps} if changed else generation


def set_prefix(model: LanguageModel, language: str, task: str, timestamps: bool) -> LanguageModel:
    """The model with a forced language and task; itself without any.

    Raises:
      ValueError: when it is not a speech model, or does not know them.
    """
    if not (language or task or timestamps):
        return model
    if not isinstance(model, Whisper):
        given = {"language": language, "task": task, "timestamps": timestamps}
        name, value = next((name, value) for name, value in given.items() if value)
        raise ValueError(f"{name} is {value!r}; only a Whisper or a Canary has one")
    speech = model.config.speech
    if timestamps and speech.no_timestamps is None:
        raise ValueError("timestamps is True; the model has no tokens for times")
    if language or task:
        forced = telling.prefix_tokens(speech, language or None, task or None, timestamps)
    else:
        forced = tuple(token for token in model.info.forced if token != speech.no_timestamps)
    return Whisper(dataclasses.replace(model.config, forced=forced))


FEWEST = 2
"""Tokens of a prefix: as many as a drafter's first call feeds again."""

ENGLISH = "english"


def timestamps(drafter: LanguageModel, target: LanguageModel) -> dict[int, int]:
    """The drafter's id of each of the target's timestamps; empty where a model has none."""
    if not (isinstance(drafter, Whisper) and isinstance(target, Whisper)):
        return {}
    theirs, ours = _times(target), _times(drafter)
    return dict(zip(theirs, ours, strict=False))


def own_prefix(drafter: LanguageModel, target: LanguageModel) -> tuple[int, ...]:
    """The tokens that the drafter's text begins with; empty: the target's, token by token.

    A model of English only has no language and no task there, and a multilingual one needs both.
    """
    if not (isinstance(drafter, Whisper) and isinstance(target, Whisper)):
        return ()
    ours, theirs = drafter.config.speech, target.config.speech
    if bool(ours.languages) == bool(theirs.languages):
        return ()
    language = ENGLISH if ours.languages else None
    forced = prefix_tokens(ours, language, None, _writes_times(target, theirs))
    # All are single tokens, because the language is given.
    whole = drafter.config.start_token, *(token for token in forced if isinstance(token, int))
    before = drafter.config.start_token if ours.previous is None else ours.previous
    return (before,) * (FEWEST - len(whole)) + whole


def _writes_times(target: Whisper, tokens: SpeechTokens) -> bool:
    return tokens.no_timestamps is not None and tokens.no_timestamps not in target.info.forced


def _times(model: Whisper) -> range:
    last = model.config.speech.no_timestamps
    return range(0) if last is None else range(last + 1, model.info.vocab_size)


def limit_draft_ids(drafter: Any, count: int) -> Any:
    """A loaded speech drafter that drafts the first `count` ids of its vocabulary only.

    EOS, special tokens and timestamps are drafted too. Of a drafter of another vocabulary
    (`in_vocabulary_of`) the ids are its own.

    Raises:
      UserError: when it is no Whisper, or the count is no positive integer.
    """
    check_integer("count", count, 1)
    model, params = drafter.model, drafter.params
    other = isinstance(model, OtherVocabulary)
    own, weights = (model.model, params["model"]) if other else (model, params)
    if not isinstance(own, Whisper):
        raise UserError(f"drafter {drafter.name!r} is no Whisper; only those draft the first ids")
    made, weights = restrict_vocabulary(own, weights, count)
    if other:
        made = dataclasses.replace(model, model=made)
        weights = {**params, "model": weights}
    return dataclasses.replace(drafter, model=made, params=weights)
