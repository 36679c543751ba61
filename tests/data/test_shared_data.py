"""Every task with real text beside the repository reads it."""

from __future__ import annotations

import pytest
from shared import DATA

from specjax.contracts.registry import TASKS
from specjax.data.examples import examples
from specjax.data.sources import Source


def parallel(first: str, second: str) -> Source:
    return Source("text", str(DATA / first), reference_path=str(DATA / second))


def rows(path: str) -> Source:
    return Source("json", str(DATA / path))


NEWS_EN, NEWS_DE = "wmt_newstest/newstest2014.en.gz", "wmt_newstest/newstest2014.de.gz"
FLICKR = "multi30k/test_2016_flickr"
FILES = {
    "wmt14_deen": (parallel(NEWS_DE, NEWS_EN), 3003),
    "wmt14_ende": (parallel(NEWS_EN, NEWS_DE), 3003),
    "multi30k_deen": (parallel(f"{FLICKR}.de.gz", f"{FLICKR}.en.gz"), 1000),
    "multi30k_ende": (parallel(f"{FLICKR}.en.gz", f"{FLICKR}.de.gz"), 1000),
    "iwslt17_deen": (rows("iwslt2017/test.json.gz"), 8079),
    "iwslt17_ende": (rows("iwslt2017/test.json.gz"), 8079),
    "xsum": (rows("xsum/test_sample.jsonl.gz"), 1000),
    "cnn_dailymail": (rows("cnn_dailymail/train_sample.jsonl.gz"), 100),
    "gsm8k": (rows("gsm8k/test.jsonl.gz"), 1319),
    "gsm8k_qa": (rows("gsm8k/test.jsonl.gz"), 1319),
    "mmlu": (rows("mmlu/test.jsonl.gz"), 14042),
    "spec_bench": (rows("spec_bench/question.jsonl.gz"), 560),
    "alpaca": (rows("alpaca/alpaca_sample_2000.jsonl.gz"), 2000),
    "wikitext": (Source("text", str(DATA / "wikitext-2/test.txt.gz")), 1760),
}


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="needs the real text in ../shared")
@pytest.mark.parametrize("task", FILES)
def test_all_rows_are_read(task):
    source, count = FILES[task]
    found = examples(task, source)
    assert len(found) == count
    assert all(e.source.strip() for e in found)
    assert all(e.reference for e in found) or TASKS[task].cls.metric == "none"
