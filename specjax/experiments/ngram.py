"""Fits unigram and bigram tables and measures how well they predict held-out text."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from ml_collections import ConfigDict

from specjax.data import files
from specjax.data.sources import hold_out
from specjax.data.text import is_json
from specjax.experiments.decode.data import check_one_place, data_words, file_words, stream
from specjax.experiments.decode.tables import output_texts
from specjax.hf.descriptions import describe
from specjax.hf.hub import SMALL_FILES, locate
from specjax.hf.tokenizer import load_tokenizer, written_ids
from specjax.measuring.environment import environment
from specjax.metrics.ngram import predict_tokens
from specjax.models.base import LanguageModel
from specjax.runtime.errors import UserError
from specjax.runtime.json_files import write_json
from specjax.runtime.progress import progress
from specjax.training import ngram

TABLE = "ngram.safetensors"
RESULTS = "ngram.json"

LINES: tuple[tuple[str, str, str], ...] = (
    ("vocabulary", "vocabulary", ",d"),
    ("sequences", "sequences", ",d"),
    ("tokens", "tokens", ",d"),
    ("distinct pairs", "distinct_pairs", ",d"),
    ("successors per token", "successors", ",d"),
    ("held-out rows", "heldout_rows", ",d"),
    ("held-out tokens", "heldout_tokens", ",d"),
    ("unigram perplexity", "unigram_perplexity", ".2f"),
    ("bigram perplexity", "bigram_perplexity", ".2f"),
    ("bigram accuracy", "bigram_accuracy", ".4f"),
)
"""Label, field of ngram.json, format."""


def run(config: ConfigDict, workdir: Path) -> dict[str, Any]:
    """Fits a table and writes it with its figures; returns the content of ngram.json.

    Raises:
      UserError: when a field, the target or the text cannot be used.
    """
    model = check(config)
    tokenizer = load_tokenizer(
        locate(config.target, SMALL_FILES),
        model.info.vocab_size,
        source_vocab=model.info.source_vocab,
    )
    if tokenizer is None:
        raise UserError(f"config.target {config.target!r} has no tokenizer files")
    workdir.mkdir(parents=True, exist_ok=True)
    with progress(
        rows(config, model), total=config.examples or None, unit="row", desc="count"
    ) as bar:
        heldout, rest = hold_out(bar, config.heldout, config.seed)
        sequences = written_ids(tokenizer, model, itertools.chain.from_iterable(rest))
        counts = ngram.count(sequences, model.info.vocab_size, start_token=model.info.pending_token)
    table = ngram.tabulate(counts, successors=config.successors, smoothing=config.smoothing)
    unseen = written_ids(tokenizer, model, itertools.chain.from_iterable(heldout))
    figures = predict_tokens(table, unseen, model.info.pending_token)
    content = {
        "environment": environment(),
        "config": config.to_dict(),
        "vocabulary": model.info.vocab_size,
        "sequences": counts.sequences,
        "tokens": counts.tokens,
        "distinct_pairs": counts.pairs.size,
        "successors": table["ids"].shape[1],
        "heldout_rows": len(heldout),
        "heldout_tokens": figures.pop("tokens"),
        **figures,
    }
    ngram.save(table, workdir / TABLE)
    write_json(workdir / RESULTS, content)
    for words, field, form in LINES:
        print(f"{words:22}{format(content[field], form):>14}")
    print(f"table in {workdir / TABLE}")
    return content


def plan(config: ConfigDict) -> None:
    """Prints the data that would be read and the largest size of the table.

    Raises:
      UserError: when a field, the target or a file cannot be used.
    """
    model = check(config)
    kind = "decoder-only" if model.info.start_token is None else "encoder-decoder"
    shapes = ngram.shapes(model.info.vocab_size, config.successors)
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in shapes.values())
    place = file_words("text_file", config.text_file) if config.text_file else data_words(config)
    print(
        f"target: {config.target}, {kind}, vocabulary {model.info.vocab_size:,};"
        " no weights are read"
    )
    print(f"reads: {place}, {config.examples or 'all'} rows, of which {config.heldout} held out")
    print(f"table: at most {config.successors} successors per token, {size / 1e6:.1f} MB")
    print("memory: about 90 bytes per distinct pair while counting, and the held-out rows")


def check(config: ConfigDict) -> LanguageModel:
    """Validates the config; returns the target model without weights.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    if not config.target:
        raise UserError("config.target is empty; it must be a model directory or hub id")
    check_one_place(config, "text_file")
    model = describe(config.target, jnp.float32, ignore_generation_config=True)
    if model.info.start_token is not None and not (
        config.text_file or config.task or config.reference_file or is_json(config.source_file)
    ):
        raise UserError(
            "config.reference_file is empty; it must be a text file, as the target is"
            " encoder-decoder and n-grams are counted in its outputs"
        )
    return model


def rows(config: ConfigDict, model: LanguageModel) -> Iterator[list[str]]:
    """Texts of each row in the target's output format, read lazily."""
    if config.text_file:
        lines = outputs("text_file", config.text_file)
        texts: Iterable[list[str]] = ([line] for line in lines if line)
        return itertools.islice(texts, config.examples or None)
    return filter(None, (output_texts(example, model) for example in stream(config)))


def outputs(field: str, file: str) -> Iterator[str]:
    """Lines of a text file, or the "reference" field of each JSONL row.

    Raises:
      UserError: when the file cannot be read, or a row has no such text.
    """
    if not is_json(file):
        yield from files.text_lines(field, file)
        return
    for number, row in enumerate(files.json_rows(field, file), start=1):
        if not isinstance(row.get("reference"), str):
            raise UserError(
                f"{field} {file!r} row {number} has no text in field 'reference', only"
                f" {', '.join(row) or 'nothing'}"
            )
        yield row["reference"]
