"""Prompts of one turn, given as they are by a local file: the sets that drafters are compared on.

Files of DeepSpec have `turns` alone, each a complete prompt.
"""

from __future__ import annotations

from specjax.contracts.registry import TASKS
from specjax.data import columns
from specjax.data.files import Row
from specjax.data.task import Task

FIELDS = ("prompt", "question", "problem")
"""Fields of a prompt in rows without `turns`."""


class Prompt(Task):
    """The first turn, or the text of a row, as it is; results by category, if rows have one."""

    source = None
    reads = f"turns, a list of texts, or {', '.join(FIELDS[:-1])} or {FIELDS[-1]}"
    metric = "none"
    group = "category"
    example = {"turns": ["What is 2 + 2? Put your final answer within \\boxed{}."]}

    def prompt(self, row: Row) -> str:
        turn = columns.first_turn(row)
        text = columns.text(row, *FIELDS) if turn is None else turn
        return text if text.strip() else ""


@TASKS.register("math500")
class Math500(Prompt):
    """A problem of MATH-500, as the file words it."""


@TASKS.register("aime25")
class AIME25(Prompt):
    """A problem of AIME 2025, as the file words it."""


@TASKS.register("mbpp")
class MBPP(Prompt):
    """A function of MBPP to write, as the file words it."""

    example = {"turns": ["Write a python function to add two numbers."]}


@TASKS.register("livecodebench")
class LiveCodeBench(Prompt):
    """A programming contest's problem of LiveCodeBench, as the file words it."""

    example = {"turns": ["Read two numbers and print their sum."]}


@TASKS.register("arena_hard")
class ArenaHard(Prompt):
    """A user's request of Arena-Hard, as the file words it."""

    example = {"turns": ["Write a limerick about Bern."]}
