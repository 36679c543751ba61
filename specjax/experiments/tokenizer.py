"""Trains a tokenizer on the user's data and evaluates it on held-out lines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from specjax.checks import check_integer
from specjax.data import files
from specjax.data.sources import hold_out
from specjax.data.text import is_json
from specjax.experiments.decode.data import check_one_place, data_words, file_words, stream
from specjax.hf.tokenizer import (
    BYTE_SPECIALS,
    BYTES,
    token_ids,
    train_byte_tokenizer,
    train_tokenizer,
)
from specjax.runtime.errors import UserError
from specjax.runtime.files import replacing_directory
from specjax.runtime.progress import progress

FOLDER = "tokenizer"

KINDS = {"bpe": train_tokenizer, "byte_bpe": train_byte_tokenizer}
_LEAST_BYTES = BYTES + len(BYTE_SPECIALS)
_WORDS = {
    "bpe": "T5-style: <pad> 0, </s> 1 appended to every text, <unk> 2",
    "byte_bpe": "for decoder-only models: <|endoftext|> 0, <|pad|> 1, nothing appended",
}


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Trains a tokenizer into workdir/tokenizer; returns its statistics.

    Raises:
      UserError: when a field or the text cannot be used.
    """
    check(config)
    workdir.mkdir(parents=True, exist_ok=True)
    with progress(texts(config), unit="text", desc="read") as bar:
        heldout, rest = hold_out(bar, config.heldout, config.seed)
        tokenizer = KINDS[config.kind](rest, config.vocab_size)
    with replacing_directory(workdir / FOLDER) as partial:
        tokenizer.save_pretrained(partial)
    ids = list(itertools.chain.from_iterable(token_ids(tokenizer, heldout, special=False)))
    figures = {
        "vocabulary": len(tokenizer),
        "characters_per_token": sum(map(len, heldout)) / len(ids),
        "unknown": sum(token == tokenizer.unk_token_id for token in ids) / len(ids),
    }
    print(f"vocabulary            {figures['vocabulary']:>10,}")
    print(f"characters per token  {figures['characters_per_token']:>10.3f}")
    print(f"unknown tokens        {figures['unknown']:>10.4%}")
    print(f"on {len(heldout):,} held-out texts; tokenizer in {workdir / FOLDER}")
    return figures


def plan(config: ConfigDict) -> None:
    """Prints the tokenizer that would be trained and its data.

    Raises:
      UserError: when a field or a file cannot be used.
    """
    check(config)
    named = [file_words("text_files", file) for file in text_files(config)]
    print(f"tokenizer: {config.kind}, at most {config.vocab_size:,} pieces, {_WORDS[config.kind]}")
    print(f"reads: {' and '.join(named) or data_words(config)}, of which {config.heldout} held out")


def check(config: ConfigDict) -> None:
    """Validates the config.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    if config.kind == "byte_bpe":
        check_integer("config.vocab_size", config.vocab_size, _LEAST_BYTES)
    check_one_place(config, "text_files")
    for file in filter(is_json, text_files(config)):
        raise UserError(
            f"config.text_files has {file!r}; it must be plain text, one segment per line: give"
            " JSONL as config.source_file"
        )


def text_files(config: ConfigDict) -> list[str]:
    """The list of files in `config.text_files`."""
    return [name.strip() for name in config.text_files.split(",") if name.strip()]


def texts(config: ConfigDict) -> Iterator[str]:
    """Texts to train the tokenizer on, read lazily; at most `examples` rows."""
    if config.text_files:
        lines = (files.text_lines("text_files", file) for file in text_files(config))
        all_texts = itertools.islice(itertools.chain.from_iterable(lines), config.examples or None)
    else:
        sides = ((example.source, example.output) for example in stream(config))
        all_texts = itertools.chain.from_iterable(sides)
    return filter(None, all_texts)
