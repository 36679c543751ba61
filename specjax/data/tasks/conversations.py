"""Conversations, whose later messages follow the target's own answers."""

from __future__ import annotations

from specjax.contracts.registry import TASKS
from specjax.data import columns
from specjax.data.columns import TURNS, RowError
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
        turn = columns.texts(row, TURNS, least=1)[0]
        return turn if turn.strip() else ""

    def turns(self, row: Row) -> tuple[str, ...]:
        turns = tuple(columns.texts(row, TURNS, least=1))
        return turns if all(turn.strip() for turn in turns) else ()


@TASKS.register("mt_bench")
class MTBench(Conversation):
    """All turns of a conversation, after the target's answers to earlier ones; by category."""


MT_BENCH = (
    "writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities",
)  # fmt: skip
"""The categories of MT-Bench, which are one category of Spec-Bench."""


@TASKS.register("spec_bench")
class SpecBench(Conversation):
    """All turns of Spec-Bench, likewise; by its six categories, as MT-Bench's count as one."""

    example = {"turns": ["Who wrote Heidi?"], "category": "qa"}

    def group_name(self, row: Row) -> str | None:
        category = super().group_name(row)
        return "mt_bench" if category in MT_BENCH else category


PLACEHOLDER = "FULL BENCHMARK DATA SHOULD BE FETCHED"
"""How a turn of SPEED-Bench begins until its text is fetched from another data set."""


@TASKS.register("speed_bench")
class SpeedBench(Conversation):
    """All turns of SPEED-Bench, likewise, from a file with complete prompts; by category."""

    reads = "turns, a list of texts, and category"

    def turns(self, row: Row) -> tuple[str, ...]:
        if any(turn.startswith(PLACEHOLDER) for turn in columns.texts(row, TURNS, least=1)):
            raise RowError(
                f"a placeholder in field {TURNS!r}, where text of another data set must be"
            )
        return super().turns(row)

    def group_name(self, row: Row) -> str:
        return columns.text(row, self.group)
