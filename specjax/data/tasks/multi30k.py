"""Multi30k, captions of pictures (Elliott et al. 2016)."""

from __future__ import annotations

from specjax.contracts.registry import TASKS
from specjax.data.sources import Source
from specjax.data.task import Translation

SOURCE = Source("hub", "bentrevett/multi30k")


@TASKS.register("multi30k_deen")
class GermanEnglish(Translation):
    """Captions of Multi30k, German to English."""

    source = SOURCE
    languages = ("de", "en")


@TASKS.register("multi30k_ende")
class EnglishGerman(Translation):
    """Captions of Multi30k, English to German."""

    source = SOURCE
    languages = ("en", "de")
