"""Languages of tokenizers that are sentencepiece files: M2M100's, mBART-50's, Marian's."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sentencepiece")

from sentencepiece import SentencePieceProcessor, SentencePieceTrainer  # noqa: E402
from transformers import M2M100Tokenizer, MarianTokenizer, MBart50Tokenizer  # noqa: E402

import specjax  # noqa: E402
from specjax.hf.languages import language_codes  # noqa: E402
from specjax.runtime.errors import UserError  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden"
TEXTS = ["a cab bade a deaf cad", "be a bad bee", "face a fab cab", "dad fed a deaf bee"] * 5
TEXT, PIECES, EOS = "bad cab", 20, 2
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]  # by id, as fairseq's files have them


@pytest.fixture(scope="module")
def pieces() -> bytes:
    """A sentencepiece model of a few words."""
    written = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=written, vocab_size=PIECES, num_threads=1,
        hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    return written.getvalue()


def vocabulary(pieces: bytes, *codes: str) -> dict[str, int]:
    """Ids of the special tokens, of codes, and of the pieces that are no special tokens."""
    model = SentencePieceProcessor(model_proto=pieces)
    words = [model.IdToPiece(number) for number in range(3, model.GetPieceSize())]
    return {piece: number for number, piece in enumerate([*SPECIAL, *codes, *words])}


def folder_of(golden: str, where: Path, files: dict[str, Any]) -> Path:
    """A golden checkpoint with files of a tokenizer beside it, as on the hub."""
    shutil.copytree(GOLDEN / golden, where)
    for name, content in files.items():
        written = content if isinstance(content, bytes) else json.dumps(content).encode()
        (where / name).write_bytes(written)
    return where


@pytest.fixture(scope="module", params=["m2m_100", "mbart"])
def many(request: pytest.FixtureRequest, pieces: bytes, tmp_path_factory: Any) -> Any:
    """A checkpoint of many languages, the class of its tokenizer, two codes, and their tokens."""
    where = tmp_path_factory.mktemp("languages") / request.param
    files: dict[str, Any] = {"sentencepiece.bpe.model": pieces}
    if request.param == "m2m_100":
        own, codes, marks = M2M100Tokenizer, ("en", "de"), ("__en__", "__de__")
        described = {"language_codes": "wmt21", "num_madeup_words": 0}
        files["vocab.json"] = vocabulary(pieces)
    else:
        own, codes, described = MBart50Tokenizer, ("en_XX", "de_DE"), {}
        marks = codes
    files["tokenizer_config.json"] = {"tokenizer_class": own.__name__} | described
    return folder_of(request.param, where, files), own, codes, marks


def test_prompts_are_in_the_language_that_is_told(many: Any) -> None:
    """By the token before the text, as transformers writes it."""
    folder, own, codes, marks = many
    for code, mark in zip(codes, marks, strict=True):
        tokenizer = specjax.load(folder, source_language=code).tokenizer
        row, expected = tokenizer(TEXT).input_ids, own.from_pretrained(folder, src_lang=code)
        assert tokenizer.decode(row[1:], skip_special_tokens=True) == TEXT
        assert row == expected(TEXT).input_ids and row[-1] == EOS
        assert row[0] == specjax.language_token(tokenizer, code)
        assert tokenizer.convert_ids_to_tokens(row[0]) == mark
        shown = [one.decode(row, skip_special_tokens=True) for one in (tokenizer, expected)]
        assert shown[0] == shown[1]  # M2M100's class shows the mark
        assert tokenizer.unk_token_id not in row
    first = specjax.load(folder).tokenizer(TEXT).input_ids
    assert first == own.from_pretrained(folder)(TEXT).input_ids


@pytest.mark.slow
def test_texts_begin_with_the_language_that_is_told(many: Any) -> None:
    folder, _, (_, code), _ = many
    adapted = specjax.load(folder, target_language=code)
    token = specjax.language_token(adapted.tokenizer, code)
    assert adapted.settings["forced_bos_token_id"] == token
    made = specjax.Generator(adapted, max_new_tokens=3)([TEXT])
    assert made.tokens[0][0] == token


def test_the_codes_are_the_tokenizers_and_no_other_is_taken(many: Any) -> None:
    folder, _, codes, _ = many
    tokenizer = specjax.load(folder).tokenizer
    known = language_codes(tokenizer)
    assert set(codes) <= set(known) and len(set(known.values())) == len(known) > 5
    assert not set(known.values()) & set(range(len(SPECIAL)))
    with pytest.raises(UserError, match=rf"one of the tokenizer's {len(known)} codes, such as"):
        specjax.load(folder, source_language="klingon")


@pytest.fixture(scope="module")
def marian(pieces: bytes, tmp_path_factory: Any) -> Path:
    """As of several target languages, whose mark the user writes before the prompt."""
    files = {
        "source.spm": pieces,
        "target.spm": pieces,
        "vocab.json": vocabulary(pieces, ">>deu<<", ">>nld<<"),
        "tokenizer_config.json": {"source_lang": "eng", "target_lang": "gem"},
    }
    return folder_of("marian", tmp_path_factory.mktemp("marian") / "model", files)


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_marians_prompts_name_the_language_of_the_text(marian: Path) -> None:
    loaded = specjax.load(marian)
    expected = MarianTokenizer.from_pretrained(marian)
    for mark in ("", ">>deu<< ", ">>nld<< "):
        row = loaded.tokenizer(mark + TEXT).input_ids
        assert row == expected(mark + TEXT).input_ids and row[-1] == EOS
        assert loaded.tokenizer.unk_token_id not in row
        if mark:
            assert loaded.tokenizer.convert_ids_to_tokens(row[0]) == mark.strip()
    # The random model has more ids than the tokenizer pieces.
    none = {"suppress_tokens": list(range(len(loaded.tokenizer), loaded.model.info.vocab_size))}
    made = specjax.Generator(loaded, max_new_tokens=4, generation=none)([">>deu<< " + TEXT])
    assert made.texts == expected.batch_decode(made.tokens, skip_special_tokens=True)
    with pytest.raises(UserError, match="source_language is 'deu'; the tokenizer has no languages"):
        specjax.load(marian, source_language="deu")


@pytest.mark.parametrize("damage", ["missing", "no model", "no vocabulary"])
def test_a_damaged_tokenizer_of_marian_is_refused(marian: Path, damage: str, tmp_path: Any) -> None:
    folder = tmp_path / "model"
    shutil.copytree(marian, folder)
    if damage == "missing":
        (folder / "target.spm").unlink()
    elif damage == "no model":
        (folder / "source.spm").write_text("no sentencepiece model", "utf-8")
    else:
        (folder / "vocab.json").write_text('{"a": 0}', "utf-8")
    with pytest.raises(UserError, match="tokenizer of .* cannot be read") as caught:
        specjax.load(folder)
    assert "\n" not in str(caught.value)
