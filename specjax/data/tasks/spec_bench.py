"""Spec-Bench and MT-Bench, messages to chat models (Xia et al. 2024, Zheng et al. 2023)."""

from __future__ import annotations

from specjax.core.registry import TASKS
from specjax.data import columns
from specjax.data.files import Row
from specjax.data.task import Task


class Conversation(Task):
    """A user's messages in their order, with results by category."""

    source = None
    reads = "turns, a list of texts"
    metric = "none"
    group = "category"
    example = {"turns": ["Tell me about Bern.", "And its bears?"], "category": "writing"}

    def prompt(self, row: Row) -> str:
        turn = columns.texts(row, "turns", least=1)[0]
        return turn if turn.strip() else ""


@TASKS.register("spec_bench")
class SpecBench(Conversation):
    """The first turn of a conversation, as it is; results by category."""


@TASKS.register("mt_bench")
class MTBench(Conversation):
    """All turns of a conversation, after the target's answers to earlier ones; by category."""

    def turns(self, row: Row) -> tuple[str, ...]:
        turns = tuple(columns.texts(row, "turns", least=1))
        return turns if all(turn.strip() for turn in turns) else ()
