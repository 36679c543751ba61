"""Where a row ends changes nothing before: a short output is the beginning of a longer one."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, inputs, texts
from exits import MODELS as LAYERED
from exits import PARAMS as LAYERED_PARAMS
from parallel_heads import random_heads
from scripted import WIDTH, PrefixModel, prefix_params

from specjax.decoding.loop import advance_jitted, begin_jitted, finish, generate
from specjax.decoding.strategy import Strategy, speculative, strategy
from specjax.drafting.adaptive_length import ACCEPTANCE, BREAK_EVEN
from specjax.drafting.copying import MaxGram, PromptLookup
from specjax.drafting.matrix import Cascade
from specjax.drafting.medusa import Medusa
from specjax.drafting.neural import Neural
from specjax.drafting.ngram import Bigram
from specjax.drafting.uniform import Uniform
from specjax.selection.strategies import make_switched
from specjax.training.ngram import fit
from specjax.verification.fitted import FittedReader
from specjax.verification.lenient import Lenient

V, EOS, LONGEST = 9, 1, 16
MODEL = PrefixModel(V, eos=(EOS,))
SCRIPTED = tuple((name, MODEL) for name in ("target", "drafter", "small"))
TARGET = prefix_params(V, seed=1)


def like(seed: int, noise: float):
    """Weights near the target's: drafts stand as often as they do not."""
    other = prefix_params(V, seed)
    return {name: value + noise * other[name] for name, value in TARGET.items()}


PARAMS = {
    "target": TARGET,
    "drafter": like(2, 0.3),
    "small": like(3, 0.6),
    "ngram": fit([[2, 3, 4, 1], [3, 3, 2, 5, 6], [4, 2, 0, 1]], V, start_token=0),
    "heads": random_heads(3, WIDTH, seed=3),
}
PROMPTS = [np.random.default_rng(row).integers(2, V, 1 + row % 4).tolist() for row in range(12)]
MATRIX = ((1, 3, 1), (0, 2, 2), (0, 0, 0))

STRATEGIES = {
    "alone": Strategy(),
    "neural": speculative(4),
    "confidence": Strategy(Neural(5, confidence="confidence"), numbers=(("confidence", 0.5),)),
    "acceptance": Strategy(Neural(5, adapt=ACCEPTANCE)),
    "break_even": Strategy(Neural(5, adapt=BREAK_EVEN), reader=FittedReader((1, 3, 5))),
    "lenient": Strategy(Neural(4), Lenient(), numbers=(("lenience", 0.3),)),
    "tree": Strategy(Neural(widths=(2, 1, 2))),
    "likeliest": Strategy(Neural(widths=(2, 2, 1), nodes=6)),
    "blockwise": Strategy(Medusa(3)),
    "bigram": Strategy(Bigram(4)),
    "prompt_lookup": Strategy(PromptLookup(4)),
    "max_gram": Strategy(MaxGram(4)),
    "uniform": Strategy(Uniform(3)),
    "cascade": Strategy(
        Cascade(("drafter", "small", "bigram"), MATRIX, "lenience"), numbers=(("lenience", 0.5),)
    ),
    "bild": strategy(drafter="bild", fallback=0.4, rollback=2.0, length=5, verify_eos=True),
    "switched": make_switched(
        {"neural": speculative(5), "copy": Strategy(PromptLookup(4)), "alone": Strategy()},
        costs=(0.2, 0.0, 0.0),
    ),
}
"""One of every kind; those that draw tokens do so at temperature 0.9 too."""
QUICK = ("alone", "neural", "bild")
"""The others are slow tests."""
CASES = [
    pytest.param(temperature, name, marks=[] if temperature and name in QUICK else pytest.mark.slow)
    for name in STRATEGIES
    for temperature in (0.0, 0.9)
]


