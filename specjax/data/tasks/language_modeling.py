"""Continuations of texts."""

from __future__ import annotations

from specjax.contracts.registry import TASKS
from specjax.data.sources import Source
from specjax.data.task import Continuation


@TASKS.register("lm1b")
class LM1B(Continuation):
    """The rest of a sentence of news after its first 16 words."""

    source = Source("hub", "dvruette/lm1b")
    words = 16  # of about 25 in a sentence
    example = {"text": "the dog runs " * 16}


@TASKS.register("wikitext")
class WikiText(Continuation):
    """The rest of a paragraph of Wikipedia after its first 32 words."""

    source = Source("hub", "Salesforce/wikitext", subset="wikitext-103-raw-v1")
    words = 32
    example = {"text": "the dog runs " * 32}
