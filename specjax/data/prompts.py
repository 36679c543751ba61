"""The complete prompt of a row; empty when a task cannot use the row."""

from __future__ import annotations

from collections.abc import Callable

from specjax.data import columns
from specjax.data.files import Row

Prompt = Callable[[Row], str]

_LANGUAGES = {"de": "German", "en": "English"}

_INSTRUCTION = "Below is an instruction that describes a task"
_RESPONSE = "Write a response that appropriately completes the request."


def translate(source: str, target: str) -> Prompt:
    """The prompt of T5 for a translation between two language codes."""
    start = f"translate {_LANGUAGES[source]} to {_LANGUAGES[target]}: "
    return lambda row: _after(start, columns.side(row, source, "source"))


def summarize(field: str) -> Prompt:
    """The prompt of T5 for a summary of the text in `field`."""
    return lambda row: _after("summarize: ", columns.text(row, field))


def first_words(count: int) -> Prompt:
    """The first words of a line to be continued; lines without so many are not used."""

    def prompt(row: Row) -> str:
        words = columns.text(row, "text").split()
        return " ".join(words[:count]) if len(words) >= count else ""

    return prompt


def question(row: Row) -> str:
    """A bare question for decoder-only models."""
    return f"Q: {asked}\nA:" if (asked := columns.text(row, "question")).strip() else ""


def reasoning(row: Row) -> str:
    """The zero-shot chain-of-thought prompt for a mathematical question."""
    asked = columns.text(row, "question")
    start = "Reason the math question below step by step. "
    return f"{start}Question: {asked}.\n Answer: " if asked.strip() else ""


def multiple_choice(row: Row) -> str:
    """The zero-shot chain-of-thought prompt for a question with four choices."""
    asked = columns.text(row, "question")
    choices = zip("ABCD", columns.texts(row, "choices", least=4), strict=True)
    offered = " ".join(f"({letter}) {choice}" for letter, choice in choices)
    end = "\n Answer: \n Let's think step by step. "
    return f"Question: {asked}\n{offered}{end}" if asked.strip() else ""


def instruction(row: Row) -> str:
    """The template that Alpaca models were trained with, with or without an input."""
    asked, given = columns.text(row, "instruction"), columns.optional_text(row, "input")
    if not asked.strip():
        return ""
    if not given:
        return f"{_INSTRUCTION}. {_RESPONSE}\n\n### Instruction:\n{asked}\n\n### Response:"
    return (
        f"{_INSTRUCTION}, paired with an input that provides further context. {_RESPONSE}\n\n"
        f"### Instruction:\n{asked}\n\n### Input:\n{given}\n\n### Response:"
    )


def first_turn(row: Row) -> str:
    """The first turn of a conversation, as it is."""
    turn = columns.texts(row, "turns", least=1)[0]
    return turn if turn.strip() else ""


def _after(start: str, text: str) -> str:
    return start + text if text.strip() else ""
