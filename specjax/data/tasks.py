"""The tasks of the papers: where each is read, how it is asked, and how answers are scored.

A default source is a hub id whose files are Parquet or JSON, as `datasets` runs no scripts.
Every source can be replaced by one of another kind whose rows have the same fields.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator

from specjax.data import prompts, references
from specjax.data.columns import RowError
from specjax.data.files import Row
from specjax.data.prompts import Prompt
from specjax.data.sources import Rows, Source, rows
from specjax.data.text import Example, Reference
from specjax.errors import UserError


@dataclasses.dataclass(frozen=True)
class Task:
    """How rows become prompts and references."""

    name: str
    source: Source | None  # None: there is no public data set to name
    fields: str  # what a row must have, in words
    prompt: Prompt  # empty: the task cannot use the row
    reference: Callable[[Row], Reference | None]
    metric: str  # a name of `evaluation.quality.METRICS`
    answer: Callable[[Row], Reference | None] = references.nothing  # to learn, if not the reference
    group: str = ""  # field by which results are told apart, where a row has it


def examples(task: str, source: Rows | None = None, count: int = 0) -> list[Example]:
    """The first `count` usable examples of a task, or all of them when it is 0.

    Rows that the task cannot use, such as empty or short lines, are left out.

    Args:
      task: a name of `TASKS`.
      source: read instead of the task's own source.
      count: how many examples are wanted at most.

    Raises:
      UserError: when the task is unknown, its source cannot be read, a row lacks a field, or no
        row can be used.
    """
    found = list(stream(task, source, count))
    if not found:
        raise UserError(
            f"{_name(chosen_source(task, source))} has no row that task {task!r} can use"
        )
    return found


def stream(task: str, source: Rows | None = None, count: int = 0) -> Iterator[Example]:
    """The same one after another, read when they are asked for; none where no row can be used."""
    source = chosen_source(task, source)
    return itertools.islice(_usable(TASKS[task], source, count), count or None)


def chosen_source(task: str, source: Rows | None = None) -> Rows:
    """What a task is read from: `source`, or the task's own.

    Raises:
      UserError: when the task is unknown, or has no source of its own and none is given.
    """
    if task not in TASKS:
        raise UserError(f"task is {task!r}; it must be one of {', '.join(TASKS)}")
    chosen = TASKS[task]
    if source is None and chosen.source is None:
        raise UserError(
            f"task {task!r} has no source of its own; give a file whose rows have {chosen.fields}"
        )
    return chosen.source if source is None else source


def _usable(task: Task, source: Rows, count: int) -> Iterator[Example]:
    for number, row in enumerate(rows(source, count), start=1):
        try:
            prompt = task.prompt(row)
            if prompt:
                yield Example(prompt, task.reference(row), task.answer(row), row.get(task.group))
        except RowError as error:
            raise UserError(
                f"{_name(source)} row {number} has {error}; it has the fields "
                f"{', '.join(map(str, row))}, and task {task.name!r} reads {task.fields}"
            ) from None


def _name(source: Rows) -> str:
    return f"source {source}" if isinstance(source, Source) else "source"


def _translation(name: str, pair: str, source: Source) -> Task:
    first, second = pair[:2], pair[2:]
    return Task(
        name=name,
        source=source,
        fields=f"{first} and {second}, these two in translation, or source and reference",
        prompt=prompts.translate(first, second),
        reference=references.translation(second),
        metric="bleu",
    )


_WMT14 = Source("hub", "wmt/wmt14", subset="de-en")
_MULTI30K = Source("hub", "bentrevett/multi30k")
# The data set itself is a script, so this is the hub's conversion of it. A JSON file of
# translations or two text files serve as well.
_IWSLT17 = Source(
    "parquet",
    "hf://datasets/IWSLT/iwslt2017@refs/convert/parquet/iwslt2017-de-en/test/*.parquet",
)
_GSM8K = Source("hub", "openai/gsm8k", subset="main")

TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        _translation("wmt14_deen", "deen", _WMT14),
        _translation("wmt14_ende", "ende", _WMT14),
        _translation("iwslt17_deen", "deen", _IWSLT17),
        _translation("iwslt17_ende", "ende", _IWSLT17),
        _translation("multi30k_deen", "deen", _MULTI30K),
        _translation("multi30k_ende", "ende", _MULTI30K),
        Task(
            name="xsum",
            source=Source("hub", "EdinburghNLP/xsum"),
            fields="document and summary",
            prompt=prompts.summarize("document"),
            reference=references.field("summary"),
            metric="rouge",
        ),
        Task(
            name="cnn_dailymail",
            source=Source("hub", "abisee/cnn_dailymail", subset="3.0.0"),
            fields="article and highlights",
            prompt=prompts.summarize("article"),
            reference=references.field("highlights"),
            metric="rouge",
        ),
        Task(
            name="gsm8k",
            source=_GSM8K,
            fields="question and answer",
            prompt=prompts.reasoning,
            reference=references.final_number,
            metric="final_number",
            answer=references.field("answer"),
        ),
        Task(
            name="gsm8k_qa",
            source=_GSM8K,
            fields="question and answer",
            prompt=prompts.question,
            reference=references.final_number,
            metric="final_number",
            answer=references.field("answer"),
        ),
        Task(
            name="mmlu",
            source=Source("hub", "cais/mmlu", subset="all"),
            fields="question, choices and answer",
            prompt=prompts.multiple_choice,
            reference=references.letter,
            metric="choice",
        ),
        Task(
            name="triviaqa",
            source=Source(
                "hub", "mandarjoshi/trivia_qa", subset="rc.nocontext", split="validation"
            ),  # its test answers are secret
            fields="question and answer",
            prompt=prompts.question,
            reference=references.aliases,
            metric="exact_match",
        ),
        Task(
            name="alpaca",
            source=Source("hub", "tatsu-lab/alpaca", split="train"),  # it has no other split
            fields="instruction, and input and output if there are any",
            prompt=prompts.instruction,
            reference=references.field("output"),
            metric="none",
        ),
        Task(
            name="spec_bench",
            source=None,
            fields="turns, a list of texts",
            prompt=prompts.first_turn,
            reference=references.nothing,
            metric="none",
            group="category",
        ),
        Task(
            name="lm1b",
            source=Source("hub", "dvruette/lm1b"),
            fields="text",
            prompt=prompts.first_words(16),  # of about 25 in a sentence
            reference=references.nothing,
            metric="none",
            answer=references.words_after(16),
        ),
        Task(
            name="wikitext",
            source=Source("hub", "Salesforce/wikitext", subset="wikitext-103-raw-v1"),
            fields="text",
            prompt=prompts.first_words(32),
            reference=references.nothing,
            metric="none",
            answer=references.words_after(32),
        ),
    )
}
