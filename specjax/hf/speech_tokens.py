"""What a speech drafter of another vocabulary has in place of its target's special tokens."""

from __future__ import annotations

from specjax.hf.families.speech import prefix_tokens
from specjax.models.base import LanguageModel
from specjax.models.whisper import SpeechTokens, Whisper

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
    # All are single tokens, for the language is said where there is one.
    whole = drafter.config.start_token, *(token for token in forced if isinstance(token, int))
    before = drafter.config.start_token if ours.previous is None else ours.previous
    return (before,) * (FEWEST - len(whole)) + whole


def _writes_times(target: Whisper, tokens: SpeechTokens) -> bool:
    return tokens.no_timestamps is not None and tokens.no_timestamps not in target.info.forced


def _times(model: Whisper) -> range:
    last = model.config.speech.no_timestamps
    return range(0) if last is None else range(last + 1, model.info.vocab_size)
