"""WikiText-103, articles of Wikipedia (Merity et al. 2017)."""

from __future__ import annotations

from specjax.core.registry import TASKS
from specjax.data.sources import Source
from specjax.data.task import Continuation


@TASKS.register("wikitext")
class WikiText(Continuation):
    """The rest of a paragraph of Wikipedia after its first 32 words."""

    source = Source("hub", "Salesforce/wikitext", subset="wikitext-103-raw-v1")
    words = 32
    example = {"text": "the dog runs " * 32}
