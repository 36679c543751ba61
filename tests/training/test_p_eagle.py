"""The objective of P-EAGLE: which positions each slot keeps, what it sees, and that it learns."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import IDS, ONE_FAST, PROMPTS, TARGETS, make_setting

from specjax.data.pipeline import pad_batch
from specjax.models.on_target import FROZEN
from specjax.models.p_eagle import PEagle, RolloutsBias
from specjax.training.feature_drafting import run_teacher
from specjax.training.objective import TEACHER, TRUNK, FrozenModel
from specjax.training.objectives.p_eagle import PEagleObjective
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, evaluate_batch, measure_batch, train_step

OUTPUTS = [[2, 3, 5, 7, 1], [4, 1], [9, 9, 8, 2, 3, 4, 5, 11, 1], [6, 5, 1]]
ROWS = list(zip(PROMPTS, OUTPUTS, strict=True))


def make_batch(kind: str, bucket: int = 4):
    return pad_batch(ROWS, bucket, TARGETS[kind].info.start_token, 0)


def make_frozen(kind: str):
    """The target, and what of the drafter is not trained."""
    (_, (_, model)), params = make_setting(kind, PEagle)
    target = FrozenModel(params["target"], TARGETS[kind])
    return {TEACHER: target, TRUNK: FrozenModel(params["drafter"], model)}


@pytest.mark.slow
@pytest.mark.parametrize("bucket", [4, 16])
def test_a_slot_keeps_its_share_of_the_output_and_only_what_the_slot_before_keeps(bucket):
    objective = PEagleObjective(slots=5, kept=0.7, least_kept=0.3)
    batch = make_batch("t5", bucket)
    anchors, real = objective.anchors(batch, jax.random.key(3))
    places = np.sum(batch["mask"], axis=1)
    before = [set(np.flatnonzero(row)) for row in batch["mask"]]
    for slot, (at, kept) in enumerate(zip(anchors, real, strict=True)):
        share = max(0.7**slot, 0.3)
        now = [set(row[keep].tolist()) for row, keep in zip(np.asarray(at), kept, strict=True)]
        assert [len(one) for one in now] == np.ceil(places * share - 1e-3).astype(int).tolist()
        assert all(one <= other for one, other in zip(now, before, strict=True))
        assert np.array_equal(at, anchors[0][:, : at.shape[1]])
        before = now
    others, _ = objective.anchors(batch, jax.random.key(4))
    assert not np.array_equal(others[1], anchors[1])


@pytest.mark.slow
def test_a_slot_sees_the_text_up_to_its_anchor_and_its_own_rollout():
    text, anchors = 5, [[3, 1, 0], [3, 1], [3]]
    anchor = np.array([*range(text), *sum(anchors, [])])
    slot = np.array([0] * text + [1] * 3 + [2] * 2 + [3])
    for reads_first in (True, False):
        bias = RolloutsBias(jnp.array([anchor]), jnp.array(slot), None, reads_first)
        whole = bias.tile(0, len(slot), 0, len(slot))
        for q in range(len(slot)):
            for k in range(len(slot)):
                own = anchor[k] == anchor[q] and 1 <= slot[k] <= slot[q]
                seen = own or (slot[k] == 0 and anchor[k] <= anchor[q])
                hidden = not reads_first and slot[k] == anchor[k] == 0 and anchor[q] + slot[q] > 0
                assert (whole[0, 0, q, k] == 0) == (seen and not hidden)
        np.testing.assert_array_equal(bias.tile(4, 3, 2, 6), whole[:, :, 4:7, 2:8])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONE_FAST)
def test_what_is_dropped_changes_no_slot_that_is_kept(kind):
    (_, (_, model)), params = make_setting(kind, PEagle)
    batch, frozen = make_batch(kind), make_frozen(kind)
    teacher, size = run_teacher(model, frozen, batch), batch["mask"].shape[1]
    every = jnp.broadcast_to(jnp.arange(size), batch["mask"].shape)
    some = [every[:, [5, 2, 0]], every[:, [5, 2]]]
    given = params["drafter"], batch["inputs"], teacher.features, teacher.cross
    rollouts = jax.jit(model.compute_rollouts)
    few, all_of_them = rollouts(*given, some), rollouts(*given, [every, every])
    # Sums over other numbers of keys: 3e-5 apart on a CPU without AVX-512, where values are near 1.
    close = functools.partial(np.testing.assert_allclose, atol=1e-4)
    close(few[0], all_of_them[0])
    for slot in (1, 2):
        kept = all_of_them[slot][:, some[slot - 1][0]]
        close(few[slot], kept)


@pytest.mark.slow
def test_a_slot_learns_the_targets_distribution_of_its_token():
    batch, frozen = make_batch("t5"), make_frozen("t5")
    (_, (_, model)), params = make_setting("t5", PEagle)
    objective, key = PEagleObjective(slots=4), jax.random.key(0)
    drafted = jax.jit(functools.partial(objective.compute_steps, model))
    steps = drafted(params["drafter"], frozen, batch, key)
    logits = np.asarray(TARGETS["t5"].teach(params["target"], batch)[0])
    expected = np.asarray(jax.nn.softmax(logits))[..., list(IDS)]
    anchors, _ = objective.anchors(batch, key)
    learned = 0
    for slot, step in enumerate(steps):
        for row, place in zip(*np.nonzero(step.mask), strict=True):
            at = int(anchors[slot][row, place]) + slot
            assert batch["mask"][row, at]
            np.testing.assert_allclose(step.p[row, place], expected[row, at], atol=1e-5)
            learned += slot > 0
    assert learned > 10


CHANGES = [{}, {"divergence": "lk_lambda"}, {"weighting": "prefix", "divergence": "lk_alpha"}]
CHANGES += [{"weighting": "dpace", "divergence": "cross_entropy"}]
RUNS = [pytest.param("t5", CHANGES[0]), pytest.param("llama", CHANGES[-1])]
RUNS += [pytest.param("t5", one, marks=pytest.mark.slow) for one in CHANGES[1:]]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "changes"), RUNS)
def test_training_lowers_the_loss_and_raises_acceptance(kind, changes):
    (_, (_, model)), params = make_setting(kind, PEagle)
    setup = Setup(model, PEagleObjective(slots=3, **changes), Optimizer(40, 1e-2))
    own = {name: tree for name, tree in params["drafter"].items() if name not in FROZEN}
    own, masks = jax.tree.map(lambda x: jnp.array(x, copy=True), own), {}
    for name in ("mask", "mask_hidden"):
        masks[name] = np.array(own[name])
    frozen, batch = make_frozen(kind), make_batch(kind)
    before, _ = evaluate_batch(setup, own, frozen, batch)
    first = measure_batch(setup, own, frozen, batch)
    state = setup.start(own)
    for _ in range(40):
        state, report = train_step(setup, state, frozen, batch)
        assert np.isfinite(report["loss"]) and np.isfinite(report["gradient"])
    after, _ = evaluate_batch(setup, state.params, frozen, batch)
    last = measure_batch(setup, state.params, frozen, batch)
    assert after < 0.8 * before
    for name in ("tokens_0", "acceptance_1_at_1", "acceptance_1_at_3"):
        (new, count), (old, other) = last[name], first[name]
        assert new / count > old / other
    assert all(np.any(state.params[name] != mask) for name, mask in masks.items())