def outputs(models, params, used: Strategy, limits) -> dict[int, list[list[int]]]:
    """Outputs by limit; the program is the same for all."""
    made = decoder(models, used, LONGEST)
    kept = {name: params[name] for name in made.inputs}
    *given, _ = inputs(PROMPTS, LONGEST)
    return {
        limit: texts(
            generate(made, kept, *given, jnp.full(len(PROMPTS), limit, jnp.int32), options)
        )
        for options in [used.options()]
        for limit in limits
    }


def check_prefixes(found: dict[int, list[list[int]]]) -> None:
    longest = found[LONGEST]
    assert max(map(len, longest)) == LONGEST
    for limit, rows in found.items():
        assert rows == [row[:limit] for row in longest]


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "name"), CASES)
def test_a_shorter_output_is_the_beginning_of_a_longer_one(name, temperature):
    used = dataclasses.replace(STRATEGIES[name], temperature=temperature)
    check_prefixes(outputs(SCRIPTED, PARAMS, used, (1, 2, 3, 7, 8, 10, LONGEST)))


@pytest.mark.slow
def test_the_oracle_and_early_exits_do_not_depend_on_the_limit_either():
    oracle = strategy(drafter="neural", length=1, rule="oracle", engage=0.2)
    check_prefixes(outputs(SCRIPTED, PARAMS, oracle, (1, 5, LONGEST)))
    models, params = (("target", LAYERED["t5"]),), {"target": LAYERED_PARAMS["t5"]}
    early = strategy(drafter="early_exit", exit=1, length=4, temperature=1.0, rule="lossless")
    calm = strategy(reader="calm", threshold=0.9, measure="softmax")
    for used in (early, calm):
        check_prefixes(outputs(models, params, used, (3, 6, LONGEST)))


@pytest.mark.slow
def test_what_bild_does_not_review_may_depend_on_the_limit_and_nothing_else():
    used = strategy(drafter="bild", fallback=0.3, rollback=1.0, length=5, temperature=0.9)
    made = decoder(SCRIPTED, used, LONGEST)
    kept = {name: PARAMS[name] for name in made.inputs}
    given = inputs(PROMPTS, LONGEST)
    longest = texts(generate(made, kept, *given, used.options()))
    short = generate(made, kept, *given[:3], given[3] - 7, used.options())
    rows = texts(short)
    assert rows != [row[: LONGEST - 7] for row in longest]
    ends = np.sum(np.asarray(short.trace.committed) * ~np.asarray(short.trace.reviewed), axis=1)
    for row, end, whole in zip(rows, ends.tolist(), longest, strict=True):
        sure = len(row) - end
        assert row[:sure] == whole[:sure]


def test_what_exceeds_the_limit_is_in_no_record():
    """The last draft of a row is judged, and counted, up to the row's end."""
    used = Strategy(Neural(4), temperature=0.9)
    made = decoder(SCRIPTED, used, LONGEST)
    kept = {name: PARAMS[name] for name in made.inputs}
    given = inputs(PROMPTS, 6)
    trace = generate(made, kept, *given, used.options()).trace
    drafted, accepted, committed = (
        np.asarray(getattr(trace, name)) for name in ("drafted", "accepted", "committed")
    )
    left = 6 - (np.cumsum(committed, axis=1) - committed)
    assert np.all(drafted <= left * (committed > 0)) and np.any(drafted == left)
    assert np.all(accepted <= np.minimum(drafted, committed))
    assert np.all(committed <= accepted + 1)
    tested = np.minimum(accepted + 1, drafted)
    np.testing.assert_array_equal(trace.tested, tested)
    assert np.all(np.asarray(trace.overlap) <= tested + 1e-5)


@pytest.mark.slow
def test_streams_do_not_depend_on_the_limit():
    strategy = speculative(4, temperature=0.9, rule="lossless")
    found = {}
    for longest in (8, LONGEST):
        made = decoder(SCRIPTED, strategy, longest)
        kept = {name: PARAMS[name] for name in made.inputs}
        state = begin_jitted(made, kept, *inputs(PROMPTS, longest), strategy.options())
        while bool(state.context.active.any()):
            state = advance_jitted(made, kept, state, 1)
        found[longest] = texts(finish(state))
    check_prefixes(found)
