"""Data of drafters in addition to models: counts, parallel heads, earlier texts."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from ml_collections import ConfigDict

from specjax.contracts.fields import CORPUS, HEADS, RESERVED
from specjax.data import examples as of_task
from specjax.data.corpus import Corpus
from specjax.data.sources import Source
from specjax.data.task import get_task
from specjax.data.text import Example, is_json, read_lines
from specjax.experiments.config.fields import checkpoint_dtype, heads_file
from specjax.experiments.decode.data import detect_kind, get_source
from specjax.hf import heads
from specjax.hf.tokenizer import written_ids
from specjax.loading import LoadedModel
from specjax.models.base import LanguageModel
from specjax.models.vocabularies import SharedVocabulary
from specjax.runtime.errors import UserError
from specjax.runtime.progress import UNNOTICED, progress
from specjax.training import ngram


def reads_rest(config: ConfigDict, names: Collection[str]) -> bool:
    """Whether trees of these names are built from rows that are not decoded."""
    counts = set(names) - set(RESERVED)
    fitted = counts and not (config.ngram_file or config.ngram_table)
    return bool(fitted) or (CORPUS in names and not (config.corpus_file or config.corpus_split))


def load_tables(
    config: ConfigDict,
    names: Collection[str],
    target: LoadedModel,
    vocab_size: int,
    rest: list[Example],
) -> dict[str, Any]:
    """The parameter trees of these names, for the ids below `vocab_size` that all models have.

    Raises:
      UserError: when a file or field of the config cannot be used.
    """
    counts = set(names) - set(RESERVED)
    fitted = _counts(config, target, vocab_size, rest) if counts else None
    trees: dict[str, Any] = dict.fromkeys(counts, fitted)
    if HEADS in names:
        trees[HEADS] = heads.load(heads_file(config), checkpoint_dtype(config))
    if CORPUS in names:
        trees[CORPUS] = _corpus(config, target, vocab_size, rest)
    return trees


def check_corpus(config: ConfigDict) -> None:
    """Refuses two places of earlier texts, and a split without a task.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    if config.corpus_split and (config.corpus_file or not config.task):
        why = "with config.corpus_file" if config.corpus_file else "without config.task"
        raise UserError(f"config.corpus_split is {config.corpus_split!r}; it must be empty {why}")


def output_texts(example: Example, target: LanguageModel) -> list[str]:
    """Texts of an example in the target's output format, with the prompt if decoder-only."""
    outputs = [example.output] if example.output else []
    return outputs if target.info.start_token is not None else [example.source, *outputs]


def _counts(
    config: ConfigDict, target: LoadedModel, vocab_size: int, rest: list[Example]
) -> dict[str, Any]:
    """Counts from ngram_table, or fitted on ngram_file or on examples that are not decoded."""
    if config.ngram_table:
        table = ngram.load(config.ngram_table, target.model.info.vocab_size)
        return ngram.narrow(table, vocab_size)
    if config.ngram_file:
        lines = read_lines("ngram_file", config.ngram_file)
    else:
        lines = [text for example in rest for text in output_texts(example, target.model)]
    if not lines:
        raise UserError(
            "config.ngram_file is empty and no example is left over to fit n-grams from; "
            "name a text file in the output language"
        )
    with progress(lines, desc="fit n-grams", unit="text", delay=UNNOTICED) as bar:
        sequences = written_ids(target.tokenizer, target.model, bar)
        return ngram.fit(sequences, vocab_size, start_token=target.model.info.pending_token)


def _corpus(
    config: ConfigDict, target: LoadedModel, vocab_size: int, rest: list[Example]
) -> dict[str, Any]:
    """The table of earlier texts, each followed by EOS."""
    corpus = Corpus(SharedVocabulary(target.model, vocab_size), config.corpus_tokens)
    eos = target.model.info.eos
    with progress(
        _earlier_texts(config, target.model, rest), desc="corpus", unit="text", delay=UNNOTICED
    ) as bar:
        sequences = written_ids(target.tokenizer, target.model, bar)
        corpus.add(ids if ids[-1:] and ids[-1] in eos else [*ids, *eos[:1]] for ids in sequences)
    if not len(corpus):
        raise UserError(
            f"{_describe_source(config)} to search; name a text file in the output language, or of"
            " a task config.corpus_split"
        )
    return corpus.table()


def _describe_source(config: ConfigDict) -> str:
    """Describes the source that has no earlier texts."""
    for field in ("corpus_file", "corpus_split"):
        if config[field]:
            return f"config.{field} {config[field]!r} holds no text"
    return "config.corpus_file is empty and no example is left over"


def _earlier_texts(config: ConfigDict, model: LanguageModel, rest: list[Example]) -> Iterator[str]:
    file = config.corpus_file
    if file and not (config.task and is_json(file)):
        yield from read_lines("corpus_file", file)
        return
    examples: Iterable[Example] = rest
    if file:
        examples = of_task.stream(config.task, Source(detect_kind(file), file))
    elif config.corpus_split:
        source = get_source(config) or get_task(config.task).source
        if source is not None:  # otherwise the stream refuses the task
            source = dataclasses.replace(source, split=config.corpus_split)
        examples = of_task.stream(config.task, source, config.corpus_tokens)
    for example in examples:
        if example.output:
            yield whole_text(config.prefix + example.source, example.output, model)


def whole_text(prompt: str, output: str, model: LanguageModel) -> str:
    """The text after a model's start token; with the prompt for a decoder-only model."""
    if model.info.start_token is not None:
        return output
    return prompt + ("" if prompt[-1:].isspace() else " ") + output
