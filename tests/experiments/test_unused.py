"""Fields of a decode config that no strategy reads are named, once, and are no mistake."""

from __future__ import annotations

import pytest
from bad_inputs import BASES
from command import command

from specjax.experiments.config.defaults import AUTOREGRESSIVE, decode_config, neural_spec
from specjax.experiments.decode.checks import unused_fields
from specjax.experiments.decode.strategies import load_strategies

BIGRAM = {"drafter": "bigram", "length": 2}
CORPUS = {"drafter": "suffix", "length": 2, "corpus": True}
HEADS = {"drafter": "medusa", "length": 2}

CASES = {
    "nothing": ({}, {"b": BIGRAM}, []),
    "counts": ({"ngram_file": "a.txt"}, {}, ["config.ngram_file"]),
    "counts that are read": ({"ngram_file": "a.txt"}, {"b": BIGRAM}, []),
    "two kinds of counts": (
        {"ngram_file": "a.txt", "ngram_table": "b"},
        {"b": BIGRAM},
        ["config.ngram_file"],
    ),
    "earlier texts": ({"corpus_file": "a.txt"}, {"b": BIGRAM}, ["config.corpus_file"]),
    "earlier texts that are read": ({"corpus_file": "a.txt"}, {"c": CORPUS}, []),
    "a split": ({"corpus_split": "train", "task": "xsum"}, {}, ["config.corpus_split"]),
    "heads": ({"heads": "a"}, {"b": BIGRAM}, ["config.heads"]),
    "heads that are read": ({"heads": "a"}, {"h": HEADS}, []),
    "a drafter": ({"drafter": "d"}, {}, ["config.drafter"]),
    "a drafter that drafts": ({"drafter": "d"}, {"n": neural_spec("drafter", 2)}, []),
    "one of two drafters": (
        {"drafter": "d", "drafters": {"small": "s"}},
        {"n": neural_spec("small", 2)},
        ["config.drafter"],
    ),
    "another of two": (
        {"drafter": "d", "drafters": {"small": "s"}},
        {"n": neural_spec("drafter", 2)},
        ["config.drafters.small"],
    ),
}


@pytest.mark.parametrize(("fields", "strategies", "unused"), CASES.values(), ids=CASES)
def test_what_no_strategy_reads_is_named(fields, strategies, unused):
    named = {"autoregressive": AUTOREGRESSIVE, **strategies}
    config = decode_config(target="t", strategies=named, **fields)
    assert unused_fields(config, load_strategies(config)) == unused


def test_a_plan_says_it_once(pair):
    flags = [flag.replace("{pair}", str(pair)) for flag in BASES["decode"]]
    done = command(*flags, "--dry_run", "--config.only=max_gram", "--config.heads=here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("no strategy reads config.heads, config.drafter\n") == 1
