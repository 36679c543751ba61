"""HumanEval, Python functions to complete (Chen et al. 2021)."""

from __future__ import annotations

from specjax.core.registry import TASKS
from specjax.data import columns
from specjax.data.files import Row
from specjax.data.sources import Source
from specjax.data.task import Task

_REQUEST = "Complete this Python function. Answer with the whole function in one code block."


class Function(Task):
    """A function to complete, whose reference is its canonical solution."""

    source = Source("hub", "openai/openai_humaneval", split="test")
    reads = "prompt, and canonical_solution if there is one"
    metric = "none"
    example = {"prompt": "def two():\n", "canonical_solution": "    return 2\n"}

    def reference(self, row: Row) -> str | None:
        return columns.optional_text(row, "canonical_solution")


@TASKS.register("humaneval")
class HumanEval(Function):
    """The beginning of a function, as a base model continues it."""

    def prompt(self, row: Row) -> str:
        return columns.text(row, "prompt")


@TASKS.register("humaneval_chat")
class HumanEvalChat(Function):
    """A request to complete a function, for chat models."""

    def prompt(self, row: Row) -> str:
        given = columns.text(row, "prompt")
        return f"{_REQUEST}\n\n```python\n{given.strip()}\n```" if given.strip() else ""
