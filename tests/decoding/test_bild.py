"""BiLD on scripted models: hand-written rounds for every branch; its limits against one model."""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, inputs, run, texts
from scripted import PrefixModel, TracedScript, prefix_params
from slow_cases import some_slow

import specjax
from specjax.decoding.loop import generate
from specjax.decoding.strategy import Strategy, from_config
from specjax.drafting.bild import Bild
from specjax.metrics.bild_counters import handovers, replaced_tokens
from specjax.metrics.traces import acceptance, collect_rounds
from specjax.runtime.errors import UserError
from specjax.verification.fitted import FittedReader
from specjax.verification.rollback import Rollback
from specjax.verification.speculative_sampling import SpeculativeSampling

EOS = 1
SCRIPT = (5, 6, 7, 8, 5, 6, 7, 8)
SCRIPTED = (("target", TracedScript()), ("drafter", TracedScript()))
LONGEST = 9
SURE, UNSURE, FLAT = 9.0, 0.1, 1.0
"""Peaks: probability 0.999, 0.11, and 0.23 (1.47 nats) among ten tokens."""

SMALL, LARGE = 2, 1
"""Who wrote a token."""


def scripts(target=SCRIPT, drafter=SCRIPT, target_peaks=(), drafter_peaks=()):
    """Parameters of the pair; it is sure of everything but at `peaks`."""
    return {
        name: {
            "script": jnp.array((*script, *(2,) * (32 - len(script)))),
            "peaks": jnp.array((*peaks, *(SURE,) * (32 - len(peaks)))),
        }
        for name, script, peaks in (
            ("target", target, target_peaks),
            ("drafter", drafter, drafter_peaks),
        )
    }


def change_script(**tokens: int) -> tuple[int, ...]:
    """SCRIPT with other tokens at positions, as `at2=9`."""
    places = {int(name[2:]): token for name, token in tokens.items()}
    return tuple(places.get(place, token) for place, token in enumerate(SCRIPT))


def decode_script(params, strategy: Strategy, limit: int = 8):
    made = decoder(SCRIPTED, strategy, LONGEST)
    params = {name: params[name] for name in made.inputs}
    return jax.device_get(generate(made, params, *inputs([[3]], limit), strategy.options()))


def rounds(generation) -> list[tuple[int, int, int, bool]]:
    """(drafted, accepted, committed, whether the target ran) of every round."""
    trace, count = generation.trace, int(generation.trace.rounds)
    fields = (trace.drafted, trace.accepted, trace.committed, trace.reviewed)
    return list(zip(*(np.asarray(f)[0, :count].tolist() for f in fields), strict=True))


def writers(generation) -> list[int]:
    begin, length = int(generation.begin[0]), int(generation.length[0])
    return generation.trace.written_by[0, begin:length].tolist()


def calls(generation) -> tuple[int, int]:
    """Calls of the small and of the large model."""
    found = generation.trace.calls
    return int(found["drafter"][0]), int(found["target"][0])


def bild(fallback: float, rollback: float, **how) -> Strategy:
    return specjax.strategy(drafter="bild", fallback=fallback, rollback=rollback, **how)


PAPER = bild(fallback=0.5, rollback=2.0, length=3)
CHECKED = bild(fallback=0.5, rollback=2.0, length=3, verify_eos=True)
OFFICIAL = bild(fallback=0.5, rollback=2.0, length=3, compat="official")
FULL = (3, 3, 4, True)

