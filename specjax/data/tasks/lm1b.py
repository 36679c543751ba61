"""One Billion Word Benchmark, sentences of news (Chelba et al. 2014)."""

from __future__ import annotations

from specjax.core.registry import TASKS
from specjax.data.sources import Source
from specjax.data.task import Continuation


@TASKS.register("lm1b")
class LM1B(Continuation):
    """The rest of a sentence of news after its first 16 words."""

    source = Source("hub", "dvruette/lm1b")
    words = 16  # of about 25 in a sentence
    example = {"text": "the dog runs " * 16}
