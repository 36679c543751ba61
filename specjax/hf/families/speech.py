"""Languages and tasks in Whisper's configurations, as in Hugging Face.

A text begins with the start token, a language, a task, and that it has no timestamps. Fields of
`generation_config.json` come first; where they name neither language nor task, old checkpoints'
`forced_decoder_ids` count, and if these leave the language open it is detected: the target's most
probable language token after the start token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specjax.hf.families.schema import format_value, is_int
from specjax.models.info import ForcedToken
from specjax.models.whisper import SpeechTokens, WhisperConfig

FIELDS = frozenset(
    """
    alignment_heads forced_decoder_ids is_multilingual lang_to_id language
    max_initial_timestamp_index median_filter_width no_timestamps_token_id prev_sot_token_id task
    task_to_id
    """.split()  # noqa: SIM905
)
"""Fields of `generation_config.json` that are read here, or that only concern timestamps."""

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "compression_ratio_threshold": (),
    "condition_on_prev_tokens": (False,),
    "force_unique_generate_call": (False, True),
    "logprob_threshold": (),
    "no_speech_threshold": (),
    "num_frames": (),
    "prompt_condition_type": ("first-segment",),
    "return_token_timestamps": (False,),
}
"""What Whisper reads of `generation_config.json` for audio of several windows, undeclared.

Values other than null that change nothing here.
"""

FORCING = ("forced_decoder_ids", "language", "task")
"""Fields that set how a text begins."""

TRANSCRIBE, TRANSLATE = "transcribe", "translate"


def speech_tokens(fields: Mapping[str, Any], vocab_size: int) -> SpeechTokens:
    """The tokens that a configuration names.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    name = "no_timestamps_token_id"
    if fields.get(name) is not None and not _is_token(fields[name], vocab_size):
        raise ValueError(f"{name} is {format_value(fields[name])}; it must be {_below(vocab_size)}")
    previous = "prev_sot_token_id"
    if fields.get(previous) is not None and not _is_token(fields[previous], vocab_size):
        raise ValueError(
            f"{previous} is {format_value(fields[previous])}; it must be {_below(vocab_size)}"
        )
    if fields.get("lang_to_id") == {}:  # Hugging Face detects one of none, which is token 0
        raise ValueError(f"lang_to_id is {{}}; it must give {_below(vocab_size)} by name, or null")
    return SpeechTokens(
        languages=_by_name(fields, "lang_to_id", vocab_size),
        tasks=_by_name(fields, "task_to_id", vocab_size),
        no_timestamps=fields.get(name),
        previous=fields.get(previous),
        latest_first=_optional_count(fields, "max_initial_timestamp_index"),
    )


def forced_tokens(
    hf: Mapping[str, Any], fields: Mapping[str, Any], tokens: SpeechTokens, vocab_size: int
) -> tuple[ForcedToken, ...]:
    """The forced tokens after the start token; `hf` is `config.json`, `fields` are read first.

    Raises:
      ValueError: naming the field, its value and what is allowed.
    """
    language, task = fields.get("language"), fields.get("task")
    timestamps = fields.get("return_timestamps") is True
    if language is not None or task is not None:
        return prefix_tokens(tokens, language, task, timestamps)
    ids = fields.get("forced_decoder_ids")
    ids = _parse_forced_ids(hf.get("forced_decoder_ids") if ids is None else ids, vocab_size)
    return _complete(tokens, ids[0] if ids else None, ids[1:], timestamps)


def prefix_tokens(
    tokens: SpeechTokens, language: str | None, task: str | None, timestamps: bool
) -> tuple[ForcedToken, ...]:
    """The forced tokens after the start token for a language and a task; None without either.

    Raises:
      ValueError: when the model does not know them.
    """
    tasks = dict(tokens.tasks)
    if task is None and tasks:
        task = TRANSCRIBE
    if task is not None and task not in tasks:
        known = ", ".join(tasks) or "none: it is English-only"
        raise ValueError(f"task is {task!r}; the model knows {known}")
    chosen = None if language is None else _language(tokens, language)
    return _complete(tokens, chosen, [] if task is None else [tasks[task]], timestamps)


def to_hf(config: WhisperConfig) -> dict[str, Any]:
    """The equivalent fields of `generation_config.json`, by token ids."""
    speech = config.speech
    forced = [None if isinstance(token, tuple) else token for token in config.forced]
    values = {
        "forced_decoder_ids": [list(pair) for pair in enumerate(forced, start=1)] or None,
        "is_multilingual": bool(speech.languages),
        "lang_to_id": dict(speech.languages),
        "task_to_id": dict(speech.tasks),
        "no_timestamps_token_id": speech.no_timestamps,
        "prev_sot_token_id": speech.previous,
        "max_initial_timestamp_index": speech.latest_first,
    }
    values = {name: value for name, value in values.items() if value not in (None, {})}
    return values | {"language": None, "task": None}


def _complete(
    tokens: SpeechTokens, language: int | None, rest: list[int | None], timestamps: bool
) -> tuple[ForcedToken, ...]:
    """A prefix: the language or its candidates, the `rest`, and a token for timestamps or none."""
    languages = tuple(token for _, token in tokens.languages)
    made = [languages or None if language is None else language, *rest]
    if timestamps:
        made = [token for token in made if token != tokens.no_timestamps]
    elif tokens.no_timestamps not in (None, made[-1]):
        made.append(tokens.no_timestamps)
    return tuple(token for token in made if token is not None)


def _language(tokens: SpeechTokens, language: str) -> int:
    """The token of a language by its name, its code, or as the model writes it."""
    from transformers.models.whisper.tokenization_whisper import TO_LANGUAGE_CODE  # slow to import

    known, word = dict(tokens.languages), language.lower()
    code = TO_LANGUAGE_CODE.get(word, word)
    token = known.get(word, known.get(f"<|{code}|>"))
    if token is None:
        codes = ", ".join(name.strip("<|>") for name in known) or "none: it is English-only"
        raise ValueError(f"language is {language!r}; the model knows {codes}")
    return token


def _parse_forced_ids(ids: Any, vocab_size: int) -> list[int | None]:
    """The tokens of `forced_decoder_ids`, [place, token] from place 1 on."""
    if ids is None:
        return []
    pairs: list[Any] = ids if isinstance(ids, list) else [None]
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs) or any(
        place != number or not (token is None or _is_token(token, vocab_size))
        for number, (place, token) in enumerate(pairs, start=1)
    ):
        raise ValueError(
            f"forced_decoder_ids is {format_value(ids)}; it must be [place, token] for the places "
            "1, 2,"
            f" ..., each {_below(vocab_size)}, or null"
        )
    return [token for _, token in pairs]


def _by_name(fields: Mapping[str, Any], name: str, vocab_size: int) -> tuple[tuple[str, int], ...]:
    """Tokens by name, those with the lowest ids first."""
    value = fields.get(name) or {}
    if not isinstance(value, Mapping) or not all(
        _is_token(token, vocab_size) for token in value.values()
    ):
        raise ValueError(
            f"{name} is {format_value(value)}; it must give {_below(vocab_size)} by name"
        )
    return tuple(sorted(value.items(), key=lambda item: item[1]))


def _optional_count(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and not (is_int(value) and value >= 0):
        raise ValueError(
            f"{name} is {format_value(value)}; it must be an integer of at least 0, or null"
        )
    return value


def _is_token(value: Any, vocab_size: int) -> bool:
    return is_int(value) and 0 <= value < vocab_size


def _below(bound: int) -> str:
    return f"a token id from 0 to {bound - 1}"