# strategy, scripts, rounds, tokens, calls (small, large)
CASES = {
    "full windows": (PAPER, scripts(), [FULL, FULL], SCRIPT, (6, 2)),
    "an empty window": (
        PAPER, scripts(drafter_peaks=(UNSURE,)),
        [(0, 0, 1, True), FULL, (3, 3, 3, False)], SCRIPT, (7, 2),
    ),
    "unsure in the middle of a window, the candidate is dropped": (
        PAPER, scripts(drafter=change_script(at2=9), drafter_peaks=(SURE, SURE, UNSURE)),
        [(2, 2, 3, True), FULL, (1, 1, 1, False)], SCRIPT, (7, 2),
    ),
    "always unsure": (
        PAPER, scripts(drafter_peaks=(UNSURE,) * 8), [(0, 0, 1, True)] * 8, SCRIPT, (8, 8),
    ),
    "rollback at the first position": (
        PAPER, scripts(drafter=change_script(at0=9)),
        [(3, 0, 1, True), FULL, (3, 3, 3, False)], SCRIPT, (9, 2),
    ),
    "rollback in the middle": (
        PAPER, scripts(drafter=change_script(at1=9)),
        [(3, 1, 2, True), FULL, (2, 2, 2, False)], SCRIPT, (8, 2),
    ),
    "rollback at the last position": (
        PAPER, scripts(drafter=change_script(at2=9)),
        [(3, 2, 3, True), FULL, (1, 1, 1, False)], SCRIPT, (7, 2),
    ),
    "the first of several violations": (
        PAPER, scripts(drafter=change_script(at1=9, at2=9)),
        [(3, 1, 2, True), (3, 0, 1, True), FULL, (1, 1, 1, False)], SCRIPT, (10, 3),
    ),
    "a sure EOS of the small model is not reviewed": (
        PAPER, scripts(drafter=(5, EOS)), [(2, 2, 2, False)], (5, EOS), (2, 0),
    ),
    "an EOS at the end of a full window is not reviewed either": (
        PAPER, scripts(drafter=(5, 6, EOS)), [(3, 3, 3, False)], (5, 6, EOS), (3, 0),
    ),
    "an unsure EOS of the small model is dropped": (
        PAPER, scripts(drafter=change_script(at1=EOS), drafter_peaks=(SURE, UNSURE)),
        [(1, 1, 2, True), FULL, (2, 2, 2, False)], SCRIPT, (7, 2),
    ),
    "verify_eos: a wrong EOS is replaced": (
        CHECKED, scripts(drafter=change_script(at1=EOS)),
        [(2, 1, 2, True), FULL, (2, 2, 2, True)], SCRIPT, (7, 3),
    ),
    "verify_eos: a right EOS ends the row, the large model's next token is dropped": (
        CHECKED, scripts(target=(5, EOS), drafter=(5, EOS)), [(2, 2, 2, True)], (5, EOS), (2, 1),
    ),
    "an EOS of the large model in place of a draft": (
        PAPER, scripts(target=(5, EOS)), [(3, 1, 2, True)], (5, EOS), (3, 1),
    ),
    "an EOS of the large model behind a window": (
        PAPER, scripts(target=change_script(at3=EOS)), [FULL], (*SCRIPT[:3], EOS), (3, 1),
    ),
    "official: the large model begins": (
        OFFICIAL, scripts(), [(0, 0, 1, True), FULL, (3, 3, 3, False)], SCRIPT, (6, 2),
    ),
    "official: one more token of the large model after a rollback": (
        OFFICIAL, scripts(drafter=change_script(at2=9)),
        [(0, 0, 1, True), (3, 1, 2, True), (0, 0, 1, True), FULL], SCRIPT, (6, 4),
    ),
    "official: a replacement that is EOS ends the row": (
        OFFICIAL, scripts(target=(5, 6, EOS)),
        [(0, 0, 1, True), (3, 1, 2, True)], (5, 6, EOS), (3, 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    "widths",
    [pytest.param((), id="full"), pytest.param((0, 1, 3), id="drafted", marks=pytest.mark.slow)],
)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_branch_has_its_rounds_tokens_and_calls(case, widths):
    strategy, pair, expected, tokens, counts = case
    out = decode_script(
        pair, dataclasses.replace(strategy, reader=FittedReader(widths) if widths else None)
    )
    assert rounds(out) == expected
    assert texts(out) == [list(tokens)]
    assert calls(out) == counts
    assert writers(out) == [
        writer
        for _, accepted, committed, _ in expected
        for writer in [SMALL] * accepted + [LARGE] * (committed - accepted)
    ]
    assert out.trace.width[0, : len(expected)].tolist() == [
        min(width for width in widths or (3,) if width >= drafted) * ran
        for drafted, _, _, ran in expected
    ]


@pytest.mark.parametrize("strategy", [PAPER, CHECKED], ids=["paper", "verify_eos"])
@pytest.mark.parametrize("limit", range(1, 9))
def test_the_length_limit_is_exact_and_the_small_model_may_reach_it(strategy, limit):
    out = decode_script(scripts(), strategy, limit)
    assert texts(out) == [list(SCRIPT[:limit])]
    left = limit % 4
    last = [(left, left, left, strategy is CHECKED)] if left else []
    assert rounds(out) == [FULL] * (limit // 4) + last


@pytest.mark.parametrize(
    ("agreeing", "rollback", "expected"),
    [
        (PAPER, 1.0, [(3, 2, 3, True)]),  # flat but agreed: only the second violation counts
        (OFFICIAL, 1.0, [(0, 0, 1, True), (3, 3, 4, True)]),  # the first is examined, all stand
        (PAPER, 1.6, [(3, 2, 3, True)]),  # flat and below the threshold
        (OFFICIAL, 1.6, [(0, 0, 1, True), (3, 2, 3, True)]),  # so the second is the first
    ],
)
def test_a_flat_law_that_agrees_excuses_one_position_or_all(agreeing, rollback, expected):
    begin = 1 if agreeing is OFFICIAL else 0
    peaks = (SURE,) * begin + (FLAT,)
    wrong = tuple(9 if place == begin + 2 else token for place, token in enumerate(SCRIPT))
    strategy = dataclasses.replace(agreeing, numbers=(("fallback", 0.5), ("rollback", rollback)))
    out = decode_script(scripts(drafter=wrong, target_peaks=peaks), strategy)
    assert rounds(out)[: len(expected)] == expected


def test_without_the_argmax_rule_a_token_is_dropped_for_itself():
    pair = scripts(target_peaks=(SURE, FLAT))
    strategy = bild(0.5, 1.0, length=3, equal_argmax=False)
    out = decode_script(pair, strategy)
    assert rounds(out)[0] == (3, 1, 2, True) and texts(out) == [list(SCRIPT)]
    assert replaced_tokens([(out, 1)]) == 0
    assert rounds(decode_script(pair, bild(0.5, 1.0, length=3)))[0] == FULL


def test_the_counters_are_those_of_the_rounds():
    # unsure at 0; window with a rollback at 2; window; unsure at once; the end.
    pair = scripts(drafter=change_script(at2=9), drafter_peaks=(UNSURE, *(SURE,) * 6, UNSURE))
    out = decode_script(pair, PAPER, limit=9)
    expected = [(0, 0, 1, True), (3, 1, 2, True), FULL, (0, 0, 1, True), (1, 1, 1, False)]
    assert rounds(out) == expected
    found = collect_rounds([(out, 1)])
    assert handovers(found, replaced_tokens([(out, 1)]), "target") == {
        "small_calls": 9,
        "large_calls": 4,
        "confidence_handovers": 2,
        "window_handovers": 2,
        "unreviewed_ends": 1,
        "rollbacks": 1,
        "replaced": 1,
        "dropped": 2,
        "fallback_percent": pytest.approx(100 * 4 / 9),
        "rollback_percent": pytest.approx(100 / 9),
        "fallback_per_small_percent": pytest.approx(100 * 4 / 9),
        "rollback_per_small_percent": pytest.approx(100 / 9),
        "dropped_per_small_percent": pytest.approx(100 * 2 / 9),
    }
    # Of 7 drafted tokens, 3 + 2 were tested: one dropped with the rejected, one never reviewed.
    tested = acceptance(found)
    assert (tested["tested"], tested["rate"]) == (5, pytest.approx(4 / 5))
    assert int(out.trace.tested[0].sum()) == 5


def test_a_strategy_without_small_model_has_no_ratio_to_it():
    out = decode_script(scripts(), Strategy())
    found = handovers(collect_rounds([(out, 1)]), 0, "target")
    assert found["fallback_percent"] == 100 and found["rollback_per_small_percent"] is None


V, LIMIT = 12, 14
MODEL = PrefixModel(V, eos=(EOS,))
PAIR = (("target", MODEL), ("drafter", MODEL))
WEIGHTS = {"target": prefix_params(V, seed=1), "drafter": prefix_params(V, seed=2)}
PROMPTS = [np.random.default_rng(row).integers(2, V, 1 + row % 5).tolist() for row in range(24)]
NUMBERS = {"fallback": 0.0, "rollback": 0.0}


def alone(name: str) -> list[list[int]]:
    """Greedy outputs of one model of the pair."""
    swapped = {"target": WEIGHTS[name]}
    return texts(run((("target", MODEL),), swapped, Strategy(), PROMPTS, LIMIT))


@pytest.fixture(scope="module")
def large() -> list[list[int]]:
    return alone("target")


@pytest.fixture(scope="module")
def small() -> list[list[int]]:
    return alone("drafter")


def test_never_falling_or_rolling_back_is_the_small_model_alone(small):
    out = run(PAIR, WEIGHTS, bild(0.0, math.inf, length=LIMIT), PROMPTS, LIMIT)
    assert texts(out) == small
    assert int(out.trace.calls["target"].sum()) == int(out.trace.runs["target"]) == 0


@pytest.mark.parametrize("fallback", [1.5, math.inf])
@pytest.mark.parametrize("compat", some_slow(["paper", "official"], "official"))
def test_always_falling_back_is_the_large_model_alone(fallback, compat, large):
    out = run(PAIR, WEIGHTS, bild(fallback, 3.0, length=3, compat=compat), PROMPTS, LIMIT)
    assert texts(out) == large
    assert int(out.trace.drafted.sum()) == 0


@pytest.mark.parametrize(
    ("distance", "window"),
    some_slow(
        [
            ("cross_entropy", 3),
            ("cross_entropy", 5),
            ("kl", 3),
            ("total_variation", 3),
            ("rank", 3),
        ],
        ("cross_entropy", 3),
        ("rank", 3),
    ),
)
@pytest.mark.parametrize("fallback", [0.0, 0.4, 0.8])
def test_rollback_at_zero_with_reviewed_ends_is_the_large_model(distance, window, fallback, large):
    strategy = bild(fallback, 0.0, length=window, distance=distance, verify_eos=True)
    out = run(PAIR, WEIGHTS, strategy, PROMPTS, LIMIT)
    assert texts(out) == large
    assert 0 < int(out.trace.accepted.sum()) < int(out.trace.drafted.sum())


def test_without_reviewed_ends_only_ends_differ_from_the_large_model(large):
    out = run(PAIR, WEIGHTS, bild(0.0, 0.0, length=3), PROMPTS, LIMIT)
    reviewed, rows = np.asarray(out.trace.reviewed), texts(out)
    assert rows != large
    for index, (row, own) in enumerate(zip(rows, large, strict=True)):
        ends = np.asarray(out.trace.committed)[index] * ~reviewed[index]
        kept = len(row) - int(ends.sum())
        assert row[:kept] == own[:kept]


def test_a_row_that_ends_without_review_leaves_the_others_as_they_are():
    """Every record of a row in a batch is the one that it has alone."""
    strategy, width = bild(0.4, 2.0, length=3), max(map(len, PROMPTS))
    prompts = [[*prompt, *[5] * (width - len(prompt))] for prompt in PROMPTS]
    together = jax.device_get(run(PAIR, WEIGHTS, strategy, prompts, LIMIT))
    ends = np.asarray(together.trace.committed > 0).sum(axis=1)
    reviewed = np.asarray(together.trace.reviewed)
    assert len(set(ends)) > 2 and 0 < (reviewed.sum(axis=1) < ends).sum() < len(prompts)
    fields = (
        "drafted",
        "accepted",
        "committed",
        "reviewed",
        "overlap",
        "stops",
        "tested",
        "written_by",
    )
    key = jax.random.key(0)
    made = decoder(PAIR, strategy, LIMIT)
    for row in range(8):
        prompt, length, _, limit = inputs([prompts[row]], LIMIT)
        keys = jax.random.fold_in(key, row)[None]
        own = generate(made, WEIGHTS, prompt, length, keys, limit, strategy.options())
        assert texts(own) == [texts(together)[row]]
        for field in fields:
            baseline, among = (getattr(g.trace, field) for g in (own, together))
            np.testing.assert_array_equal(baseline[0], among[row], err_msg=field)
        for name in ("target", "drafter"):
            assert own.trace.calls[name][0] == together.trace.calls[name][row]


def test_thresholds_are_traced():
    first = [bild(f, r, length=3) for f, r in ((0.0, math.inf), (0.4, 2.0), (math.inf, 0.0))]
    run(PAIR, WEIGHTS, first[0], PROMPTS, LIMIT)
    before = generate._cache_size()
    for strategy in first[1:]:
        run(PAIR, WEIGHTS, strategy, PROMPTS, LIMIT)
    assert generate._cache_size() == before


def oracle(level: float) -> Strategy:
    return specjax.strategy(drafter="neural", length=1, rule="oracle", engage=level)


def test_the_oracle_moves_from_the_small_to_the_large_model(small, large):
    outs = [run(PAIR, WEIGHTS, oracle(t), PROMPTS, LIMIT) for t in (0.0, 0.2, 1.5)]
    assert texts(outs[0]) == small and texts(outs[2]) == large
    for out, engaged in zip(outs, (0.0, None, 1.0), strict=True):
        made = jax.device_get(out)
        found = collect_rounds([(made, len(PROMPTS))])
        assert np.all(found.committed[found.ran] == 1)
        share = handovers(found, 0, "target")["rollbacks"] / found.tokens
        assert share == engaged or (engaged is None and 0 < share < 1)


def test_the_oracle_decides_by_the_targets_probability_of_the_small_models_token():
    level = 0.2
    out = jax.device_get(run(PAIR, WEIGHTS, oracle(level), PROMPTS[:4], LIMIT))
    for index, row in enumerate(texts(out)):
        for place, token in enumerate(row):
            prefix = (0, *row[:place])
            q, p = (
                MODEL.logits(WEIGHTS[name], PROMPTS[index], prefix)
                for name in ("drafter", "target")
            )
            distribution = np.exp(p - p.max()) / np.exp(p - p.max()).sum()
            kept = distribution[q.argmax()] >= level
            assert token == (q.argmax() if kept else p.argmax())
            assert out.trace.accepted[index, place] == kept


def test_rows_that_end_without_review_need_the_rule_of_bild():
    with pytest.raises(ValueError, match="drafter 'bild' needs its own, 'rollback'"):
        Strategy(Bild(3), SpeculativeSampling(), numbers=(("fallback", 0.5),))


def test_a_config_spells_all_of_it():
    spec = {
        "drafter": "bild", "model": "aligned", "fallback": 0.6, "rollback": "inf", "length": 5,
        "distance": "kl", "verify_eos": True, "temperature": 1.0, "top_p": 0.8,
        "reader": "fitted",
    }  # fmt: skip
    made = from_config("mine", spec)
    same = Strategy(
        Bild(5, "aligned", distance="kl", verify_eos=True),
        Rollback(distance="kl"),
        temperature=1.0,
        top_p=0.8,
        numbers=(("fallback", 0.6), ("rollback", math.inf)),
        reader=FittedReader((0, 1, 3, 5)),
    )
    assert made.target_widths == (0, 1, 3, 5)
    assert made == same and not made.lossless
    short = from_config("short", {"drafter": "bild", "fallback": 0, "rollback": 3})
    assert short == bild(0.0, 3.0) and short.drafter.spec.width == 10


MISTAKES = {
    "fallback is missing": ({"rollback": 1.0}, "fallback is missing"),
    "rollback is missing": ({"fallback": 0.5}, "rollback is missing"),
    "a negative threshold": (NUMBERS | {"rollback": -1.0}, "a number of at least 0, or 'inf'"),
    "no number": (NUMBERS | {"fallback": math.nan}, "fallback is nan"),
    "no window": (NUMBERS | {"length": 0}, "length is 0; it must be an integer of at least 1"),
    "no such distance": (NUMBERS | {"distance": "l2"}, "distance is 'l2'; it must be one of cross"),
    "no such code": (NUMBERS | {"compat": "mine"}, "one of paper, official"),
    "a word for a flag": (NUMBERS | {"verify_eos": "yes"}, "it must be True or False"),
    "another rule": (
        {"fallback": 0.5, "rule": "lossless"},
        "drafter 'bild' needs its own, 'rollback'",
    ),
    "official sampling": (NUMBERS | {"compat": "official", "temperature": 1.0}, "compat is"),
}


@pytest.mark.parametrize(("spec", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_refused_in_one_sentence(spec, message):
    with pytest.raises(UserError, match=message) as refusal:
        from_config("mine", {"drafter": "bild", **spec})
    assert "\n" not in str(refusal.value)


def test_the_decoder_makes_room_for_a_full_window():
    assert decoder(PAIR, PAPER, 8).buffer(5) == 1 + 8 + 3 + 1
