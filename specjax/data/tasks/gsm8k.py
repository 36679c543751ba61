"""GSM8K, mathematics of primary school (Cobbe et al. 2021)."""

from __future__ import annotations

from specjax.core.registry import TASKS
from specjax.data import columns
from specjax.data.files import Row
from specjax.data.sources import Source
from specjax.data.task import Task, question


class WordProblem(Task):
    """A problem in words, whose solution ends in `#### number`."""

    source = Source("hub", "openai/gsm8k", subset="main")
    reads = "question and answer"
    metric = "final_number"
    example = {"question": "What is 2 + 2?", "answer": "2 + 2 = <<2+2=4>>4\n#### 4"}

    def reference(self, row: Row) -> str | None:
        answer = columns.optional_text(row, "answer")
        return answer and answer.rpartition("####")[2].strip()

    def answer(self, row: Row) -> str | None:
        return columns.optional_text(row, "answer")


@TASKS.register("gsm8k")
class Reasoning(WordProblem):
    """A mathematical question, asked to be solved step by step (Cascade Speculative Drafting)."""

    def prompt(self, row: Row) -> str:
        asked = columns.text(row, "question")
        start = "Reason the math question below step by step. "
        return f"{start}Question: {asked}.\n Answer: " if asked.strip() else ""


@TASKS.register("gsm8k_qa")
class Question(WordProblem):
    """A mathematical question and answer, for decoder-only models."""

    def prompt(self, row: Row) -> str:
        return question(row)
