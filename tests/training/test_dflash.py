"""The objective of parallel feature drafters: where blocks begin, and what their places learn."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import IDS, ONE_FAST, PROMPTS, TARGETS, make_setting

from specjax.data.pipeline import pad_batch
from specjax.models.dflash import DFlash
from specjax.models.on_target import FROZEN
from specjax.training.loss import from_target
from specjax.training.objective import TEACHER, TRUNK, FrozenModel
from specjax.training.objectives.dflash import DFlashObjective, at_random, evenly, row_keys
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, evaluate_batch, train_step

OUTPUTS = [[2, 3, 5, 7, 1], [4, 1], [9, 9, 8, 2, 3, 4, 5, 11, 1], [6, 5, 1]]
ROWS = list(zip(PROMPTS, OUTPUTS, strict=True))
EVERYWHERE = DFlashObjective(anchors=64)


def make_batch(kind: str, rows=ROWS, bucket: int = 4):
    return pad_batch(rows, bucket, TARGETS[kind].info.start_token, 0)


def make_frozen(kind: str):
    """The target, and what of the drafter is not trained."""
    (_, (_, model)), params = make_setting(kind, DFlash)
    target = FrozenModel(params["target"], TARGETS[kind])
    return {TEACHER: target, TRUNK: FrozenModel(params["drafter"], model)}


@functools.cache
def make_steps(kind: str):
    """The steps of blocks at every token of the output, and their anchors."""
    (_, (_, model)), params = make_setting(kind, DFlash)
    frozen, batch = make_frozen(kind), make_batch(kind)
    drafted = jax.jit(functools.partial(EVERYWHERE.compute_steps, model))
    steps = drafted(params["drafter"], frozen, batch, None)
    anchors, _ = evenly(batch["mask"], batch["mask"].shape[1])
    return batch, np.asarray(anchors), steps


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONE_FAST)
def test_a_place_learns_the_targets_law_of_its_token(kind):
    batch, anchors, steps = make_steps(kind)
    _, params = make_setting(kind, DFlash)
    logits = np.asarray(TARGETS[kind].teach(params["target"], batch)[0])
    distribution = np.asarray(jax.nn.softmax(logits))[..., list(IDS)]
    learned = 0
    for number, step in enumerate(steps):
        for row, place in zip(*np.nonzero(step.mask), strict=True):
            at = anchors[row, place] + number
            assert batch["mask"][row, anchors[row, place] : at + 1].all()
            np.testing.assert_allclose(step.p[row, place], distribution[row, at], atol=1e-5)
            assert step.best[row, place] == logits[row, at].argmax()
            learned += 1
    # Of an output of n tokens, n - k blocks have a token k + 1.
    assert learned == sum(max(len(out) - k, 0) for out in OUTPUTS for k in range(len(steps)))


@pytest.mark.slow
def test_early_places_weigh_more_and_the_loss_is_their_mean():
    (_, (_, model)), _ = make_setting("t5", DFlash)
    weights = DFlashObjective(gamma=2.0).weights(model)
    assert weights == [1.0, math.exp(-0.5), math.exp(-1.0)]
    _, _, steps = make_steps("t5")
    step = steps[0].replace(logits=jnp.log(steps[0].p))
    np.testing.assert_allclose(from_target("forward_kl", step.p, step.logits), 0, atol=1e-5)
    lost = 1 - np.sum(np.asarray(step.p), axis=-1)  # of ids that cannot be drafted
    q = jax.nn.softmax(step.logits)
    rejected = 1 - np.sum(np.minimum(step.p, q), axis=-1)
    far = from_target("total_variation", step.p, step.logits)
    np.testing.assert_allclose(far, rejected, atol=1e-5)
    assert np.all(rejected >= lost - 1e-6)


def test_blocks_begin_anywhere_in_the_output_and_each_elsewhere():
    batch, key = make_batch("llama"), jax.random.key(5)
    mask = np.asarray(batch["mask"])
    for count in (2, mask.shape[1]):
        for anchors, real in (
            at_random(mask, count, row_keys(key, batch)),
            evenly(mask, count),
        ):
            for row, out in enumerate(OUTPUTS):
                mine = np.asarray(anchors[row])[np.asarray(real[row])]
                assert len(set(mine.tolist())) == len(mine) == min(count, len(out))
                assert mask[row][mine].all()


def test_a_rows_blocks_are_those_of_the_step_wherever_the_row_stands():
    def draw_batch(rows, step: int, bucket: int = 4):
        batch = make_batch("t5", rows, bucket)
        return np.asarray(at_random(batch["mask"], 2, row_keys(jax.random.key(step), batch))[0])

    first = draw_batch(ROWS, 0)
    np.testing.assert_array_equal(draw_batch(ROWS[::-1], 0, 16)[::-1], first)
    assert any(not np.array_equal(draw_batch(ROWS, step), first) for step in (1, 2))


@pytest.mark.slow
def test_a_training_step_draws_its_blocks_and_learns_from_them():
    (_, (_, model)), params = make_setting("t5", DFlash)
    setup = Setup(model, DFlashObjective(anchors=1), Optimizer(30, 2e-2))
    own = {name: tree for name, tree in params["drafter"].items() if name not in FROZEN}
    own = jax.tree.map(lambda x: jnp.array(x, copy=True), own)
    frozen, batch = make_frozen("t5"), make_batch("t5")
    total, count = evaluate_batch(setup, own, frozen, batch)
    state = setup.start(own)
    for step in range(30):
        state, report = train_step(setup, state, frozen, batch)
        if not step:  # of other blocks than those of an evaluation
            assert float(report["loss"]) != pytest.approx(float(total / count), rel=1e-3)
    after, count = evaluate_batch(setup, state.params, frozen, batch)
    assert int(count) == len(OUTPUTS)  # one block of each row
    assert after < 0.7 * total
