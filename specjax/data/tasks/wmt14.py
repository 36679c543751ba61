"""WMT14, news (Bojar et al. 2014)."""

from __future__ import annotations

from specjax.contracts.registry import TASKS
from specjax.data.sources import Source
from specjax.data.task import Translation

SOURCE = Source("hub", "wmt/wmt14", subset="de-en")


@TASKS.register("wmt14_deen")
class GermanEnglish(Translation):
    """News of WMT14, German to English."""

    source = SOURCE
    languages = ("de", "en")


@TASKS.register("wmt14_ende")
class EnglishGerman(Translation):
    """News of WMT14, English to German."""

    source = SOURCE
    languages = ("en", "de")
