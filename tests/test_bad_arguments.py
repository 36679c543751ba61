"""What Python callers get wrong: refused in one sentence, before anything is allocated."""

from __future__ import annotations

import math

import numpy as np
import pytest
from ml_collections import ConfigDict

import specjax
from specjax import (
    Generator,
    LoadedModel,
    UserError,
    autoregressive,
    load,
    make_mesh,
    speculative,
    strategy,
)
from specjax.decoding.strategy import Strategy, from_config
from specjax.drafting.matrix import Cascade
from specjax.experiments.config.defaults import decode_config
from specjax.experiments.config.validation import check_config
from specjax.models.t5 import T5, T5Config

VOCABULARY = 50
MODEL = LoadedModel(
    T5(
        T5Config(
            vocab_size=VOCABULARY, d_model=4, d_kv=2, d_ff=4, num_heads=2, num_layers=1,
            num_decoder_layers=2,
        )
    ),
    {},
)  # fmt: skip
HUGE = 2**40


def generator(used=None, drafters=None, **fields) -> Generator:
    return Generator(MODEL, {"drafter": MODEL} if drafters is None else drafters, used, **fields)


GENERATOR = generator()

INTEGERS = {
    **dict.fromkeys(("max_new_tokens", "max_prompt_tokens", "batch_size"), (1, 2**20)),
    "bucket": (0, 2**20),
    "seed": (0, 2**32 - 1),
}
"""Least and most."""


def call_with(name: str, value):
    """What a caller does to use a number."""
    if name in ("batch_size", "seed"):
        return GENERATOR([[5, 6]], **{name: value})
    return generator(**{name: value})


@pytest.mark.parametrize("value", [-2, 2.5, "3", True, math.nan, HUGE, 10**12])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_refused_by_the_sentences_of_configs(name, value):
    config = decode_config(target="a", strategies={"alone": {"drafter": "none"}})
    config = ConfigDict({**config.to_dict(), name: value}, convert_dict=True)
    with pytest.raises(UserError) as there:
        check_config(config)
    with pytest.raises(UserError) as here:
        call_with(name, value)
    assert f"config.{here.value}" == str(there.value)


def test_integers_too_large_to_be_printed_are_refused():
    with pytest.raises(UserError, match="bucket is an integer of 16610 bits; it must be an int"):
        generator(bucket=10**5000)
    with pytest.raises(UserError, match="prompt 0 has the token an integer of 16610 bits"):
        GENERATOR([[10**5000]])


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_have_a_least_and_a_most(name):
    least, most = INTEGERS[name]
    with pytest.raises(UserError, match=f"{name} is {least - 1}; it must be an integer of at"):
        call_with(name, least - 1)
    with pytest.raises(UserError, match=f"an integer of at least {least} and at most {most:,}"):
        call_with(name, most + 1)


PROMPTS = {
    "outside of the vocabulary": (
        [[5, VOCABULARY]],
        "prompt 0 has the token 50; token ids must be",
    ),
    "negative": ([[5], [-1, 3]], "prompt 1 has the token -1; .* integers from 0 to 49"),
    "fractional": ([[5, 2.5]], "prompt 0 has the token 5.0"),
    "huge": ([[HUGE]], f"has the token {HUGE}"),
    "too large for any array": ([[5, 10**30]], "prompt 0 has the token 10"),
    "flags": ([[True, False]], "prompt 0 has the token True"),
    "letters": ([["a", "b"]], "prompt 0 has the token 'a'"),
    "pixels for a model of texts": (
        [np.zeros((3, 8, 8))],
        r"prompt 0 is an array of shape \(3, 8, 8\); it must be a text or a list",
    ),
    "a flat list of ids": ([5, 6, 7], "prompt 0 is 5; it must be a text or a list of token ids"),
    "rows in rows": ([[[5], [6]]], r"prompt 0 is \[\[5\], \[6\]\]; it must be"),
    "ragged rows in rows": ([[[5], [6, 7]]], "prompt 0 is .* it must be a text or a list"),
    "nothing": (None, "prompts is None; it must be a list of texts or token ids"),
    "a number": (7, "prompts is 7; it must be a list"),
    "nothing in a list": ([None], "prompt 0 is None"),
    "bytes": ([b"text"], "prompt 0 is b'text'"),
    "texts without a tokenizer": (["text"], "the target has no tokenizer"),
    "an empty row": ([[]], "prompt 0 has 0 tokens"),
    "no rows": ([], "prompts is empty"),
    "an array of fractions": (np.ones((2, 3)), "prompt 0 has the token 1.0"),
}


@pytest.mark.parametrize(("prompts", "sentence"), PROMPTS.values(), ids=PROMPTS)
def test_prompts_are_refused(prompts, sentence):
    with pytest.raises(UserError, match=sentence) as refusal:
        GENERATOR(prompts)
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 200


def test_ids_of_any_integer_type_are_taken():
    rows = [[3, 4], np.array([5, 6]), (7, np.int64(8)), np.array([9], np.uint8)]
    assert GENERATOR.encode(rows) == [[3, 4], [5, 6], [7, 8], [9]]
    assert GENERATOR.encode(np.array([[3, 4], [5, 6]])) == [[3, 4], [5, 6]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prompt": [5, -1]}, "prompt 0 has the token -1"),
        ({"prompt": [5], "seed": -1}, "seed is -1; it must be an integer of at least 0"),
        ({"prompt": [5], "rounds": 0}, "rounds is 0; it must be an integer of at least 1"),
    ],
)
def test_a_stream_refuses_at_once(arguments, sentence):
    with pytest.raises(UserError, match=sentence):
        GENERATOR.stream(**arguments)


