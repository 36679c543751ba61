"""Text pieces of a growing output: joined they are its text, and none is ever taken back."""

from __future__ import annotations

import random

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specjax.hf.tokenizer import train_byte_tokenizer, train_tokenizer
from specjax.result import Growing, final_text

TEXTS = [
    "Hi 😀",
    "naïve – “coö” 🏳️‍🌈!",
    "日本語とEnglish",
    "don ' t , he 's we 've n't . yes ?",
    "  a\n b\t",
]


def fallback_tokenizer() -> PreTrainedTokenizerFast:
    """Pieces of a few letters, and all bytes, as SentencePiece models with byte fallback."""
    pieces = ["<unk>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"Hiabet"]
    tokenizer = Tokenizer(
        models.BPE({p: i for i, p in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", unk_token="<unk>")


def cleaning_tokenizer() -> PreTrainedTokenizerFast:
    """Characters, joined with their spaces cleaned up."""
    letters = sorted(set("".join(TEXTS)))
    pieces = {piece: index for index, piece in enumerate(["<unk>", *letters])}
    tokenizer = Tokenizer(models.WordLevel(pieces, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="<unk>", clean_up_tokenization_spaces=True
    )


TOKENIZERS = {
    "byte_level": lambda: train_byte_tokenizer(["Hi, how are you?"] * 9, 280),
    "byte_fallback": fallback_tokenizer,
    "metaspace": lambda: train_tokenizer(TEXTS, 80),
    "cleaning": cleaning_tokenizer,
}


def pieces(tokenizer, ids: list[int], steps: list[int]) -> list[str]:
    """What a stream yields that sees `ids` up to each of `steps`."""
    growing = Growing(tokenizer)
    return [growing.piece(ids[:n], last=n == len(ids)) for n in steps]


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


@pytest.mark.parametrize("text", TEXTS)
def test_pieces_join_to_the_text(tokenizer, text):
    ids = tokenizer(text).input_ids
    found = pieces(tokenizer, ids, list(range(1, len(ids) + 1)))
    assert "".join(found) == tokenizer.decode(ids, skip_special_tokens=True)
    assert sum(map(bool, found)) > 1


def test_any_ids_in_any_steps_join_to_their_text(tokenizer):
    """Broken characters and special tokens in all places too."""
    rng = random.Random(0)
    for _ in range(400):
        ids = [rng.randrange(len(tokenizer)) for _ in range(rng.randint(1, 12))]
        steps = sorted({rng.randint(1, len(ids)) for _ in ids} | {len(ids)})
        whole = tokenizer.decode(ids, skip_special_tokens=True)
        assert "".join(pieces(tokenizer, ids, steps)) == whole


def test_random_characters_join_to_their_text(tokenizer):
    rng = random.Random(1)
    for _ in range(100):
        planes = rng.choices([(32, 126), (0xA0, 0x7FF), (0x800, 0xD7FF), (0x1F300, 0x1FAFF)], k=8)
        text = "".join(chr(rng.randint(*plane)) for plane in planes)
        ids = tokenizer(text).input_ids
        found = pieces(tokenizer, ids, list(range(1, len(ids) + 1)))
        assert "".join(found) == tokenizer.decode(ids, skip_special_tokens=True)


def test_an_unfinished_character_is_held_back():
    tokenizer = TOKENIZERS["byte_level"]()
    ids = tokenizer("Hi 😀!").input_ids
    known = [final_text(tokenizer, ids[:n]) for n in range(len(ids) + 1)]
    assert "Hi " in known and known[-1] == "Hi 😀!"
    assert not any("\ufffd" in text for text in known)
