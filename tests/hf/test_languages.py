"""Languages of multilingual tokenizers: marks on prompts, and the token a text begins with."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from transformers import NllbTokenizer

import specjax
from specjax.hf.languages import language_codes
from specjax.hf.tokenizer import train_tokenizer
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden" / "m2m_100"
LANGUAGES = ["eng_Latn", "deu_Latn"]
EOS = 2


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The golden model with a tokenizer of letters and two languages."""
    folder = tmp_path_factory.mktemp("nllb") / "model"
    shutil.copytree(GOLDEN, folder)
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁", *"abcdefgh"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    NllbTokenizer(vocabulary, [], extra_special_tokens=LANGUAGES).save_pretrained(folder)
    return folder


def test_prompts_begin_with_the_code_of_their_language(checkpoint: Path) -> None:
    """NLLB's way; as saved they are English."""
    rows = [
        specjax.load(checkpoint, source_language=code).tokenizer("ab").input_ids
        for code in ("", *LANGUAGES)
    ]
    english, german = (specjax.language_token(of(checkpoint), code) for code in LANGUAGES)
    assert [row[0] for row in rows] == [english, english, german]
    assert rows[1][1:] == rows[2][1:] and rows[0][-1] == EOS


def of(checkpoint: Path) -> NllbTokenizer:
    return specjax.load(checkpoint).tokenizer


def test_the_codes_are_no_other_special_tokens(checkpoint: Path) -> None:
    tokenizer = of(checkpoint)
    assert language_codes(tokenizer) == {
        code: tokenizer.convert_tokens_to_ids(code) for code in LANGUAGES
    }


@pytest.mark.slow
def test_texts_begin_with_the_code_of_the_language_that_is_told(checkpoint: Path) -> None:
    """As transformers' `generate` does with the same `forced_bos_token_id`."""
    german = specjax.language_token(of(checkpoint), "deu_Latn")
    adapted = specjax.load(checkpoint, target_language="deu_Latn")
    assert adapted.settings["forced_bos_token_id"] == german
    forced = specjax.load(checkpoint, generation={"forced_bos_token_id": german})
    assert adapted.settings == forced.settings
    assert specjax.Generator(adapted, max_new_tokens=2)(["ab"]).tokens[0][0] == german


def test_a_language_of_texts_that_is_none_is_refused(checkpoint: Path) -> None:
    with pytest.raises(UserError, match="target_language is 'deu'; .* 2 codes, such as deu_Latn"):
        specjax.load(checkpoint, target_language="deu")
    with pytest.raises(UserError, match="target_language is 'de'; the tokenizer has no languages"):
        specjax.load(GOLDEN, target_language="de")
    twice = {"target_language": "deu_Latn", "generation": {"forced_bos_token_id": 6}}
    with pytest.raises(UserError, match="forced_bos_token_id is 6; only one of them"):
        specjax.load(checkpoint, **twice)


def test_a_language_that_is_none_is_refused_with_those_that_are(checkpoint: Path) -> None:
    with pytest.raises(UserError, match="source_language is 'deu'; .* 2 codes, such as deu_Latn"):
        specjax.load(checkpoint, source_language="deu")
    with pytest.raises(UserError, match="code is 'de'; the tokenizer has no languages"):
        specjax.language_token(train_tokenizer(["a b c"], 300), "de")
    with pytest.raises(UserError, match="source_language is 'de'; the tokenizer has no languages"):
        specjax.load(GOLDEN, source_language="de")