BILD = {"drafter": "bild", "fallback": 0.5, "rollback": 1.0}
STRATEGIES = {
    "length": (lambda value: speculative(length=value), [0, -1, 2.5, "4", None, True]),
    "exit": (lambda value: strategy(**SPECS["exit"], exit=value), [0, -1, 1.5, "1", None]),
    "temperature": (
        lambda value: autoregressive(temperature=value),
        [-1, math.inf, math.nan, "hot", None],
    ),
    "top_k": (lambda value: autoregressive(top_k=value), [-1, 2.5, "3"]),
    "top_p": (lambda value: autoregressive(top_p=value), [0, 1.5, math.nan, "all"]),
    "min_p": (lambda value: autoregressive(min_p=value), [-0.1, 1.1, math.nan, "all", None]),
    "typical_p": (lambda value: autoregressive(typical_p=value), [0, 1.1, math.nan, "all"]),
    "epsilon_cutoff": (lambda value: autoregressive(epsilon_cutoff=value), [-0.1, 1, "all"]),
    "eta_cutoff": (lambda value: autoregressive(eta_cutoff=value), [-0.1, 1, math.nan]),
    "threshold": (
        lambda value: strategy(reader="calm", threshold=value),
        [-0.1, 1.1, math.nan, "low"],
    ),
    "measure": (lambda value: strategy(**SPECS["measure"], measure=value), ["entropy", 3]),
    "fallback": (lambda value: strategy(**BILD | {"fallback": value}), [-1, math.nan, "never"]),
    "rollback": (lambda value: strategy(**BILD | {"rollback": value}), [-1, math.nan]),
    "distance": (lambda value: strategy(**BILD, distance=value), ["l2", 0]),
    "verify_eos": (lambda value: strategy(**BILD, verify_eos=value), ["yes", 1]),
    "engage": (lambda value: strategy(**SPECS["engage"], engage=value), [-1, "often"]),
}
SPECS = {
    "length": {"drafter": "neural"},
    "exit": {"drafter": "early_exit", "length": 4},
    "threshold": {"reader": "calm"},
    "measure": {"reader": "calm", "threshold": 0.9},
    **dict.fromkeys(("fallback", "rollback", "distance", "verify_eos"), BILD),
    "engage": {"drafter": "neural", "length": 1, "rule": "oracle"},
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in STRATEGIES for value in STRATEGIES[name][1]]
)
def test_strategies_are_refused_by_the_sentences_of_configs(name, value):
    with pytest.raises(UserError) as here:
        STRATEGIES[name][0](value)
    with pytest.raises(UserError) as there:
        from_config("mine", {**SPECS.get(name, {}), name: value})
    assert f"strategies.mine.{here.value}" == str(there.value)


@pytest.mark.parametrize("length", [1001, 10**12, HUGE])
def test_drafts_that_no_target_could_review_are_refused(length):
    with pytest.raises(UserError, match=f"length is {length}; .* at most 1,000"):
        speculative(length=length)
    with pytest.raises(ValueError, match="integers from 0 to 1000"):
        Cascade(("drafter",), ((length,),))


PARTS = {
    "a strategy as text": (lambda: generator("speculative"), "strategy is 'speculative'; it must"),
    "a strategy as its spelling": (lambda: generator({"drafter": "none"}), "strategy is {"),
    "a target as text": (lambda: Generator("t5-small"), "target is 't5-small'; it must be what"),
    "a drafter as text": (lambda: generator(drafters={"a": "b"}), r"drafters\['a'\] is 'b'"),
    "drafters without names": (lambda: generator(drafters=[MODEL]), "drafters is .* dictionary"),
    "a drafter called target": (
        lambda: generator(drafters={"target": MODEL}),
        "names of their own",
    ),
    "tables without names": (lambda: generator(tables=[1]), "tables is"),
    "no model": (lambda: load(None), "name is None; it must be a model directory or hub id"),
    "an empty name": (lambda: load(""), "name is ''"),
    "a number for a model": (lambda: load(7), "name is 7"),
    "no such dtype": (
        lambda: load("m", dtype="foo"),
        "dtype is 'foo'; it must be one of float32, bfloat16, float16",
    ),
    "no dtype": (lambda: load("m", dtype=None), "dtype is None"),
    "a dtype of integers": (lambda: load("m", dtype=np.int8), "dtype is <class 'numpy.int8'>"),
    "a mesh as a number": (lambda: load("m", mesh=8), "mesh is 8; it must be what specjax.make_m"),
    "a mesh of a number": (lambda: make_mesh(8), "mesh is 8; it must be sizes by axis"),
}


@pytest.mark.parametrize(("make", "sentence"), PARTS.values(), ids=PARTS)
def test_parts_of_a_wrong_type_are_refused(make, sentence):
    with pytest.raises(UserError, match=sentence) as refusal:
        make()
    assert "\n" not in str(refusal.value)


def test_names_and_numpy_numbers_are_taken():
    assert specjax.checks.parse_dtype("bfloat16") is specjax.checks.DTYPES["bfloat16"]
    assert specjax.checks.parse_dtype(np.float32) is specjax.checks.DTYPES["float32"]
    made = Strategy(temperature=np.float32(0.5), top_k=np.int64(3))
    assert made == Strategy(temperature=0.5, top_k=3)
