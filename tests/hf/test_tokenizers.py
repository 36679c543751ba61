"""Tokenizers as published: sentencepiece files alone, damaged ones, and too many tokens."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from tiny import corpus

import specjax
from specjax.hf.tokenizer import load_tokenizer, train_tokenizer
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden"
TEXTS = [text for pair in corpus() for text in (pair.source, pair.target)]
PIECES = 120
PUBLISHED = {
    # golden checkpoint, file, kind, pieces before the first trained one: T5's and Llama's order
    "t5": ("t5_v1_1", "spiece.model", "unigram", {"pad_id": 0, "eos_id": 1, "unk_id": 2}),
    "llama": ("llama", "tokenizer.model", "bpe", {"unk_id": 0, "bos_id": 1, "eos_id": 2}),
}


def train(file: Path, kind: str, ids: dict[str, int]) -> None:
    """A sentencepiece model of `PIECES` pieces as T5 and Llama publish theirs."""
    sentencepiece = pytest.importorskip("sentencepiece")
    unused = {"pad_id": -1, "bos_id": -1, "eos_id": -1}
    with open(file, "wb") as out:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(TEXTS),
            model_writer=out,
            model_type=kind,
            vocab_size=PIECES + (256 if kind == "bpe" else 0),
            byte_fallback=kind == "bpe",
            hard_vocab_limit=False,
            character_coverage=1.0,
            minloglevel=2,
            **{**unused, **ids},
        )


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders with a config, weights wide enough and a sentencepiece file, and nothing else."""
    made = {}
    for name, (golden, file, kind, ids) in PUBLISHED.items():
        folder = tmp_path_factory.mktemp(name)
        shutil.copy(GOLDEN / golden / "config.json", folder)
        train(folder / file, kind, ids)
        made[name] = folder
    return made


DESCRIBED = {
    # As google/t5-v1_1-small and lmsys/vicuna-33b-v1.3 are: no tokenizer.json.
    "t5": {"extra_ids": 100, "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
    "llama": {
        "tokenizer_class": "LlamaTokenizer", "add_bos_token": True, "add_eos_token": False,
        "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": None,
    },
}  # fmt: skip


@pytest.mark.parametrize("described", [False, True])
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_sentencepiece_file_encodes_as_sentencepiece_does(
    name: str, described: bool, published: dict[str, Path], tmp_path: Path
) -> None:
    """With and without the description that is published beside it."""
    sentencepiece = pytest.importorskip("sentencepiece")
    folder, file = tmp_path / "copy", PUBLISHED[name][1]
    shutil.copytree(published[name], folder)
    if described:
        (folder / "tokenizer_config.json").write_text(json.dumps(DESCRIBED[name]), "utf-8")
    tokenizer = load_tokenizer(folder)
    reference = sentencepiece.SentencePieceProcessor(model_file=str(folder / file))
    for text in TEXTS[:20]:
        ids = reference.encode(text)
        expected = [*ids, 1] if name == "t5" else [1, *ids]
        assert tokenizer(text).input_ids == expected
        assert tokenizer.decode(expected, skip_special_tokens=True) == text
    if name == "t5":
        # The sentinels of T5's training come behind the pieces of the file.
        assert tokenizer.convert_tokens_to_ids("<extra_id_99>") == reference.get_piece_size()


@pytest.mark.parametrize("name", PUBLISHED)
def test_without_sentencepiece_its_name_is_said(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    (tmp_path / PUBLISHED[name][1]).write_bytes(b"")
    assert "pip install sentencepiece" in complaint(tmp_path)


def test_dependencies_include_what_sentencepiece_files_need() -> None:
    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert {"sentencepiece", "protobuf"} <= set(settings["project"]["dependencies"])


# Damaged files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer as transformers saves it."""
    train_tokenizer(TEXTS, 60).save_pretrained(tmp_path)
    shutil.copy(GOLDEN / "t5_v1_1" / "config.json", tmp_path)
    return tmp_path


def complaint(folder: Path, vocab_size: int | None = None) -> str:
    with pytest.raises(UserError) as caught:
        load_tokenizer(folder, vocab_size)
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 400 and not re.search(r"\. [A-Z]", sentence)
    assert str(folder) in sentence
    return sentence


@pytest.mark.parametrize(
    "content", [b"", b"{", b"{}", b"[]", b"7", b"\xff\xfe", b'{"model": {"type": "BPE"}}']
)
def test_a_corrupt_tokenizer_json_is_named(content: bytes, folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(content)
    assert "tokenizer.json" in complaint(folder)


@pytest.mark.parametrize("kept", [1, 100, -3])
def test_a_tokenizer_json_that_was_cut_off_is_named(kept: int, folder: Path) -> None:
    content = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(content[:kept])
    assert "tokenizer.json" in complaint(folder)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff"])
def test_a_corrupt_description_is_named(file: str, content: bytes, folder: Path) -> None:
    (folder / file).write_bytes(content)
    assert file in complaint(folder)


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("content", [b"", b"\x00\x01broken", b"version https://git-lfs\n"])
def test_a_corrupt_sentencepiece_file_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    """The third is what git leaves where the large file was not fetched."""
    pytest.importorskip("sentencepiece")
    golden, file, *_ = PUBLISHED[name]
    shutil.copy(GOLDEN / golden / "config.json", tmp_path)
    (tmp_path / file).write_bytes(content)
    assert "cannot be read" in complaint(tmp_path)


def test_a_description_without_a_vocabulary_is_refused(folder: Path) -> None:
    """transformers would make a tokenizer of the special tokens alone."""
    (folder / "tokenizer.json").unlink()
    sentence = complaint(folder)
    assert "tokenizer_config.json" in sentence and "no vocabulary" in sentence


def test_byt5_needs_no_vocabulary(tmp_path: Path) -> None:
    shutil.copy(GOLDEN / "t5_v1_1" / "config.json", tmp_path)
    described = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 0}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(described), "utf-8")
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer("Hi").input_ids == [ord("H") + 3, ord("i") + 3, 1]


def test_a_folder_without_tokenizer_files_has_none(tmp_path: Path) -> None:
    assert load_tokenizer(tmp_path) is None


# Tokens and embeddings


def test_more_tokens_than_embeddings_are_refused(folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    last = len(tokenizer) - 1
    sentence = complaint(folder, last)
    assert f"token {last};" in sentence and repr(tokenizer.convert_ids_to_tokens(last)) in sentence
    assert len(load_tokenizer(folder, last + 1)) == last + 1


def test_a_model_is_loaded_with_a_tokenizer_that_fits_and_not_with_another(folder: Path) -> None:
    shutil.copy(GOLDEN / "t5_v1_1" / "model.safetensors", folder)
    loaded = specjax.load(folder)
    assert loaded.tokenizer.vocab_size <= loaded.model.info.vocab_size
    loaded.tokenizer.add_tokens([f"<more {i}>" for i in range(loaded.model.info.vocab_size)])
    loaded.tokenizer.save_pretrained(folder)
    with pytest.raises(UserError, match="embeddings"):
        specjax.load(folder)
