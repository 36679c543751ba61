"""Claims about a real translation pair, against independently measured figures."""

from __future__ import annotations

import pytest
from shared import DATA, MODELS, PREFIX, needs_shared

import specjax
from specjax.acceptance import analytic_acceptance
from specjax.data.examples import examples
from specjax.data.sources import Source
from specjax.data.text import read_lines
from specjax.decoding.strategy import from_config
from specjax.training import ngram

pytestmark = [pytest.mark.slow, needs_shared]


@pytest.fixture(scope="module")
def pair():
    return specjax.load(MODELS / "t5-ende-target"), specjax.load(MODELS / "t5-ende-drafter")


def prompts(target, file: str, count: int) -> list[list[int]]:
    lines = read_lines("source_file", str(DATA / "multi30k" / file))[:count]
    return target.tokenizer([PREFIX + line for line in lines]).input_ids


@pytest.mark.parametrize(
    ("temperature", "expected", "tolerance"), [(0.0, 0.699, 0.005), (1.0, 0.687, 0.02)]
)
def test_analytic_acceptance_equals_the_independent_measurement(
    pair, temperature, expected, tolerance
):
    ids = prompts(pair[0], "val.en.gz", 100)
    alpha, tokens = analytic_acceptance(*pair, ids, temperature=temperature)
    assert abs(tokens - 1700) < 150
    assert abs(alpha - expected) < tolerance


LOSSLESS = {
    "neural": {"drafter": "neural", "length": 4},
    "confidence": {"drafter": "neural", "length": 6, "confidence": 0.4},
    "max_gram": {"drafter": "max_gram", "length": 5},  # copies, and pairs where there are none
}


@pytest.mark.parametrize("spec", LOSSLESS.values(), ids=LOSSLESS)
def test_lossless_strategies_give_the_targets_tokens_at_batch_1_4_and_16(pair, spec):
    target, drafter = pair
    ids = prompts(target, "test_2016_flickr.en.gz", 32)
    german = read_lines("reference_file", str(DATA / "multi30k" / "train.de.gz"))[:2000]
    table = ngram.fit(
        target.tokenizer(german).input_ids, target.model.info.vocab_size, start_token=0
    )
    expected = specjax.Generator(target, bucket=48)(ids, batch_size=1).tokens
    made = specjax.Generator(
        target,
        {"drafter": drafter},
        from_config("tested", spec),
        tables={"ngram": table},
        bucket=48,
    )
    for batch_size in (1, 4, 16):
        assert made(ids, batch_size=batch_size).tokens == expected


@pytest.fixture(scope="module")
def llamas():
    names = ("llama-gsm8k-target", "llama-gsm8k-drafter")
    return tuple(specjax.load(MODELS / name) for name in names)


def questions(target, count: int) -> list[list[int]]:
    found = examples("gsm8k_qa", Source("json", str(DATA / "gsm8k" / "test.jsonl.gz")), count)
    return target.tokenizer([example.source for example in found]).input_ids


@pytest.mark.parametrize(
    ("temperature", "expected", "counted", "tolerance"),
    [(0.0, 0.747, 2430, 0.005), (1.0, 0.680, 2399, 0.02)],
)
def test_analytic_acceptance_of_the_decoder_only_pair(
    llamas, temperature, expected, counted, tolerance
):
    ids = questions(llamas[0], 40)
    alpha, tokens = analytic_acceptance(*llamas, ids, temperature=temperature)
    assert abs(tokens - counted) < 150  # sampled texts end at random
    assert abs(alpha - expected) < tolerance


@pytest.mark.parametrize("spec", [LOSSLESS["neural"], {"drafter": "prompt_lookup", "length": 4}])
def test_decoder_only_strategies_give_the_targets_tokens_at_batch_1_and_8(llamas, spec):
    target, drafter = llamas
    ids = questions(target, 16)
    expected = specjax.Generator(target, bucket=64)(ids, batch_size=1).tokens
    strategy = from_config("tested", spec)
    made = specjax.Generator(target, {"drafter": drafter}, strategy, bucket=64)
    for batch_size in (1, 8):
        assert made(ids, batch_size=batch_size).tokens == expected
