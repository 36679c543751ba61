"""Alpaca, instructions (Taori et al. 2023)."""

from __future__ import annotations

from specjax.core.registry import TASKS
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
    reads = "instruction, and input and output if there are any"
    metric = "none"
    example = {"instruction": "Sort the letters.", "input": "b a", "output": "a b"}

    def prompt(self, row: Row) -> str:
        asked = columns.text(row, "instruction")
        given = columns.optional_text(row, "input")
        if not asked.strip():
            return ""
        if not given:
            return f"{_INSTRUCTION}. {_RESPONSE}\n\n### Instruction:\n{asked}\n\n### Response:"
        return (
            f"{_INSTRUCTION}, paired with an input that provides further context. {_RESPONSE}\n\n"
            f"### Instruction:\n{asked}\n\n### Input:\n{given}\n\n### Response:"
        )

    def reference(self, row: Row) -> str | None:
        return columns.optional_text(row, "output")
