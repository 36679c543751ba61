"""The objective of drafters that read their target's caches: its steps are those of a draft."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import IDS, ONE_FAST, PROMPTS, TARGETS, make_setting

from specjax.data.pipeline import pad_batch
from specjax.models.assistant import Assistant
from specjax.training.feature_drafting import run_teacher
from specjax.training.objective import TEACHER, TRUNK, FrozenModel
from specjax.training.objectives.assistant import AssistantObjective
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, evaluate_batch, measure_batch, train_step

OUTPUTS = [[2, 3, 5, 7, 1], [4, 1], [9, 9, 8, 2, 3, 4, 5, 11, 1], [6, 5, 1]]
ROWS = list(zip(PROMPTS, OUTPUTS, strict=True))
STEPS = 3
TOLERANCE = 5e-4  # logits have a deviation of 7, and states are fed back three times


def fit_drafter(kind: str):
    """The target's and the drafter's parameters, and the drafter that knows what it reads."""
    (_, (_, model)), params = make_setting(kind, Assistant)
    return model.adapt_to(TARGETS[kind]), params


def make_frozen(kind: str):
    model, params = fit_drafter(kind)
    target = FrozenModel(params["target"], TARGETS[kind])
    return {TEACHER: target, TRUNK: FrozenModel(params["drafter"], model)}


@functools.cache
def make_batch(kind: str):
    return pad_batch(ROWS, 4, TARGETS[kind].info.start_token, 0)


def read_batch(kind: str, batch):
    """Caches of target and drafter behind whole texts; the drafter's has the target's states."""
    (model, params), target = fit_drafter(kind), TARGETS[kind]
    tokens, size = jnp.asarray(batch["inputs"]), batch["inputs"].shape[1]
    prompt = batch["prompt"], batch["prompt_length"]
    if target.info.start_token is None:
        prompt = tokens[:, :1], jnp.ones(len(tokens), jnp.int32)
    begun, _ = target.start(params["target"], *prompt, size)
    begun = begun.replace(length=jnp.zeros_like(begun.length))
    wanted = model.config.features
    output, whole = target.extend(params["target"], tokens, begun, features=wanted)
    cache, _ = model.start(params["drafter"], *prompt, size)
    none = jnp.zeros_like(cache.length)
    return whole, model.absorb(
        params["drafter"], model.attend(cache, whole), output.features[0], none
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONE_FAST)
def test_the_steps_are_those_of_drafts_behind_each_token(kind):
    (model, params), batch = fit_drafter(kind), make_batch(kind)
    frozen, objective = make_frozen(kind), AssistantObjective(steps=STEPS)
    compute = jax.jit(lambda frozen, batch: objective.compute_steps(model, {}, frozen, batch, None))
    steps, tokens = compute(frozen, batch), jnp.asarray(batch["inputs"])
    teacher = jax.jit(functools.partial(run_teacher, model))(frozen, batch)
    whole, begun = jax.jit(lambda: read_batch(kind, batch))()
    extend, size = jax.jit(model.extend), tokens.shape[1]
    for pending in range(1, size - STEPS):
        length = jnp.full(len(tokens), pending + 1)
        cache = model.borrow(begun, whole, length)
        for number, step in enumerate(steps):
            fed = tokens[:, pending + number : pending + number + 1]
            output, cache = extend(params["drafter"], fed, cache)
            drafted = np.asarray(output.logits)[:, 0, list(IDS)]
            np.testing.assert_allclose(step.logits[:, pending], drafted, atol=TOLERANCE)
            np.testing.assert_array_equal(step.p[:, pending], teacher.p[:, pending + number])
            counted = batch["mask"][:, pending] & batch["mask"][:, pending + number]
            np.testing.assert_array_equal(step.mask[:, pending], counted)
    assert not np.any(steps[0].mask[:, 0])


CHANGES = [{}, {"divergence": "lk_lambda"}, {"weighting": "prefix", "divergence": "lk_alpha"}]
RUNS = [("t5", CHANGES[0]), *(("llama", one) for one in CHANGES)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "changes"), RUNS)
def test_training_lowers_the_loss_and_raises_acceptance(kind, changes):
    model, params = fit_drafter(kind)
    setup = Setup(model, AssistantObjective(steps=STEPS, **changes), Optimizer(40, 1e-2))
    own = {n: tree for n, tree in params["drafter"].items() if n not in model.frozen_names}
    own = jax.tree.map(lambda x: jnp.array(x, copy=True), own)
    frozen, batch = make_frozen(kind), make_batch(kind)
    before, _ = evaluate_batch(setup, own, frozen, batch)
    first = measure_batch(setup, own, frozen, batch)
    state = setup.start(own)
    for _ in range(40):
        state, _ = train_step(setup, state, frozen, batch)
    after, _ = evaluate_batch(setup, state.params, frozen, batch)
    last = measure_batch(setup, state.params, frozen, batch)
    assert after < 0.8 * before
    for name in ("tokens_0", "acceptance_1_at_1", "acceptance_1_at_3"):
        (new, count), (old, other) = last[name], first[name]
        assert new / count > old / other
