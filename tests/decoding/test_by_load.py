"""Draft length by load: one length for all rows of a round, zero included."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting import CALLS, Counting
from decodes import decoder, run, texts
from filled import begin_rows, decode_in_slots, decode_together
from parallel_heads import heads_on_target, random_heads
from scripted import (
    WIDTH,
    PrefixModel,
    ScriptModel,
    chi_square,
    count_outputs,
    prefix_params,
    sequence_distribution,
    trace_scripts,
)
from slow_cases import some_slow

from specjax.contracts.draft import HELD
from specjax.contracts.drafter import STOP
from specjax.decoding.state import first_context
from specjax.decoding.strategy import Strategy, strategy
from specjax.drafting import by_load
from specjax.drafting.adaptive_length import TIMES, Running, list_lengths
from specjax.runtime.errors import UserError
from specjax.verification.fitted import FittedReader

V, EOS = 5, 1
SOURCE = (3, 2, 4, 2)
MODEL = PrefixModel(V, eos=(EOS,))
MODELS = (("target", MODEL), ("drafter", MODEL))
TARGET = prefix_params(V, seed=1)
PARAMS = {
    "target": TARGET,
    "drafter": prefix_params(V, seed=2, scale=0.7),
    "heads": random_heads(3, WIDTH, seed=3),
}
PROMPTS = [[3, 2, 4, 2], [2, 2], [4, 3, 2], [3], [4, 4, 2, 3], [2, 4], [3, 3], [2, 3, 4, 4]]
LIMITS = [3 + 5 * n % 9 for n in range(8)]
COSTS = {"adapt": "load", "cost": 0.15, "overhead": 0.1, "acceptance": 0.4}
"""Of drafts that pay, or not, by a few tests."""
NEURAL = {"drafter": "neural", "length": 3}
DRAFTERS = {
    "neural": NEURAL,
    "unsure": {**NEURAL, "confidence": 0.4},
    "medusa": {"drafter": "medusa", "length": 3},
    "hydra": {"drafter": "hydra", "length": 2},
    "online": {**NEURAL, "online_rate": 0.5},
}


def parts(name: str):
    """Parameters of a drafter."""
    own = {"heads": heads_on_target(2, WIDTH, sequential=True)} if name == "hydra" else {}
    return PARAMS | own


def decode(strategy: Strategy, prompts, limit: int, seed: int = 0, params=PARAMS):
    return run(MODELS, params, strategy, prompts, limit, seed)


def rounds(out, name: str) -> np.ndarray:
    """A column of the trace [B, rounds]."""
    return np.asarray(out.trace.column(name))[:, : int(out.trace.rounds)]


@pytest.mark.parametrize("name", some_slow(DRAFTERS, "neural"))
def test_greedy_texts_are_the_targets_own_in_rounds_with_and_without_drafts(name):
    out = decode(strategy(**DRAFTERS[name], **COSTS), PROMPTS, 12, params=parts(name))
    assert texts(out) == texts(decode(Strategy(), PROMPTS, 12))
    held = rounds(out, STOP) == HELD
    going = rounds(out, "committed") > 0
    assert np.any(held & going) and np.any(~held & going)


@pytest.mark.slow
def test_greedy_texts_are_the_same_in_slots_that_are_refilled():
    made = strategy(**NEURAL, **COSTS)
    models, params = trace_scripts(MODELS, PARAMS)
    decoder_ = made.decoder(models, max(LIMITS))
    params = {name: params[name] for name in decoder_.inputs}
    given = decoder_, params, PROMPTS, LIMITS, made.options(), 4
    together, apart = decode_together(*given), decode_in_slots(*given, slots=3, together=2)
    assert texts(apart) == texts(together)


@pytest.mark.slow
@pytest.mark.parametrize("name", some_slow(DRAFTERS, "neural"))
@pytest.mark.parametrize("rule", ["block", "lossless"])
def test_sampling_keeps_the_targets_distribution(name, rule, rows):
    expected = sequence_distribution(MODEL, TARGET, SOURCE, (0,), 3, (1.0, 0, 1.0))
    made = strategy(**DRAFTERS[name], **COSTS, temperature=1.0, rule=rule)
    out = decode(made, [SOURCE] * rows, 3, seed=7, params=parts(name))
    assert chi_square(count_outputs(texts(out)), expected) > 1e-3


def test_the_drafter_does_not_run_in_rounds_of_length_zero():
    models = tuple((name, Counting(V, name=name)) for name in ("target", "drafter"))
    times = {"adapt": "load", "times": (1.0, 9.0, 9.0)}
    out = run(models, PARAMS, strategy(**NEURAL, **times), PROMPTS, 6)
    jax.block_until_ready(out)
    CALLS.clear()
    out = run(models, PARAMS, strategy(**NEURAL, **times), PROMPTS, 6)
    jax.block_until_ready(out)
    jax.effects_barrier()
    assert CALLS == {
        ("target", "start"): 1, ("drafter", "start"): 1, ("target", "extend"): 6
    }  # fmt: skip
    assert np.all(rounds(out, "width") == 0)
    assert int(out.trace.runs["drafter"]) == 0 and int(out.trace.runs["target"]) == 6


def state_of(fields, accepted, tested, limits):
    """Tests of rows, and their context."""
    made = strategy(**NEURAL, **fields)
    rows = begin_rows(PROMPTS[: len(limits)], limits, made.options(), len(limits), 4)
    context = first_context(
        decoder(MODELS, made, 9), rows.prompt, rows.length, rows.limit, rows.options
    )
    return Running(jnp.array(accepted), jnp.array(tested)), context


def choose(fields, accepted, tested, limits, missed: int) -> int:
    """The length as a plain computation has it."""
    active = np.array(limits) > 0
    accepted, tested = np.where(active, accepted, 0.0), np.where(active, tested, 0.0)
    speeds = []
    tests, prior = 8 + tested.sum(), 8 * fields["acceptance"]
    pooled = (prior + accepted.sum()) / tests
    bonus = by_load.OPTIMISM * np.sqrt(pooled * (1 - pooled) / tests)
    for length in list_lengths(3):
        tokens = 0.0
        for a, t, room in zip(accepted, tested, limits, strict=True):
            others = (prior + accepted.sum() - a) / (8 + tested.sum() - t)
            alpha = min((8 * others + a) / (8 + t) + bonus, by_load.CERTAIN)
            tokens += sum(alpha**k for k in range(min(length + 1, room)))
        time = 1 + (length > 0) * fields["overhead"] + length * fields["cost"]
        time += (length > 0) * missed * fields["catching_up"] / by_load.HORIZON
        speeds.append(tokens / time)
    return list_lengths(3)[int(np.argmax(speeds))]


@pytest.mark.slow
def test_the_length_is_that_of_the_most_tokens_for_its_time():
    draw, found = np.random.default_rng(0), []
    fields = {"adapt": "load", "overhead": 0.2, "cost": 0.2, "acceptance": 0.5, "catching_up": 0.8}
    for _ in range(40):
        limits = draw.integers(0, 5, 4).tolist()
        tested = draw.uniform(0, 20, 4).astype(np.float32)
        accepted = tested * draw.uniform(0, 1, 4).astype(np.float32) ** 0.7
        missed = int(draw.integers(0, 3))
        counts, context = state_of(fields, accepted, tested, limits)
        chosen = int(by_load.choose_length(counts, 3, context, jnp.int32(missed)))
        if any(limits):
            assert chosen == choose(fields, accepted, tested, limits, missed)
        found.append(chosen)
    assert set(found) == {0, 1, 3}


def test_measured_times_take_the_place_of_costs():
    fields = {"adapt": "load", "times": (1.0, 1.2, 1.3), "acceptance": 0.9}
    for times, expected in (((1.0, 1.2, 1.3), 3), ((1.0, 1.2, 9.0), 1), ((1.0, 2.5, 9.0), 0)):
        counts, context = state_of(fields | {"times": times}, [0.0], [0.0], [9])
        assert int(by_load.choose_length(counts, 3, context, jnp.int32(0))) == expected


@pytest.mark.slow
def test_a_drafter_that_is_always_wrong_is_given_up_and_tried_again():
    script = (5, 6, 7, 8) * 50
    models = ("target", ScriptModel(script)), ("drafter", ScriptModel((9,) * 200))
    fields = {"adapt": "load", "cost": 0.2, "overhead": 0.1, "catching_up": 0.0}
    out = run(models, {"target": {}, "drafter": {}}, strategy(**NEURAL, **fields), [[3]] * 2, 200)
    assert texts(out) == [list(script)] * 2
    drafted = rounds(out, "drafted")
    np.testing.assert_array_equal(drafted[0], drafted[1])
    given_up = np.flatnonzero(drafted[0] == 0)[0]
    later = drafted[0][given_up:]
    lost = np.sum(np.where(later > 0, fields["overhead"] + later * fields["cost"], 0.0))
    assert 0 < given_up < 8 and np.sum(later > 0) > 2 and lost < 0.03 * len(later)


def test_rows_draft_alike_and_the_target_reads_no_more():
    out = decode(strategy(**NEURAL, **COSTS), PROMPTS, 12)
    drafted = rounds(out, "drafted").max(axis=0)
    width = rounds(out, "width").max(axis=0)
    assert set(width) <= {0, 1, 3} and np.all(width >= drafted)
    assert np.all((width == 0) == (drafted == 0))


def test_lengths_are_chosen_with_the_widths_that_are_compiled():
    made = strategy(**NEURAL, adapt="load")
    assert made.reader == FittedReader((0, 1, 3)) and not made.drafter.spec.always
    assert strategy(**NEURAL, adapt="load", reader="fitted").reader == made.reader
    given = strategy(**NEURAL, adapt="load", times=[1, 2, 3])
    assert given.options().numbers[TIMES].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"times": (1.0, 2.0)},
            "times has 2 numbers; it must have 3, of rounds of 0, 1, 3",
        ),
        ({"times": (1.0, 2.0, 0.0)}, "times is .*; it must be a list of positive numbers"),
        ({"times": (1.0, 2.0, 3.0), "cost": 0.1}, "cost is 0.1; it must not be given beside times"),
        ({"adapt": "acceptance", "catching_up": 0.1}, "catching_up needs adapt to be 'load'"),
        ({"adapt": "fixed", "times": (1.0, 2.0, 3.0)}, "times needs adapt to be 'load'"),
        ({"drafter": "eagle"}, "adapt is 'load'; it must be one of .* for 'eagle', which needs"),
        ({"drafter": "early_exit", "exit": 1}, "for 'early_exit', which needs every round"),
        ({"widths": (2, 2), "length": None}, "adapt is given; it must not be, for drafts that are"),
    ],
)
def test_what_does_not_fit_is_refused(fields, sentence):
    given = {**NEURAL, "adapt": "load", **fields}
    given = {name: value for name, value in given.items() if value is not None}
    with pytest.raises(UserError, match=sentence):
        strategy(**given)
