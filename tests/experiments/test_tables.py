"""What a decode config gives to drafters that search earlier texts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scripted import PrefixModel

import specjax
from specjax.data.text import Example
from specjax.experiments.config.defaults import decode_config
from specjax.experiments.decode.tables import (
    check_corpus,
    load_tables,
    output_texts,
    reads_rest,
    whole_text,
)
from specjax.runtime.errors import UserError

GRAMMAR = {"kind": "grammar", "split": "test"}
REST = [Example("one", "ein"), Example("two", None), Example("three", "drei")]


@pytest.fixture(scope="module")
def target(pair):
    return specjax.load(pair / "drafter")


def make_corpus(config, target, rest=()) -> list[str]:
    """The earlier texts of a config, which all begin and end as outputs do."""
    read = load_tables(config, {"corpus"}, target, target.model.info.vocab_size, list(rest))
    table = read["corpus"]
    tokens = np.asarray(table["tokens"])
    assert tokens.shape == (config.corpus_tokens,) == table["order"].shape
    borders = np.flatnonzero(tokens < 0)
    texts = [tokens[a + 1 : b] for a, b in zip(borders, borders[1:], strict=False) if b > a + 1]
    for text in texts:
        assert text[0] == target.model.info.start_token and text[-1] in target.model.info.eos
    return target.tokenizer.batch_decode([text.tolist() for text in texts], True)


def test_a_file_of_lines_is_searched(pair, target):
    file = pair / "reference.txt"
    config = decode_config(corpus_file=str(file), corpus_tokens=2**14)
    assert make_corpus(config, target) == file.read_text("utf-8").splitlines()


def test_rows_of_the_task_are_searched(tmp_path, target):
    rows = [{"en": "a dog", "de": "ein Hund"}, {"en": "a cat", "de": "eine Katze"}]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    config = decode_config(task="multi30k_ende", corpus_file=str(file), corpus_tokens=128)
    assert make_corpus(config, target) == ["ein Hund", "eine Katze"]


def test_another_split_is_searched(target):
    config = decode_config(task="multi30k_ende", corpus_split="train", corpus_tokens=300)
    config.data.update(GRAMMAR)
    trained = make_corpus(config, target)
    config.corpus_split = "test"
    assert trained and set(trained).isdisjoint(make_corpus(config, target))


def test_rows_that_are_not_decoded_are_searched(target):
    config = decode_config(corpus_tokens=128)
    assert reads_rest(config, {"corpus"}) and not reads_rest(config, {"heads"})
    assert make_corpus(config, target, REST) == ["ein", "drei"]
    config.corpus_file = "lines.txt"
    assert not reads_rest(config, {"corpus"})


def test_a_decoder_only_text_is_a_prompt_and_what_follows_it():
    baseline = PrefixModel(9, start_token=None)
    assert whole_text("Q: 1\nA:", "2", baseline) == "Q: 1\nA: 2"
    assert whole_text("Q: ", "2", baseline) == "Q: 2"
    assert whole_text("one", "ein", PrefixModel(9)) == "ein"
    assert output_texts(REST[0], baseline) == ["one", "ein"]


def test_what_cannot_be_searched_is_named(target, tmp_path):
    with pytest.raises(UserError, match="corpus_file is empty and no example"):
        make_corpus(decode_config(corpus_tokens=64), target, [Example("one")])
    with pytest.raises(UserError, match="corpus_file 'nowhere.txt' cannot be read"):
        make_corpus(decode_config(corpus_file="nowhere.txt"), target)
    for text in ("", "\n\n \n"):
        (tmp_path / "none.txt").write_text(text)
        for field in ("corpus_file", "ngram_file"):
            config = decode_config(**{field: str(tmp_path / "none.txt")})
            with pytest.raises(UserError, match=f"{field} '.*none.txt' holds no text"):
                load_tables(config, {field.split("_")[0]}, target, target.model.info.vocab_size, [])
    (tmp_path / "none.jsonl").write_text("")
    config = decode_config(task="multi30k_ende", corpus_file=str(tmp_path / "none.jsonl"))
    with pytest.raises(UserError, match="config.corpus_file '.*none.jsonl' holds no text"):
        make_corpus(config, target)
    with pytest.raises(UserError, match="corpus_split is 'train'; it must be empty without"):
        check_corpus(decode_config(corpus_split="train"))
    both = decode_config(task="gsm8k_qa", corpus_split="train", corpus_file="a.txt")
    with pytest.raises(UserError, match="it must be empty with config.corpus_file"):
        check_corpus(both)
