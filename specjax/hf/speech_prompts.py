"""What a Canary's text begins with: languages, by the chat template of its processor.

The template is in the tokenizer's files; transformers renders it in a sandbox. A checkpoint without
one has no languages, and its texts begin with the start token alone.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from jinja2 import TemplateError

from specjax.hf.families.speech import TRANSCRIBE, TRANSLATE
from specjax.models.canary import Canary
from specjax.runtime.errors import UserError

ENGLISH = "en"


def set_task(loaded: Any, language: str, task: str, timestamps: bool) -> Canary:
    """The model of `loaded` with texts in the language of the audio, or translated to English.

    Without parameters it is described only, and has no tokenizer with a template.

    Raises:
      UserError: when the model does not know them.
    """
    if timestamps:
        raise UserError("timestamps is True; the model has no tokens for times")
    if task not in ("", TRANSCRIBE, TRANSLATE):
        raise UserError(f"task is {task!r}; the model knows {TRANSCRIBE}, {TRANSLATE}")
    if loaded.params is None or not (language or task):
        return loaded.model
    target = ENGLISH if task == TRANSLATE else ""
    return set_languages(loaded.model, loaded.tokenizer, language, target)


def set_languages(model: Canary, tokenizer: Any, source: str = "", target: str = "") -> Canary:
    """The model with the languages of the audio and of the text, names or codes ("german", "de").

    The audio is in English where `source` is empty, and the text in its language where `target` is.

    Raises:
      UserError: when the tokenizer does not know them.
    """
    if tokenizer is None or not tokenizer.chat_template:
        if source or target:
            raise UserError(
                f"language is {source or target!r}; the checkpoint has no chat template that begins"
                " texts with languages, so it must be empty"
            )
        return model
    first = _find_code(tokenizer, source or ENGLISH)
    second = _find_code(tokenizer, target) if target else first
    ids = _render(tokenizer, first, second)
    forced = ids[1:] if ids[:1] == [model.config.start_token] else ids
    return Canary(dataclasses.replace(model.config, forced=tuple(forced)))


def _find_code(tokenizer: Any, language: str) -> str:
    """The code of a language by its name or its code."""
    from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE  # slow to import

    code = TO_LANGUAGE_CODE.get(language.lower(), language.lower())
    known = tokenizer.get_vocab()
    if f"<|{code}|>" not in known:
        codes = sorted({*TO_LANGUAGE_CODE.values()})
        found = ", ".join(one for one in codes if f"<|{one}|>" in known) or "none"
        raise UserError(f"language is {language!r}; the tokenizer knows {found}")
    return code


def _render(tokenizer: Any, source: str, target: str) -> list[int]:
    """Token ids of the template of a request with punctuation, the default of the processor."""
    text = {
        "type": "text",
        "source_language": source,
        "target_language": target,
        "punctuation": True,
    }
    request = {"role": "user", "content": [{"type": "audio"}, text]}
    try:
        prompt = tokenizer.apply_chat_template(
            [request], tokenize=False, add_generation_prompt=True
        )
    except (TemplateError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(f"the chat template takes no languages of audio: {reason}") from None
    return list(tokenizer(prompt).input_ids)
