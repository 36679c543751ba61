"""Parallel feature drafters: what they hold is the target's states, drafts are what was trained."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, propose_jitted, run, texts
from feature_drafters import (
    IDS,
    LIMIT,
    ONE_FAST,
    PROMPTS,
    TARGETS,
    count_different_slots,
    fresh_blocks,
    make_setting,
    states,
)

import specjax
from specjax.contracts.draft import STOPPED
from specjax.contracts.drafter import STOP
from specjax.decoding.strategy import Strategy
from specjax.drafting.dflash import DFlash
from specjax.drafting.eagle import Eagle
from specjax.drafting.neural import Neural
from specjax.models.dflash import BlocksBias
from specjax.models.dflash import DFlash as Model

LENGTH = 3
KINDS = pytest.mark.parametrize("kind", ONE_FAST)


@functools.cache
def after_drafting(kind: str, strategy: Strategy) -> list:
    """Of every round: the context, the draft, the cache behind it, and what is `fresh`."""
    made, params, seen = states(kind, strategy, Model)
    models, size = make_setting(kind, Model)[0], strategy.drafter.length + 1
    rounds = []
    for state in seen[:-1]:
        draft, caches, _, _ = propose_jitted(made, params, state)
        anchors = state.context.length[:, None] - 1
        said, cache = fresh_blocks(models, params, state.context, anchors, size)
        said = said.logits, cache
        rounds.append((state.context, draft, caches["drafter"], said))
    return rounds


def stale(kind: str, strategy: Strategy) -> int:
    """Slots that a block saw in active rows and that are not of the target's states."""
    bad = 0
    for context, _, cache, (_, want) in after_drafting(kind, strategy):
        assert np.array_equal(cache.length, context.length - 1)  # all but the pending token
        bad += count_different_slots(cache, want, jnp.where(context.active, cache.length, 0))
    return bad


@pytest.mark.slow
@KINDS
def test_a_block_sees_the_targets_states_of_all_tokens_before_it(kind):
    assert stale(kind, Strategy(DFlash(LENGTH))) == 0


@dataclasses.dataclass(frozen=True)
class Forgetful(DFlash):
    """Wrong on purpose: keeps the states of the round before the last."""

    def update(self, memory, outcome):
        return super().update(memory, outcome).replace(features=memory.features)


@pytest.mark.slow
@KINDS
def test_the_audit_sees_stale_features(kind):
    assert stale(kind, Strategy(Forgetful(LENGTH))) > 0


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("length", [LENGTH, 2])
def test_a_draft_is_what_training_says_at_the_same_anchor(kind, length):
    checked = 0
    for context, draft, _, (logits, _) in after_drafting(kind, Strategy(DFlash(length))):
        for row in np.flatnonzero(context.active):
            for step in range(int(draft.length[row])):
                at = np.asarray(logits)[row, 0, step]
                two = np.sort(at)[-2:]
                if two[1] - two[0] > 1e-3:  # no tie that rounding decides
                    assert IDS[at.argmax()] == draft.tokens[row, step]
                    checked += 1
    assert checked > 20


@pytest.mark.slow
@KINDS
def test_blocks_do_not_see_each_other(kind):
    """Each says alone what it says beside others, and nothing of the text behind its anchor."""
    models, params = make_setting(kind, Model)
    context = after_drafting(kind, Strategy(DFlash(LENGTH)))[-1][0]
    anchors = jnp.tile(jnp.arange(6), (len(PROMPTS), 1))
    together, _ = fresh_blocks(models, params, context, anchors, LENGTH + 1)
    later = jnp.arange(context.tokens.shape[1]) > 4
    changed = context.replace(tokens=jnp.where(later, 2, context.tokens))
    baseline, _ = fresh_blocks(models, params, changed, anchors[:, 4:5], LENGTH + 1)
    np.testing.assert_allclose(baseline.logits[:, 0], together.logits[:, 4], atol=1e-5)


@pytest.mark.slow
def test_a_part_of_a_blocks_mask_is_that_part_of_the_whole():
    table = jax.random.normal(jax.random.key(0), (2, 24))
    bias = BlocksBias(jnp.array([[0, 3, 5], [4, 1, 2]]), table, 8, 4)
    whole = bias.tile(0, 12, 0, 20)
    np.testing.assert_array_equal(bias.tile(5, 4, 6, 9), whole[:, :, 5:9, 6:15])
    seen = np.asarray(whole[0, 0] > -1e8)
    assert seen[4].tolist() == [True] * 3 + [False] * 9 + [True] * 4 + [False] * 4


STRATEGIES = {
    "plain": Strategy(DFlash(LENGTH)),
    "fitted": specjax.strategy(drafter="dflash", length=2, confidence=0.2, reader="fitted"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(TARGETS))
@pytest.mark.parametrize("name", STRATEGIES)
def test_the_targets_own_text_is_written(kind, name):
    models, params = make_setting(kind, Model)
    baseline = texts(run(models, params, Strategy(), PROMPTS, LIMIT))
    assert texts(run(models, params, STRATEGIES[name], PROMPTS, LIMIT)) == baseline


@pytest.mark.slow
def test_an_unsure_draft_ends_before_its_length():
    models, params = make_setting("t5", Model)
    sure = {}
    for threshold in (0.0, 0.4, 1.0):
        strategy = specjax.strategy(drafter="dflash", length=LENGTH, confidence=threshold)
        trace = run(models, params, strategy, PROMPTS, LIMIT).trace
        sure[threshold] = int(trace.column("drafted").sum())
        stopped = trace.column(STOP) == STOPPED
        assert bool(stopped.any()) == (threshold > 0)
    assert sure[0.0] > sure[0.4] > sure[1.0] == 0


@pytest.mark.slow
def test_a_draft_of_high_entropy_ends_before_its_length():
    models, params = make_setting("t5", Model)
    baseline = texts(run(models, params, Strategy(), PROMPTS, LIMIT))
    drafted = {}
    for threshold in (0.0, 1.5, 9.0):
        strategy = specjax.strategy(drafter="dflash", length=LENGTH, entropy=threshold)
        out = run(models, params, strategy, PROMPTS, LIMIT)
        assert texts(out) == baseline
        drafted[threshold] = int(out.trace.column("drafted").sum())
    assert drafted[9.0] > drafted[1.5] > drafted[0.0] == 0


def test_a_draft_longer_than_its_training_is_refused():
    models, params = make_setting("t5", Model)
    made = decoder(models, Strategy(DFlash(4)), LIMIT)
    with pytest.raises(ValueError, match=r"length is 4; .* blocks of 4 .* must be at most 3"):
        made.drafter.check(made.env(params))


@pytest.mark.parametrize(
    "drafter, words",
    [
        (Neural(2), "its drafter must be 'dflash'"),
        (Eagle(2), "must be a feature drafter of family 'eagle3' or 'eagle3_speculators' or"),
    ],
)
def test_its_model_is_no_other_drafters(drafter, words):
    models, params = make_setting("t5", Model)
    made = decoder(models, Strategy(drafter), LIMIT)
    with pytest.raises(ValueError, match=words):
        made.drafter.check(made.env(params))
