"""Training of blocks with corrections: the correction, its confidence head, the base."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import CORRECTIONS, IDS, PROMPTS, TARGETS, make_setting

from specjax.data.pipeline import pad_batch
from specjax.models.dflash import DFlash
from specjax.models.on_target import FROZEN
from specjax.training import acceptance
from specjax.training.calibration import Confidences, fit_temperatures, measure_calibration
from specjax.training.objective import TEACHER, TRUNK, FrozenModel
from specjax.training.objectives.dflash import DFlashObjective
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, evaluate_batch, train_step

OUTPUTS = [[2, 3, 5, 7, 1], [4, 1], [9, 9, 8, 2, 3, 4, 5, 11, 1], [6, 5, 1]]


def make_setup(kind: str, **fields):
    """A setup, the parameters to train, what is frozen and a batch."""
    (_, (_, model)), params = make_setting("t5", DFlash, correction=CORRECTIONS[kind])
    setup = Setup(model, DFlashObjective(anchors=64, **fields), Optimizer(30, 1e-2))
    own = {name: tree for name, tree in params["drafter"].items() if name not in FROZEN}
    own = jax.tree.map(lambda x: jnp.array(x, copy=True), own)
    target = FrozenModel(params["target"], TARGETS["t5"])
    frozen = {TEACHER: target, TRUNK: FrozenModel(params["drafter"], model)}
    rows = list(zip(PROMPTS, OUTPUTS, strict=True))
    return setup, own, frozen, pad_batch(rows, 4, TARGETS["t5"].info.start_token, 0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", CORRECTIONS)
def test_a_correction_is_trained(kind):
    setup, own, frozen, batch = make_setup(kind, divergence="lk_lambda")
    before, _ = evaluate_batch(setup, own, frozen, batch)
    first = jax.tree.map(np.array, own["corrector"])  # training takes the arrays
    state = setup.start(own)
    for _ in range(30):
        state, report = train_step(setup, state, frozen, batch)
        assert np.isfinite(report["loss"]) and np.isfinite(report["gradient"])
    after, _ = evaluate_batch(setup, state.params, frozen, batch)
    assert after < 0.8 * before
    last = state.params["corrector"]
    changed = jax.tree.map(lambda old, new: bool(np.any(old != new)), first, last)
    assert all(jax.tree.leaves(changed))


@pytest.mark.slow
def test_confidence_learns_the_overlap_and_nothing_else_learns_from_it():
    setup, own, frozen, batch = make_setup("markov")
    objective, model = setup.objective, setup.model
    step = objective.compute_steps(model, own, frozen, batch, None)[0]
    label = acceptance.overlap(step.p, step.logits)
    chance = step.confidence
    expected = -label * jnp.log(chance) - (1 - label) * jnp.log(1 - chance)
    np.testing.assert_allclose(objective.compute_other_losses(step), expected, rtol=1e-4)

    def alone(logits: jax.Array) -> jax.Array:
        return jnp.sum(objective.compute_other_losses(step.replace(logits=logits)))

    assert not jnp.any(jax.grad(alone)(step.logits))  # the label is given


@pytest.mark.slow
def test_temperatures_calibrate_a_head_that_is_too_sure():
    setup, own, frozen, batch = make_setup("markov")
    head = own["corrector"]["confidence"]
    head["kernel"], head["bias"] = 6.0 * head["kernel"], 6.0 * head["bias"]
    record = jax.jit(setup.objective.confidences, static_argnums=0)
    found = record(setup.model, own, frozen, batch)
    confidence, accepted, counted = (np.asarray(x).reshape(-1, 3) for x in found)
    outputs = sum(map(len, OUTPUTS))  # blocks begin at every token, later places are fewer
    assert counted.sum(axis=0).tolist() == [outputs, outputs - 4, outputs - 8]
    assert counted.sum() > 30 and ((accepted >= 0) & (accepted <= 1 + 1e-6)).all()
    recorded = Confidences(confidence, accepted, counted)
    temperatures = fit_temperatures(recorded)
    before = measure_calibration(recorded)
    after = measure_calibration(recorded, temperatures)
    assert np.mean(after) < 0.7 * np.mean(before) and max(temperatures) > 1


@pytest.mark.slow
def test_the_base_is_added_by_its_weight():
    _, own, frozen, batch = make_setup("gru")
    totals = {}
    for weight in (0.0, 0.5, 1.0):
        setup, *_ = make_setup("gru", base_weight=weight)
        totals[weight], _ = evaluate_batch(setup, own, frozen, batch)
    assert totals[0.0] < totals[0.5]
    np.testing.assert_allclose(totals[1.0] - totals[0.5], totals[0.5] - totals[0.0], rtol=1e-4)
    assert len(IDS) < 12  # of a reduced vocabulary, as its other losses
