"""Summarization."""

from __future__ import annotations

from specjax.contracts.registry import TASKS
from specjax.data import columns
from specjax.data.files import Row
from specjax.data.sources import Source
from specjax.data.task import Task, add_prefix


@TASKS.register("cnn_dailymail")
class CNNDailyMail(Task):
    """The highlights of a news article."""

    source = Source("hub", "abisee/cnn_dailymail", subset="3.0.0")
    reads = "article and highlights"
    metric = "rouge"
    example = {"article": "It rained all day.\nThe river rose.", "highlights": "It rained."}

    def prompt(self, row: Row) -> str:
        return add_prefix("summarize: ", columns.text(row, "article"))

    def reference(self, row: Row) -> str | None:
        return columns.optional_text(row, "highlights")


@TASKS.register("xsum")
class XSum(Task):
    """A summary of a BBC article in one sentence."""

    source = Source("hub", "EdinburghNLP/xsum")
    reads = "document and summary"
    metric = "rouge"
    example = {"document": "It rained all day.\nThe river rose.", "summary": "It rained."}

    def prompt(self, row: Row) -> str:
        return add_prefix("summarize: ", columns.text(row, "document"))

    def reference(self, row: Row) -> str | None:
        return columns.optional_text(row, "summary")
