"""Strategies as a config spells them: adaptive draft lengths and verification widths."""

from __future__ import annotations

import pytest

from specjax.decoding.strategy import Strategy, from_config
from specjax.drafting import adaptive_length as running
from specjax.drafting.adaptive_length import BREAK_EVEN
from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.neural import Neural
from specjax.runtime.errors import UserError
from specjax.selection.strategies import make_switched
from specjax.verification.block import BlockVerification
from specjax.verification.calm import Calm
from specjax.verification.fitted import FittedReader
from specjax.verification.speculative_sampling import SpeculativeSampling
from specjax.verification.whole import WholeReader

NEURAL = {"drafter": "neural", "length": 6}


def test_an_adaptive_drafter_has_its_numbers_traced():
    spec = {**NEURAL, "adapt": "break_even", "cost": 0.1, "overhead": 0.3}
    made = from_config("mine", spec)
    assert made.drafter == Neural(6, adapt=BREAK_EVEN)
    numbers = made.options().numbers
    assert float(numbers["cost"]) == pytest.approx(0.1)
    assert float(numbers["verification"]) == running.DEFAULTS["verification"]
    assert made.reader == WholeReader()


@pytest.mark.parametrize(
    "spec, rule",
    [
        ({**NEURAL, "temperature": 1.0}, BlockVerification()),
        (NEURAL, SpeculativeSampling()),
        ({**NEURAL, "temperature": 1.0, "rule": "lossless"}, SpeculativeSampling()),
        ({"drafter": "none", "temperature": 1.0}, SpeculativeSampling()),
        (
            {"drafter": "neural", "widths": (2, 2), "temperature": 1.0},
            SpeculativeSampling(),
        ),
    ],
)
def test_drawn_chains_are_judged_as_a_whole_unless_a_rule_is_named(spec, rule):
    assert from_config("mine", spec).rule == rule


def test_arms_share_the_rule_of_one_that_drafts():
    arms = {
        "alone": from_config("alone", {"drafter": "none", "temperature": 1.0}),
        "drafted": from_config("drafted", {**NEURAL, "temperature": 1.0}),
    }
    assert make_switched(arms, (0.0, 0.1)).rule == BlockVerification()


@pytest.mark.parametrize(
    "spec, widths",
    [
        (NEURAL, (1, 3, 6)),
        ({**NEURAL, "confidence": 0.5}, (0, 1, 3, 6)),
        ({**NEURAL, "entropy": 0.5}, (0, 1, 3, 6)),
        ({"drafter": "prompt_lookup", "length": 7}, (0, 1, 3, 7)),
        ({"drafter": "neural", "length": 1}, (1,)),
    ],
)
def test_a_fitting_verification_feeds_powers_of_two(spec, widths):
    assert from_config("mine", {**spec, "reader": "fitted"}).reader == FittedReader(widths)


@pytest.mark.parametrize(
    "change, sentence",
    [
        (
            {"adapt": "sometimes"},
            "adapt is 'sometimes'; it must be one of fixed, acceptance",
        ),
        ({"cost": 0.1}, "strategies.mine: cost needs adapt to be 'acceptance' or"),
        ({"adapt": "acceptance", "cost": -1.0}, "cost is -1.0; it must be a number of at least 0"),
        ({"adapt": "acceptance", "acceptance": 1.0}, "acceptance is 1.0; it must be a number in"),
        ({"entropy": -0.1}, "entropy is -0.1; it must be a number of at least 0"),
        ({"reader": "all"}, "reader is 'all'; it must be one of calm, fitted"),
    ],
)
def test_what_does_not_fit_is_refused(change, sentence):
    with pytest.raises(UserError, match=sentence):
        from_config("mine", {**NEURAL, **change})


def test_an_early_exit_and_calm_are_spelled_by_their_fields():
    spec = {"drafter": "early_exit", "exit": 2, "length": 3}
    assert from_config("mine", spec) == Strategy(EarlyExit(3, exit=2))
    spec = {"reader": "calm", "threshold": 0.8, "tau": 4.0, "measure": "softmax"}
    made = from_config("mine", spec)
    numbers = (("threshold", 0.8), ("tau", 4.0))
    assert made == Strategy(reader=Calm(measure="softmax"), numbers=numbers)
    assert float(made.options().numbers["tau"]) == 4.0


@pytest.mark.parametrize(
    "spec, sentence",
    [
        ({"drafter": "early_exit", "length": 3}, "mine.exit is missing"),
        ({"drafter": "early_exit", "length": 3, "exit": 0}, "mine.exit is 0; it must be"),
        (
            {"drafter": "early_exit", "length": 3, "exit": 1, "model": "drafter"},
            "mine.model does not apply to drafter 'early_exit'",
        ),
        ({"reader": "calm"}, "mine.threshold is missing; it must be a number in"),
        ({"reader": "calm", "threshold": 2.0}, "mine.threshold is 2.0; it must be"),
        (
            {"reader": "calm", "threshold": 0.9, "length": 3},
            "mine.length does not apply to drafter 'none'",
        ),
        ({"reader": "calm", "threshold": 0.9, "measure": "luck"}, "mine.measure is 'luck'; it"),
        (
            {"reader": "calm", "threshold": 0.9, "drafter": "early_exit", "length": 3, "exit": 1},
            "mine: reader is 'calm', which decodes without drafts; drafter must be 'none'",
        ),
    ],
)
def test_fields_of_no_use_to_exits_are_refused(spec, sentence):
    with pytest.raises(UserError, match=sentence):
        from_config("mine", spec)
