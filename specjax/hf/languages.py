"""Languages of a multilingual tokenizer: language tokens of prompts and texts.

mBART, M2M100 and NLLB mark the language of a prompt by a token before or after it, and the language
of the text by its first token, which has to be forced.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from specjax.runtime.errors import UserError

FORCED = "forced_bos_token_id"
"""The setting by which a text is in a language."""

SHOWN = 5
"""Most codes in an error message."""


def language_codes(tokenizer: Any) -> dict[str, int]:
    """Token ids of the languages of a tokenizer, by code; empty where it has none."""
    if not hasattr(tokenizer, "src_lang"):
        return {}
    codes = getattr(tokenizer, "lang_code_to_id", None)
    if codes is None:  # NLLB's are the special tokens without a part of their own
        named = tokenizer.special_tokens_map.values()
        tokens = [token for token in tokenizer.all_special_tokens if token not in named]
        codes = dict(zip(tokens, tokenizer.convert_tokens_to_ids(tokens), strict=True))
    return {code: token for code, token in codes.items() if token != tokenizer.unk_token_id}


def language_token(tokenizer: Any, code: str, field: str = "code") -> int:
    """The token of a language: what a text in it begins with (`forced_bos_token_id`).

    Raises:
      UserError: naming `field` and what is allowed.
    """
    known = language_codes(tokenizer)
    if not known:
        raise UserError(f"{field} is {code!r}; the tokenizer has no languages, so it must be empty")
    if code not in known:
        near = difflib.get_close_matches(str(code), known, n=SHOWN) or sorted(known)[:SHOWN]
        raise UserError(
            f"{field} is {code!r}; it must be one of the tokenizer's {len(known)} codes, such as"
            f" {', '.join(near)}"
        )
    return known[code]


def read_in(tokenizer: Any, code: str, field: str = "source_language") -> Any:
    """The tokenizer with the language of prompts set; empty: as it was saved.

    Raises:
      UserError: naming `field` and what is allowed.
    """
    if code:
        language_token(tokenizer, code, field)
        tokenizer.src_lang = code
    return tokenizer


def language_generation(
    generation: Mapping[str, Any], tokenizer: Any, code: str, field: str = "target_language"
) -> Mapping[str, Any]:
    """Generation fields for texts in a language; unchanged for an empty code.

    Raises:
      UserError: naming `field` and what is allowed.
    """
    if not code:
        return generation
    return {**generation, FORCED: language_token(tokenizer, code, field)}


def check_one_language(code: str, changes: Mapping[str, Any] | None, where: str = "") -> None:
    """Refuses both a language of texts and a change of its forced token.

    Raises:
      UserError: naming both, as fields of `where`.
    """
    forced = (changes or {}).get(FORCED)
    if code and forced is not None:
        raise UserError(
            f"{where}target_language is {code!r} and {where}generation.{FORCED} is {forced!r}; only"
            " one of them may set the first token of a text"
        )
