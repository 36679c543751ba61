"""Tokens of one text in two vocabularies: spellings, roles, what stands in for a lacking one."""

from __future__ import annotations

import dataclasses
import types
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from specjax.hf.pieces import pieces
from specjax.hf.shared_tokens import (
    LEAST_SHARED,
    in_vocabulary_of,
    share_in,
    shared_tokens,
)
from specjax.models.info import ModelInfo
from specjax.runtime.errors import UserError

BYTE_FALLBACK = decoders.Sequence(
    [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
)


def tokenizer(words: list[str], decoder: Any, **special: str) -> PreTrainedTokenizerFast:
    """One whose ids are the places of words; `special` are tokens by role."""
    made = Tokenizer(WordLevel({word: place for place, word in enumerate(words)}, words[0]))
    made.decoder = decoder
    return PreTrainedTokenizerFast(tokenizer_object=made, **special)


@dataclasses.dataclass(frozen=True)
class Loaded:
    """As much of a loaded model as a comparison looks at."""

    tokenizer: Any
    model: Any
    params: Any = None
    own_tokenizer: Any = None


def load_with_tokenizer(tokenizer: Any, start_token: int | None = None, padding: int = 0) -> Loaded:
    """A model of this tokenizer, with a wider vocabulary."""
    width, end = len(tokenizer) + padding, tokenizer.eos_token_id
    return Loaded(
        tokenizer,
        types.SimpleNamespace(info=ModelInfo(width, 1, (end,), start_token=start_token)),
    )


META = tokenizer(
    ["<pad>", "</s>", "<unk>", "▁the", "cat", "▁", "é", "\n", "▁A"],
    decoders.Metaspace(),
    pad_token="<pad>",
    eos_token="</s>",
    unk_token="<unk>",
)
LETTERS = tokenizer(
    ["<|end|>", "cat", "Ġthe", "Ċ", "Ġ", "Ã©", "A", "Ã", "c"],
    decoders.ByteLevel(),
    eos_token="<|end|>",
)
FALLBACK = tokenizer(
    ["<unk>", "<s>", "</s>", "<0x0A>", "<0xC3>", "<0x41>", "▁the", "A", "cat"],
    BYTE_FALLBACK,
    unk_token="<unk>",
    bos_token="<s>",
    eos_token="</s>",
)


def test_every_kind_of_tokenizer_spells_the_same_text():
    the, cat, line, accent = b" the", b"cat", b"\n", "é".encode()
    assert [pieces(META)[i] for i in (3, 4, 5, 6, 7, 8)] == [the, cat, b" ", accent, line, b" A"]
    letters = [cat, the, line, b" ", accent, b"A", b"\xc3", b"c"]
    assert [pieces(LETTERS)[i] for i in range(1, 9)] == letters
    spelled = pieces(FALLBACK)
    assert [spelled[i] for i in range(3, 9)] == [line, b"\xc3", b"A", the, b"A", cat]
    assert list(spelled)[-3:] == [3, 4, 5]  # single bytes come last
    assert [pieces(META)[i] for i in (0, 1)] == ["<pad>", "</s>"]


def of(drafter: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast, **given: Any):
    return shared_tokens(load_with_tokenizer(drafter), load_with_tokenizer(target, **given))


def list_ids(match: Any) -> list[int]:
    """The drafter's ids, -1 where it has none."""
    return np.where(match.places < match.width, match.places, -1).tolist()


def test_tokens_of_one_text_meet_whatever_their_marks():
    match = of(LETTERS, META)
    #                      pad end unk the cat space é  line A
    assert list_ids(match) == [-1, 0, -1, 2, 1, 4, 5, 3, -1]
    assert (match.shared, match.tokens) == (6, 9)
    assert match.places.dtype == np.int32 and match.width == len(LETTERS)


def test_a_text_that_is_spelled_twice_is_one_token_and_not_the_single_byte():
    assert list_ids(of(LETTERS, FALLBACK)) == [-1, -1, 0, 3, 7, -1, 2, 6, 1]
    assert list_ids(of(FALLBACK, LETTERS))[6] == 7
    assert list_ids(of(FALLBACK, FALLBACK)) == list(range(9))


def test_the_end_of_a_text_is_one_whatever_it_is_called():
    match = of(META, LETTERS)
    assert match.places[0] == 1
    # Its name as plain text is another token.
    plain = tokenizer(["<|end|>", "</s>", "cat"], decoders.ByteLevel(), eos_token="<|end|>")
    assert list_ids(of(plain, META))[1] == 0 and list_ids(of(META, plain)) == [1, -1, 4]


def test_a_role_goes_before_a_name():
    """Both have <a> and <b>, of which each ends its texts with another."""
    one = tokenizer(["<a>", "<b>", "cat"], decoders.ByteLevel(), eos_token="<a>", pad_token="<b>")
    two = tokenizer(["<a>", "<b>", "cat"], decoders.ByteLevel(), eos_token="<b>", pad_token="<a>")
    assert list_ids(of(one, two)) == [1, 0, 2]


def test_a_lacking_token_is_fed_as_the_longest_token_that_ends_it():
    match = of(LETTERS, META)
    assert match.fed.tolist() == [0, 0, 0, 2, 1, 4, 5, 3, 6]  # " A" is fed as "A"
    longer = tokenizer(["<|end|>", "Ġthecat", "ĠAc"], decoders.ByteLevel(), eos_token="<|end|>")
    assert of(LETTERS, longer).fed.tolist() == [0, 1, 8]


def test_padding_ids_and_the_start_token_are_fed_as_such():
    match = shared_tokens(
        load_with_tokenizer(META, start_token=0),
        load_with_tokenizer(FALLBACK, start_token=1, padding=2),
    )
    assert match.fed[1] == 0 and match.fed[-1] == 2  # the unknown token
    assert list_ids(match)[-2:] == [-1, -1]


def test_the_use_of_shared_tokens_is_counted_in_texts():
    drafter = in_vocabulary_of(load_with_tokenizer(META), load_with_tokenizer(LETTERS))
    assert of(LETTERS, META).share == 6 / 9
    assert share_in(drafter, [[3, 4], [8, 1]]) == 0.75 and share_in(drafter, []) == 0.0


def test_too_few_shared_tokens_are_refused():
    stranger = tokenizer(["<x>", *map(str, range(29))], decoders.ByteLevel(), eos_token="<x>")
    drafter, target = load_with_tokenizer(META), load_with_tokenizer(stranger)
    with pytest.raises(
        UserError, match=r"'small' has another tokenizer .* 1 of 30 tokens \(3.3%\)"
    ):
        in_vocabulary_of(target, drafter, name="small")
    assert LEAST_SHARED > 1 / 30
    made = in_vocabulary_of(target, drafter, least_shared=0.03)
    assert made.own_tokenizer is META and made.tokenizer is stranger
    assert in_vocabulary_of(target, made) is made  # it speaks the target's ids now


def test_the_share_is_said(capsys):
    in_vocabulary_of(load_with_tokenizer(META), load_with_tokenizer(LETTERS), name="small")
    words = (
        "drafter 'small' has another vocabulary: 6 of 9 tokens (66.7%) of the target are shared\n"
    )
    assert capsys.readouterr().out == words
    in_vocabulary_of(load_with_tokenizer(META), load_with_tokenizer(META))
    assert not capsys.readouterr().out


def test_a_tokenizer_whose_pieces_cannot_be_compared_is_refused():
    with pytest.raises(UserError, match="that of the drafter is not a fast one"):
        in_vocabulary_of(load_with_tokenizer(META), load_with_tokenizer(ByT5Tokenizer()))
