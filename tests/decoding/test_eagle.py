"""Feature drafters: what they hold is of the target's states, and drafts are what was trained."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, propose_jitted, run, texts
from feature_drafters import (
    IDS,
    LIMIT,
    MTP,
    ONE_FAST,
    PROMPTS,
    TARGETS,
    count_different_slots,
    make_setting,
    read_whole,
    states,
)

import specjax
from specjax.decoding.strategy import Strategy
from specjax.drafting.eagle import Eagle
from specjax.drafting.neural import Neural
from specjax.selection.arms import Arm
from specjax.selection.switched import SwitchedArms
from specjax.verification.whole import WholeReader

LENGTH = 3
KINDS = pytest.mark.parametrize("kind", ONE_FAST)


@functools.partial(jax.jit, static_argnames=("models", "steps"))
def unroll_draft(models, params, context, steps: int):
    """The drafter's logits of every step on the text, and the cache of reading all of it."""
    _, (_, drafter) = models
    features, cross, cache = read_whole(models, params, context)
    _, cache = drafter.extend(params["drafter"], context.tokens, cache)
    logits = drafter.unroll_draft(params["drafter"], context.tokens, features, cross, steps)
    return logits, cache


def wrong_slots(kind: str, params, state) -> int:
    """Slots under the pointer whose keys or values are not those of the target's states."""
    _, fresh = unroll_draft(make_setting(kind)[0], params, state.context, 1)
    cache = state.caches["drafter"]
    return count_different_slots(cache, fresh, cache.length)


DRAFTERS = {"chain": Eagle(LENGTH), "tree": Eagle(widths=(2, 2, 1), nodes=6)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ("chain", "t5"),
        ("tree", "llama"),
        ("chain", "llama"),
        ("tree", "t5"),
        ("chain", MTP),
        ("tree", MTP),
    ],
)
def test_after_every_round_trusted_slots_are_of_the_targets_states(shape, kind):
    _, params, seen = states(kind, Strategy(DRAFTERS[shape]))
    assert len(seen) > 3
    for before, after in zip(seen, seen[1:], strict=False):
        assert wrong_slots(kind, params, after) == 0
        active = np.asarray(before.context.active)
        pointer = np.asarray(after.caches["drafter"].length)
        # All but what the round itself wrote.
        assert np.all(pointer[active] == np.asarray(before.context.length)[active])


@dataclasses.dataclass(frozen=True)
class Forgetful(Eagle):
    """Wrong on purpose: goes on from the states of the round before the last."""

    def update(self, memory, outcome):
        return super().update(memory, outcome).replace(features=memory.features)


@pytest.mark.slow
@KINDS
def test_the_audit_sees_stale_features(kind):
    _, params, seen = states(kind, Strategy(Forgetful(LENGTH)))
    assert any(wrong_slots(kind, params, state) for state in seen)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*ONE_FAST, MTP])
def test_a_draft_is_what_the_unrolled_layer_says(kind):
    """Token k + 1 is of step k, where training put it: behind the draft's first k tokens."""
    made, params, seen = states(kind, Strategy(Eagle(LENGTH)))
    checked = 0
    for state in seen[:-1]:
        draft, *_ = propose_jitted(made, params, state)
        context = state.context
        with_draft = np.asarray(context.tokens).copy()
        rows = np.flatnonzero(np.asarray(context.active))
        for row in rows:
            begin = int(context.length[row])
            room = with_draft[row, begin : begin + LENGTH]
            room[:] = np.asarray(draft.tokens)[row, : len(room)]
        behind = context.replace(tokens=jnp.asarray(with_draft))
        logits, _ = unroll_draft(make_setting(kind)[0], params, behind, LENGTH)
        for row in rows:
            for step in range(int(draft.length[row])):
                at = np.asarray(logits[step])[row, int(context.length[row]) - 1 + step]
                two = np.sort(at)[-2:]
                if two[1] - two[0] > 1e-3:  # no tie that rounding decides
                    assert IDS[at.argmax()] == draft.tokens[row, step]
                    checked += 1
    assert checked > 20


STRATEGIES = {
    "chain": Strategy(Eagle(LENGTH)),
    "tree": Strategy(DRAFTERS["tree"]),
    "fitted": specjax.strategy(drafter="eagle", length=4, confidence=0.2, reader="fitted"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), list(itertools.product((*TARGETS, MTP), STRATEGIES)))
def test_the_targets_own_text_is_written(kind, name):
    models, params = make_setting(kind)
    baseline = texts(run(models, params, Strategy(), PROMPTS, LIMIT))
    assert texts(run(models, params, STRATEGIES[name], PROMPTS, LIMIT)) == baseline


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_only_ids_of_its_vocabulary_are_drafted(temperature):
    models, params = make_setting("t5")
    strategy = Strategy(Eagle(LENGTH), temperature=temperature)
    out = run(models, params, strategy, PROMPTS, LIMIT)
    proposed = np.asarray(out.trace.proposed)
    length = np.asarray(out.trace.column("drafted"))
    for row, round_ in zip(*np.nonzero(length), strict=True):
        assert set(proposed[row, round_, : length[row, round_]].tolist()) <= set(IDS)


@pytest.mark.slow
def test_a_tree_needs_no_more_children_than_ids_that_are_drafted():
    models, params = make_setting("t5")
    made = decoder(models, Strategy(Eagle(widths=(9,))), LIMIT)
    with pytest.raises(ValueError, match=r"widths gives a node 9 children; .* there are tokens, 8"):
        made.drafter.check(made.env(params))


def test_an_arm_of_single_rounds_must_not_read_the_target():
    arms = (Arm("features", Eagle(2), WholeReader()),)
    with pytest.raises(ValueError, match="arm 'features' reads the target's states"):
        SwitchedArms(arms, (1,))


@pytest.mark.parametrize(
    "change, words",
    [
        ({"target_width": 20}, "made for a target of width 20; this one has 16"),
        ({"cross_heads": 3}, "made for a target of heads 3; this one has 2"),
        ({"features": (1, 5)}, r"reads the target's layers \(1, 5\); it has 2"),
    ],
)
def test_a_drafter_of_another_target_is_refused(change, words):
    models, params = make_setting("t5")
    drafter = dict(models)["drafter"]
    other = dataclasses.replace(drafter, config=dataclasses.replace(drafter.config, **change))
    made = decoder((models[0], ("drafter", other)), Strategy(Eagle(2)), LIMIT)
    with pytest.raises(ValueError, match=words):
        made.drafter.check(made.env(params))


@pytest.mark.parametrize("drafter", [Neural(2), Neural(widths=(2,))])
def test_a_feature_drafter_is_no_small_model(drafter):
    models, params = make_setting("t5")
    made = decoder(models, Strategy(drafter), LIMIT)
    with pytest.raises(ValueError, match="its drafter must be 'eagle'"):
        made.drafter.check(made.env(params))


def test_a_small_model_is_no_feature_drafter():
    models, params = make_setting("t5")
    made = decoder((models[0], ("drafter", models[0][1])), Strategy(Eagle(2)), LIMIT)
    with pytest.raises(ValueError, match="must be a feature drafter"):
        made.drafter.check(made.env(params | {"drafter": params["target"]}))
