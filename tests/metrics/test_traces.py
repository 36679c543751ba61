"""Figures from traces: by hand on made-up rounds, and on decodes of models of known acceptance."""

from __future__ import annotations

import numpy as np
import pytest
from decodes import decoder, run
from scipy.stats import binom
from scripted import PrefixModel, prefix_params

from specjax.decoding.strategy import Strategy
from specjax.decoding.summary import summarize
from specjax.drafting.neural import Neural
from specjax.metrics.text import rounds_of_text
from specjax.metrics.traces import Rounds, acceptance, collect_rounds, round_figures, wilson

# Two rows, K = 2: rounds (drafted, accepted) of (2, 2), (2, 0), (1, 1) and of (2, 1).
MADE = Rounds(
    begin=np.array([1, 1]),
    width=np.array([[2, 2, 2], [2, 0, 0]]),
    drafted=np.array([[2, 2, 1], [2, 0, 0]]),
    accepted=np.array([[2, 0, 1], [1, 0, 0]]),
    committed=np.array([[3, 1, 2], [2, 0, 0]]),
    reviewed=np.array([[3, 1, 2], [2, 0, 0]]) > 0,
    overlap=np.array([[1.8, 0.3, 0.6], [1.0, 0.0, 0.0]]),
    calls={},
    runs={},
    turns=3,
    stops={"length": 4},
)


def test_only_positions_up_to_the_first_rejection_are_tested():
    found = acceptance(MADE)
    assert found["tested"] == 6 and found["rate"] == pytest.approx(4 / 6)
    assert found["analytic"] == pytest.approx(3.7 / 6)
    counts = [(e["position"], e["tested"], e["accepted"]) for e in found["by_position"]]
    assert counts == [(1, 4, 3), (2, 2, 1)]


def test_overlap_along_the_text_is_that_of_the_positions_drafted_there():
    parts = {part["from"]: part for part in acceptance(MADE)["along_text"]}
    # Position 0 of both rows, 1 of both; 3 after three tokens, 4 after four.
    assert {at: part["positions"] for at, part in parts.items()} == {0: 2, 1: 2, 3: 1, 4: 1}
    assert parts[0]["overlap"] == pytest.approx((0.9 + 0.5) / 2)
    assert parts[3]["overlap"] == pytest.approx(0.3) and parts[4]["to"] == 5


def test_tokens_per_round_count_only_rounds_that_a_row_had():
    assert round_figures(MADE) == {
        "count": 4,
        "tokens_per_round": {"1": 1, "2": 2, "3": 1},
        "stop_reasons": {"length": 4},
    }


@pytest.mark.parametrize("rate", [0.02, 0.5, 0.9])
def test_wilson_intervals_hold_the_rate_in_95_percent_of_experiments(rate):
    trials = 200
    bounds = np.array([wilson(k, trials) for k in range(trials + 1)])
    inside = (bounds[:, 0] <= rate) & (rate <= bounds[:, 1])
    covered = binom.pmf(np.arange(trials + 1), trials, rate)[inside].sum()
    assert covered == pytest.approx(0.95, abs=0.025)  # counts are whole: it moves in steps


def test_wilson_intervals_stay_within_bounds():
    assert wilson(0, 10)[0] == 0.0 and wilson(10, 10)[1] == 1.0  # exactly: plots draw the rest
    assert wilson(0, 10)[1] == pytest.approx(0.2775, abs=1e-4)  # z^2 / (n + z^2)
    assert wilson(0, 0) == (None, None)


V, EOS, LIMIT = 6, 1, 12
MODEL = PrefixModel(V, eos=(EOS,))
MODELS = (("target", MODEL), ("drafter", MODEL))
PARAMS = {"target": prefix_params(V, seed=0), "drafter": prefix_params(V, seed=1)}
SAMPLED = Strategy(Neural(3), temperature=2.0)
PROMPTS = [[2, 3], [4, 5, 2], [3], [5, 5], [2, 2, 4]]


@pytest.fixture(scope="module")
def sampled():
    import jax

    return jax.device_get(run(MODELS, PARAMS, SAMPLED, PROMPTS, LIMIT))


def test_figures_by_position_and_along_the_text_add_up_to_the_totals(sampled):
    stats = summarize(decoder(MODELS, SAMPLED, LIMIT), [(sampled, 4)])
    found = acceptance(collect_rounds([(sampled, 4)]))
    assert found["tested"] == stats.tested == sum(e["tested"] for e in found["by_position"])
    assert found["rate"] == stats.acceptance_rate
    assert found["low"] < found["rate"] < found["high"]
    total = sum(part["overlap"] * part["positions"] for part in found["along_text"])
    assert total == pytest.approx(stats.overlap, rel=1e-6)


def test_a_batch_runs_its_models_as_often_as_its_busiest_row(sampled):
    trace = sampled.trace
    assert trace.runs["target"] == trace.rounds
    busiest = np.max(trace.calls["drafter"])
    assert busiest <= trace.runs["drafter"] <= np.sum(trace.calls["drafter"])
    # Without a stop predicate a round takes a call for each drafted token.
    drafted = trace.drafted.max(axis=0).sum()
    assert trace.runs["drafter"] == drafted


class Letters:
    """A tokenizer whose token i is the letter i, with a space before it inside a text."""

    def decode(self, tokens, clean_up_tokenization_spaces):
        return " ".join("abcdef"[token] for token in tokens)


def test_a_text_s_rounds_spell_what_was_generated(sampled):
    made = decoder(MODELS, SAMPLED, LIMIT)
    rejected = 0
    for row in range(len(PROMPTS)):
        rounds = rounds_of_text(sampled, row, made, Letters())
        text = "".join(
            "".join(entry["drafted"][: entry["accepted"]]) + (entry["next"] or "")
            for entry in rounds
        )
        begin, end = sampled.begin[row], sampled.length[row]
        assert text == Letters().decode(sampled.tokens[row, begin:end], False)
        assert all(entry["writers"] == ["drafter"] * len(entry["drafted"]) for entry in rounds)
        rejected += sum(len(entry["drafted"]) > entry["accepted"] for entry in rounds)
    assert rejected > 0


def test_rejected_tokens_are_what_the_drafter_wanted_there():
    """Greedy: each drafted token is the drafter's argmax after the text before it."""
    strategy = Strategy(Neural(3))
    out = run(MODELS, PARAMS, strategy, PROMPTS, LIMIT)
    trace, tokens = out.trace, np.asarray(out.tokens)
    rejected = 0
    for row, prompt in enumerate(PROMPTS):
        place = int(out.begin[row])
        for index in np.flatnonzero(trace.committed[row]).tolist():
            drafted = np.asarray(trace.proposed[row, index])[: int(trace.drafted[row, index])]
            for step, token in enumerate(drafted):
                before = [*tokens[row, :place], *drafted[:step]]
                assert token == np.argmax(MODEL.logits(PARAMS["drafter"], prompt, before))
            rejected += len(drafted) - int(trace.accepted[row, index])
            place += int(trace.committed[row, index])
    assert rejected > 10
