"""IWSLT17, talks (Cettolo et al. 2017)."""

from __future__ import annotations

from specjax.contracts.registry import TASKS
from specjax.data.sources import Source
from specjax.data.task import Translation

# The data set itself is a script, so this is the hub's conversion of it. A JSON file of
# translations or two text files serve as well.
SOURCE = Source(
    "parquet",
    "hf://datasets/IWSLT/iwslt2017@refs/convert/parquet/iwslt2017-de-en/test/*.parquet",
)


@TASKS.register("iwslt17_deen")
class GermanEnglish(Translation):
    """Talks of IWSLT17, German to English."""

    source = SOURCE
    languages = ("de", "en")


@TASKS.register("iwslt17_ende")
class EnglishGerman(Translation):
    """Talks of IWSLT17, English to German."""

    source = SOURCE
    languages = ("en", "de")
