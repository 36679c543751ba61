"""The loop on scripted models: hand-written expected tokens and counts."""

from __future__ import annotations

import numpy as np
import pytest
from decodes import run, texts
from scripted import ScriptModel
from slow_cases import some_slow

from specjax.decoding.strategy import Strategy
from specjax.drafting.adaptive_length import ACCEPTANCE, BREAK_EVEN
from specjax.drafting.neural import Neural
from specjax.drafting.nothing import Nothing
from specjax.verification.fitted import FittedReader

TARGET = (5, 6, 7, 8, 5, 6, 7, 8)
PARAMS = {"target": {}, "drafter": {}}


def decode(
    target: ScriptModel, drafter: ScriptModel, strategy: Strategy, limit: int, rows: int = 1
):
    models = (("target", target), ("drafter", drafter))
    return run(models, PARAMS, strategy, [[3]] * rows, limit)


def rounds(generation, field: str) -> list[int]:
    count = int(generation.trace.rounds)
    return np.asarray(getattr(generation.trace, field))[0, :count].tolist()


def test_autoregressive_emits_the_script_one_token_per_round():
    out = decode(ScriptModel(TARGET), ScriptModel(TARGET), Strategy(Nothing()), 5)
    assert texts(out) == [[5, 6, 7, 8, 5]]
    assert rounds(out, "committed") == [1] * 5
    assert out.trace.calls["target"].tolist() == [5]


def test_a_fully_accepted_draft_gives_k_plus_one_tokens():
    out = decode(ScriptModel(TARGET), ScriptModel(TARGET), Strategy(Neural(3)), 8)
    assert texts(out) == [list(TARGET)]
    assert rounds(out, "committed") == [4, 4]
    assert rounds(out, "accepted") == [3, 3]
    assert out.trace.written_by[0, 1:9].tolist() == [2, 2, 2, 1, 2, 2, 2, 1]
    assert out.trace.calls["drafter"].tolist() == [6]


@pytest.mark.parametrize("wrong", range(4))
def test_the_first_wrong_draft_is_replaced_by_the_targets_token(wrong):
    script = list(TARGET)
    script[wrong] = 9
    drafter = ScriptModel(tuple(script))
    out = decode(ScriptModel(TARGET), drafter, Strategy(Neural(3)), 8)
    assert texts(out) == [list(TARGET)]
    assert rounds(out, "accepted")[0] == min(wrong, 3)
    assert rounds(out, "committed")[0] == min(wrong, 3) + 1


@pytest.mark.parametrize("place", range(6))
def test_output_ends_with_the_first_eos(place):
    script = (*TARGET[:place], 1, *TARGET[place:])
    model = ScriptModel(script)
    out = decode(model, model, Strategy(Neural(3)), 8)
    assert texts(out) == [list(script[: place + 1])]


def test_an_eos_proposed_by_the_drafter_alone_is_corrected():
    out = decode(ScriptModel(TARGET), ScriptModel((5, 1, 7)), Strategy(Neural(3)), 8)
    assert texts(out) == [list(TARGET)]
    assert rounds(out, "drafted")[0] == 2  # nothing is drafted after an EOS


@pytest.mark.parametrize("limit", some_slow(range(1, 8), 1, 6))
def test_the_length_limit_is_exact(limit):
    model = ScriptModel(TARGET)
    out = decode(model, model, Strategy(Neural(3)), limit)
    assert texts(out) == [list(TARGET[:limit])]


def test_no_tokens_are_drafted_beyond_the_budget():
    model = ScriptModel(TARGET)
    out = decode(model, model, Strategy(Neural(5)), 3)
    assert rounds(out, "drafted") == [3]
    assert out.trace.calls["drafter"].tolist() == [3]


def test_confidence_stops_before_the_first_uncertain_token():
    drafter = ScriptModel(TARGET, peaks=(9.0, 9.0, 0.1))
    strategy = Strategy(Neural(5, confidence="confidence"), numbers=(("confidence", 0.5),))
    out = decode(ScriptModel(TARGET), drafter, strategy, 8)
    assert texts(out) == [list(TARGET)]
    assert rounds(out, "drafted")[0] == 2
    assert out.trace.stops[0].tolist()[2] == 1


