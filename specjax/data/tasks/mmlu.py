"""MMLU, questions of many subjects with four choices (Hendrycks et al. 2021)."""

from __future__ import annotations

from specjax.core.registry import TASKS
from specjax.data import columns
from specjax.data.columns import RowError
from specjax.data.files import Row
from specjax.data.sources import Source
from specjax.data.task import Task

LETTERS = "ABCD"


@TASKS.register("mmlu")
class MMLU(Task):
    """A question with four choices, asked to be thought through step by step."""

    source = Source("hub", "cais/mmlu", subset="all")
    reads = "question, choices and answer"
    metric = "choice"
    example = {"question": "What is blue?", "choices": ["ash", "grass", "sky", "sun"], "answer": 2}

    def prompt(self, row: Row) -> str:
        asked = columns.text(row, "question")
        choices = zip(LETTERS, columns.texts(row, "choices", least=4), strict=True)
        offered = " ".join(f"({letter}) {choice}" for letter, choice in choices)
        end = "\n Answer: \n Let's think step by step. "
        return f"Question: {asked}\n{offered}{end}" if asked.strip() else ""

    def reference(self, row: Row) -> str | None:
        """The letter of the right choice, which rows give as such or by its index from 0."""
        answer = row.get("answer")
        if answer is not None and answer in range(4):
            return LETTERS[answer]
        if answer is None or answer in tuple(LETTERS):
            return answer
        raise RowError(f"answer {answer!r}, neither 0 to 3 nor A to D")
