"""What Whisper's configurations have a text begin with, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from specjax.hf.families.speech import forced_tokens, speech_tokens

EN, DE, TRANSLATE, TRANSCRIBE, NO_TIMES = 12, 13, 15, 16, 19
MULTILINGUAL = {
    "lang_to_id": {"<|de|>": DE, "<|en|>": EN},
    "task_to_id": {"translate": TRANSLATE, "transcribe": TRANSCRIBE},
    "no_timestamps_token_id": NO_TIMES,
}
ENGLISH = {"no_timestamps_token_id": NO_TIMES, "is_multilingual": False}
OLD = [[1, EN], [2, TRANSCRIBE], [3, NO_TIMES]]
DETECTED = [[1, None], [2, TRANSCRIBE]]
VOCABULARY = 30


def get_forced(generation: dict[str, Any], hf: dict[str, Any] | None = None) -> tuple:
    tokens = speech_tokens(generation, VOCABULARY)
    return forced_tokens(hf or {}, generation, tokens, VOCABULARY)


@pytest.mark.parametrize(
    ("generation", "hf", "expected"),
    [
        (MULTILINGUAL, {}, ((EN, DE), NO_TIMES)),  # detected, and no task, as in transformers
        (MULTILINGUAL | {"forced_decoder_ids": DETECTED}, {}, ((EN, DE), TRANSCRIBE, NO_TIMES)),
        (MULTILINGUAL, {"forced_decoder_ids": OLD}, (EN, TRANSCRIBE, NO_TIMES)),
        (MULTILINGUAL | {"language": "german"}, {}, (DE, TRANSCRIBE, NO_TIMES)),
        (MULTILINGUAL | {"language": "<|de|>", "task": "translate"}, {}, (DE, TRANSLATE, NO_TIMES)),
        (MULTILINGUAL | {"task": "translate"}, {"forced_decoder_ids": OLD},
         ((EN, DE), TRANSLATE, NO_TIMES)),
        (MULTILINGUAL | {"language": "en", "return_timestamps": True}, {}, (EN, TRANSCRIBE)),
        (MULTILINGUAL | {"return_timestamps": True}, {"forced_decoder_ids": OLD}, (EN, TRANSCRIBE)),
        (ENGLISH, {}, (NO_TIMES,)),
        (ENGLISH | {"forced_decoder_ids": [[1, NO_TIMES]]}, {}, (NO_TIMES,)),
        ({}, {"forced_decoder_ids": OLD}, (EN, TRANSCRIBE, NO_TIMES)),
        ({}, {}, ()),
    ],
)  # fmt: skip
def test_a_text_begins_as_the_configuration_says(generation, hf, expected):
    assert get_forced(generation, hf) == expected


@pytest.mark.parametrize(
    ("generation", "said"),
    [
        (MULTILINGUAL | {"lang_to_id": {"<|en|>": 30}}, "lang_to_id is .* from 0 to 29 by name"),
        (MULTILINGUAL | {"task_to_id": [15]}, "task_to_id is"),
        (MULTILINGUAL | {"no_timestamps_token_id": "19"}, "no_timestamps_token_id is '19'"),
        (MULTILINGUAL | {"max_initial_timestamp_index": -1}, "an integer of at least 0, or null"),
        (MULTILINGUAL | {"forced_decoder_ids": [[2, EN]]}, "for the places 1, 2"),
        (MULTILINGUAL | {"forced_decoder_ids": [1, 2]}, "forced_decoder_ids is"),
        (MULTILINGUAL | {"task": "sing"}, "task is 'sing'; the model knows translate, transcribe"),
        (ENGLISH | {"language": "de"}, "language is 'de'; the model knows none"),
    ],
)
def test_what_is_no_token_of_the_kind_is_refused(generation, said):
    with pytest.raises(ValueError, match=said):
        get_forced(generation)
