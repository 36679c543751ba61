"""Questions with one answer."""

from __future__ import annotations

from specjax.contracts.registry import TASKS
from specjax.data import columns
from specjax.data.columns import RowError
from specjax.data.files import Row
from specjax.data.sources import Source
from specjax.data.task import Task, question
from specjax.data.text import Reference


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
    """A mathematical question to be solved step by step (Cascade Speculative Drafting)."""

    reads = "turns, or question and answer"

    def prompt(self, row: Row) -> str:
        turn = columns.first_turn(row)
        if turn is not None:
            return turn
        problem = columns.text(row, "question")
        start = "Reason the math question below step by step. "
        return f"{start}Question: {problem}.\n Answer: " if problem.strip() else ""


@TASKS.register("gsm8k_qa")
class Question(WordProblem):
    """A mathematical question and answer, for decoder-only models."""

    def prompt(self, row: Row) -> str:
        return question(row)


LETTERS = "ABCD"


@TASKS.register("mmlu")
class MMLU(Task):
    """A question with four choices, to be answered step by step."""

    source = Source("hub", "cais/mmlu", subset="all")
    reads = "question, choices and answer"
    metric = "choice"
    example = {"question": "What is blue?", "choices": ["ash", "grass", "sky", "sun"], "answer": 2}

    def prompt(self, row: Row) -> str:
        problem = columns.text(row, "question")
        choices = zip(LETTERS, columns.texts(row, "choices", least=4), strict=True)
        offered = " ".join(f"({letter}) {choice}" for letter, choice in choices)
        end = "\n Answer: \n Let's think step by step. "
        return f"Question: {problem}\n{offered}{end}" if problem.strip() else ""

    def reference(self, row: Row) -> str | None:
        """The letter of the right choice, from a letter or an index from 0."""
        answer = row.get("answer")
        if answer is not None and answer in range(4):
            return LETTERS[answer]
        if answer is None or answer in tuple(LETTERS):
            return answer
        raise RowError(f"answer {answer!r}, neither 0 to 3 nor A to D")


@TASKS.register("triviaqa")
class TriviaQA(Task):
    """A question with a short answer that has several accepted forms."""

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