def test_entropy_stops_before_the_first_uncertain_token():
    drafter = ScriptModel(TARGET, peaks=(9.0, 9.0, 0.1))
    strategy = Strategy(Neural(5, entropy="entropy"), numbers=(("entropy", 1.0),))
    out = decode(ScriptModel(TARGET), drafter, strategy, 8)
    assert texts(out) == [list(TARGET)]
    assert rounds(out, "drafted")[0] == 2
    assert out.trace.stops[0].tolist()[2] == 1


def test_a_drafter_without_confidence_leaves_the_target_alone():
    drafter = ScriptModel(TARGET, peak=0.0)
    strategy = Strategy(Neural(5, confidence="confidence"), numbers=(("confidence", 0.9),))
    out = decode(ScriptModel(TARGET), drafter, strategy, 4)
    assert texts(out) == [list(TARGET[:4])]
    assert rounds(out, "drafted") == [0, 0, 0, 0]


def test_the_running_acceptance_decides_the_draft_length():
    # Every draft stands or none does: from the length for acceptance 0.7 it goes to an end.
    numbers = (("cost", 0.2), ("acceptance", 0.7))
    strategy = Strategy(Neural(6, adapt=ACCEPTANCE), numbers=numbers)
    right, script = ScriptModel(TARGET * 8), ScriptModel(TARGET * 8)
    drafted = rounds(decode(right, script, strategy, 60), "drafted")
    assert drafted[:-1] == sorted(drafted[:-1]) and drafted[0] == 3 and max(drafted) == 6
    wrong = decode(right, ScriptModel((9,) * 64), strategy, 60)
    assert rounds(wrong, "drafted")[0] == 3 and rounds(wrong, "drafted")[-2] == 1
    assert texts(wrong) == [list((TARGET * 8)[:60])]


def test_a_draft_ends_where_its_chance_no_longer_pays_for_another_token():
    # At acceptance 0.5 and c = 0.2 a round gives at best 1.5 / 1.2 tokens per target step, so a
    # draft goes on while its chance is at least 1.25 * 0.2 / 0.5 = 0.5.
    numbers = (("cost", 0.2), ("acceptance", 0.5))
    strategy = Strategy(Neural(5, adapt=BREAK_EVEN), numbers=numbers)
    drafter = ScriptModel(TARGET, peaks=(9.0, 9.0, 0.1))
    out = decode(ScriptModel(TARGET), drafter, strategy, 8)
    assert texts(out) == [list(TARGET)]
    assert rounds(out, "drafted")[0] == 3  # the doubtful token is drafted, none after it
    assert out.trace.stops[0].tolist()[2] == 1


@pytest.mark.parametrize(
    "limit", [pytest.param(1, marks=pytest.mark.slow), 4, pytest.param(8, marks=pytest.mark.slow)]
)
def test_the_target_looks_no_further_than_the_longest_draft(limit):
    script = (*TARGET[:2], 9, *TARGET[3:])
    strategy = Strategy(Neural(4), reader=FittedReader((0, 1, 4)))
    whole = Strategy(Neural(4))
    out = decode(ScriptModel(TARGET), ScriptModel(script), strategy, limit)
    assert texts(out) == texts(decode(ScriptModel(TARGET), ScriptModel(script), whole, limit))
    drafted = np.array(rounds(out, "drafted"))
    assert rounds(out, "width") == np.select([drafted < 1, drafted < 2], [0, 1], 4).tolist()


def test_widths_must_rise_to_the_drafters():
    with pytest.raises(ValueError, match="must be ascending up to the drafter's, 4"):
        Strategy(Neural(4), reader=FittedReader((1, 2)))


@pytest.mark.slow
def test_a_row_with_no_budget_decodes_nothing():
    model = ScriptModel(TARGET)
    out = decode(model, model, Strategy(Neural(3)), 1)
    assert texts(out) == [[5]]
    assert int(out.trace.rounds) == 1
