"""TriviaQA, short questions (Joshi et al. 2017)."""

from __future__ import annotations

from specjax.core.registry import TASKS
from specjax.data import columns
from specjax.data.files import Row
from specjax.data.sources import Source
from specjax.data.task import Task, question
from specjax.data.text import Reference


@TASKS.register("triviaqa")
class TriviaQA(Task):
    """A question with a short answer that may be spelled in several ways."""

    source = Source(  # its test answers are secret
        "hub", "mandarjoshi/trivia_qa", subset="rc.nocontext", split="validation"
    )
    reads = "question and answer"
    metric = "exact_match"
    example = {
        "question": "What is the capital of Switzerland?",
        "answer": {"value": "Bern", "aliases": ["Berne", "Bern"]},
    }

    def prompt(self, row: Row) -> str:
        return question(row)

    def reference(self, row: Row) -> Reference | None:
        """All accepted forms of the answer, the preferred one first."""
        answer = row.get("answer")
        if not isinstance(answer, dict):
            return columns.optional_text(row, "answer")
        forms = (answer.get("value"), *answer.get("aliases", ()))
        return tuple(dict.fromkeys(form for form in forms if form)) or None
