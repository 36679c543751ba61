"""Instructions and functions to complete."""

from __future__ import annotations

from specjax.contracts.registry import TASKS
from specjax.data import columns
from specjax.data.files import Row
from specjax.data.sources import Source
from specjax.data.task import Task

_INSTRUCTION = "Below is an instruction that describes a task"
_RESPONSE = "Write a response that appropriately completes the request."


@TASKS.register("alpaca")
class Alpaca(Task):
    """An instruction in the template that Alpaca models were trained with."""

    source = Source("hub", "tatsu-lab/alpaca", split="train")  # it has no other split
    reads = "turns, or instruction, and input and output if there are any"
    metric = "none"
    example = {"instruction": "Sort the letters.", "input": "b a", "output": "a b"}

    def prompt(self, row: Row) -> str:
        turn = columns.first_turn(row)
        if turn is not None:
            return turn
        request = columns.text(row, "instruction")
        given = columns.optional_text(row, "input")
        if not request.strip():
            return ""
        if not given:
            return f"{_INSTRUCTION}. {_RESPONSE}\n\n### Instruction:\n{request}\n\n### Response:"
        return (
            f"{_INSTRUCTION}, paired with an input that provides further context. {_RESPONSE}\n\n"
            f"### Instruction:\n{request}\n\n### Input:\n{given}\n\n### Response:"
        )

    def reference(self, row: Row) -> str | None:
        return columns.optional_text(row, "output")


_REQUEST = "Complete this Python function. Answer with the whole function in one code block."


class Function(Task):
    """A function to complete, whose reference is its canonical solution."""

    source = Source("hub", "openai/openai_humaneval", split="test")
    reads = "turns, or prompt, and canonical_solution if there is one"
    metric = "none"
    example = {"prompt": "def two():\n", "canonical_solution": "    return 2\n"}

    def reference(self, row: Row) -> str | None:
        return columns.optional_text(row, "canonical_solution")


@TASKS.register("humaneval")
class HumanEval(Function):
    """The beginning of a function, as a base model continues it; a first turn as it is."""

    def prompt(self, row: Row) -> str:
        turn = columns.first_turn(row)
        return columns.text(row, "prompt") if turn is None else turn


@TASKS.register("humaneval_chat")
class HumanEvalChat(Function):
    """A request to complete a function, for chat models; a first turn as it is."""

    def prompt(self, row: Row) -> str:
        turn = columns.first_turn(row)
        if turn is not None:
            return turn
        given = columns.text(row, "prompt")
        return f"{_REQUEST}\n\n```python\n{given.strip()}\n```" if given.strip() else ""
