"""Spec-Bench, questions of six kinds (Xia et al. 2024)."""

from __future__ import annotations

from specjax.core.registry import TASKS
from specjax.data import columns
from specjax.data.files import Row
from specjax.data.task import Task


@TASKS.register("spec_bench")
class SpecBench(Task):
    """The first turn of a conversation, as it is; results by category."""

    source = None
    reads = "turns, a list of texts"
    metric = "none"
    group = "category"
    example = {"turns": ["Tell me about Bern.", "And its bears?"], "category": "writing"}

    def prompt(self, row: Row) -> str:
        turn = columns.texts(row, "turns", least=1)[0]
        return turn if turn.strip() else ""
