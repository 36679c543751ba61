"""Marian's tokenizer of two vocabularies: one of prompts, one of what is written."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sentencepiece")

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer  # noqa: E402
from transformers import MarianTokenizer  # noqa: E402

import specjax  # noqa: E402
from specjax.data.encoding import Encoder  # noqa: E402
from specjax.data.two_vocabularies import prompt_text, text_vocabulary  # noqa: E402
from specjax.hf.tokenizer import check_same_vocabulary, written_ids  # noqa: E402
from specjax.runtime.errors import UserError  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "marian_two"
WORDS = {
    "source": ["a cab bade a deaf cad", "be a bad bee", "face a fab cab", "dad fed a deaf bee"] * 5,
    "target": ["no moon on lost toys", "tons of most stony loot", "snow on only my town"] * 5,
}
PROMPT, TEXT = "bad cab", "my moon"
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")


def train_tokenizer(texts: list[str], size: int) -> bytes:
    written = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=written, vocab_size=size, num_threads=1,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return written.getvalue()


def number_tokens(pieces: bytes) -> dict[str, int]:
    model = SentencePieceProcessor(model_proto=pieces)
    words = [model.IdToPiece(number) for number in range(3, model.GetPieceSize())]
    return {piece: number for number, piece in enumerate([*SPECIAL, *words])}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """The golden model with the files of a tokenizer whose vocabularies differ in size."""
    where = tmp_path_factory.mktemp("marian") / "model"
    shutil.copytree(GOLDEN, where)
    names = {"source": "vocab.json", "target": "target_vocab.json"}
    for side, size in (("source", 18), ("target", 24)):
        pieces = train_tokenizer(WORDS[side], size)
        (where / f"{side}.spm").write_bytes(pieces)
        (where / names[side]).write_text(json.dumps(number_tokens(pieces)), "utf-8")
    described = {"separate_vocabs": True, "source_lang": "eng", "target_lang": "deu"}
    (where / "tokenizer_config.json").write_text(json.dumps(described), "utf-8")
    return where


@pytest.fixture(scope="module")
def loaded(folder: Path) -> specjax.LoadedModel:
    return specjax.load(folder)


def test_prompts_are_read_in_one_vocabulary_and_texts_written_in_the_other(
    loaded: specjax.LoadedModel, folder: Path
) -> None:
    theirs = MarianTokenizer.from_pretrained(folder)
    none = {
        "suppress_tokens": list(range(len(theirs.target_encoder), loaded.model.info.vocab_size))
    }
    made = specjax.Generator(loaded, max_new_tokens=6, generation=none)([PROMPT])
    assert (
        made.tokens
        == specjax.Generator(loaded, max_new_tokens=6, generation=none)(
            [theirs(PROMPT).input_ids]
        ).tokens
    )
    assert made.texts == theirs.batch_decode(made.tokens, skip_special_tokens=True)
    assert made.texts[0] and not set(made.texts[0]) & set("abcde")  # of prompts alone
    assert made.first.entries()[0]["source"] == PROMPT


def test_texts_that_are_learnt_from_are_in_the_vocabulary_of_texts(
    loaded: specjax.LoadedModel, folder: Path
) -> None:
    theirs = MarianTokenizer.from_pretrained(folder)
    expected = theirs(text_target=[TEXT]).input_ids
    assert list(written_ids(loaded.tokenizer, loaded.model, [TEXT])) == expected
    assert theirs.decode(expected[0], skip_special_tokens=True) == TEXT
    assert expected != theirs([TEXT]).input_ids
    encoder = Encoder(loaded.tokenizer, False, loaded.model.info.eos[0], 20, 20)
    assert list(map(list, encoder.outputs([PROMPT], [TEXT]))) == expected
    assert list(map(list, encoder.prompts([PROMPT]))) == theirs([PROMPT]).input_ids
    assert prompt_text(loaded.tokenizer, theirs(PROMPT).input_ids) == PROMPT


@pytest.mark.parametrize("file", ["vocab.json", "target_vocab.json"])
def test_a_drafter_must_have_both_vocabularies(
    loaded: specjax.LoadedModel, folder: Path, file: str, tmp_path: Path
) -> None:
    check_same_vocabulary("drafter", loaded, loaded)
    shutil.copytree(folder, tmp_path / "model")
    vocabulary = json.loads((folder / file).read_text("utf-8"))
    first, second = list(vocabulary)[5:7]
    swapped = vocabulary | {first: vocabulary[second], second: vocabulary[first]}
    (tmp_path / "model" / file).write_text(json.dumps(swapped), "utf-8")
    other = dataclasses.replace(loaded, tokenizer=specjax.load(tmp_path / "model").tokenizer)
    with pytest.raises(UserError, match=r"another tokenizer than the target, 2 of \d+ pieces"):
        check_same_vocabulary("drafter", other, loaded)


@pytest.mark.parametrize(("file", "size"), [("vocab.json", 109), ("target_vocab.json", 96)])
def test_a_piece_without_an_embedding_is_refused(
    folder: Path, file: str, size: int, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "model")
    vocabulary = json.loads((folder / file).read_text("utf-8"))
    (tmp_path / "model" / file).write_text(json.dumps(vocabulary | {"zz": size}), "utf-8")
    with pytest.raises(
        UserError, match=f"'zz' as token {size}; the model has embeddings for {size}"
    ):
        specjax.load(tmp_path / "model")


def test_what_is_saved_is_read_as_it_was(loaded: specjax.LoadedModel, tmp_path: Path) -> None:
    loaded.save(tmp_path / "out")
    again = specjax.load(tmp_path / "out")
    assert again.model == loaded.model
    assert text_vocabulary(again.tokenizer) == text_vocabulary(loaded.tokenizer)
    assert again.tokenizer.get_vocab() == loaded.tokenizer.get_vocab()
