"""Losses that follow acceptance: worked numbers, gradients, bounds, and drafters that learn."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import PROMPTS, TARGETS, make_setting

from specjax.contracts.registry import OBJECTIVES
from specjax.data.pipeline import pad_batch
from specjax.models.on_target import FROZEN
from specjax.training.feature_drafting import Step
from specjax.training.loss import (
    ACCEPTANCE_AWARE,
    LEAST_ACCEPTANCE,
    acceptance_rate,
    forward_kl,
    from_target,
    lk_alpha,
    lk_lambda,
    top_k_cross_entropy,
    total_variation,
    tv_ce,
)
from specjax.training.objective import TEACHER, TRUNK, FrozenModel
from specjax.training.objectives.dflash import DFlashObjective
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, evaluate_batch, measure_batch, train_step

P, Q = jnp.array([0.7, 0.2, 0.1]), jnp.array([0.5, 0.3, 0.2])
SHARE = np.exp(-2.4)  # of KL, where the acceptance rate is 0.8
LABEL = jnp.array(0)

EVERY = {
    "lk_alpha": lk_alpha,
    "lk_lambda": lk_lambda,
    "tv_ce": functools.partial(tv_ce, labels=LABEL),
    "top_k": top_k_cross_entropy,
}


def gradient(loss, p, q) -> np.ndarray:
    """By the logits of q."""
    return jax.grad(lambda z: loss(jnp.log(p), jax.nn.log_softmax(z)))(jnp.log(q))


@pytest.mark.parametrize(
    ("loss", "value", "slope"),
    [
        (total_variation, 0.2, (-0.25, 0.15, 0.10)),
        (forward_kl, 0.085123, (-0.2, 0.1, 0.1)),
        (lk_alpha, -np.log(0.8), (-0.3125, 0.1875, 0.125)),
        (lk_lambda, SHARE * 0.085123 + (1 - SHARE) * 0.2, (-0.2455, 0.1455, 0.1)),
        (EVERY["tv_ce"], 0.1 * np.log(2) + 0.9 * 0.4, (-0.5, 0.3, 0.2)),
        (functools.partial(top_k_cross_entropy, k=1), 0.7 * np.log(2), (-0.35, 0.21, 0.14)),
    ],
    ids=["total_variation", "forward_kl", "lk_alpha", "lk_lambda", "tv_ce", "top_k"],
)
def test_a_loss_and_its_gradient_are_those_worked_out_by_hand(loss, value, slope):
    assert acceptance_rate(jnp.log(P), jnp.log(Q)) == pytest.approx(0.8)
    assert loss(jnp.log(P), jnp.log(Q)) == pytest.approx(value, abs=1e-5)
    np.testing.assert_allclose(gradient(loss, P, Q), slope, atol=5e-5)


def test_lk_alpha_of_a_certain_target_is_cross_entropy():
    q = jax.nn.softmax(jnp.array([1.0, -2.0, 0.5, 3.0]))
    p = jnp.array([0.0, 1.0, 0.0, 0.0])
    assert float(lk_alpha(jnp.log(p), jnp.log(q))) == pytest.approx(-float(jnp.log(q[1])), abs=1e-6)
    np.testing.assert_allclose(gradient(lk_alpha, p, q), q - p, atol=1e-6)


@pytest.mark.parametrize("name", EVERY)
def test_equal_distributions_have_no_nan(name):
    for p in (P, jnp.array([0.4, 0.4, 0.2]), jnp.array([1.0, 0.0, 0.0]), jnp.ones(3) / 3):
        q = jnp.maximum(p, 1e-30)
        assert np.isfinite(EVERY[name](jnp.log(p), jnp.log(q)))
        assert np.isfinite(gradient(EVERY[name], p, q)).all()
    assert lk_alpha(jnp.log(P), jnp.log(P)) == lk_lambda(jnp.log(P), jnp.log(P)) == 0


def numerical(loss, z: np.ndarray, step: float = 1e-6) -> np.ndarray:
    moves = step * np.eye(len(z))
    return np.array([(loss(z + move) - loss(z - move)) / (2 * step) for move in moves])


def test_the_weight_of_kl_is_a_constant_to_the_gradient():
    """The gradient is the finite difference with lambda held, and not that of the whole loss."""
    rng = np.random.default_rng(0)
    p, z = np.exp(rng.normal(size=6)), rng.normal(size=6)
    p /= p.sum()

    def parts(z: np.ndarray) -> tuple[float, float, float]:
        q = np.exp(z) / np.exp(z).sum()
        accepted = np.minimum(p, q).sum()
        return np.exp(-3 * accepted), (p * np.log(p / q)).sum(), 1 - accepted

    held = parts(z)[0]

    def loss(z: np.ndarray, share: float | None = None) -> float:
        moving, kl, tv = parts(z)
        share = moving if share is None else share
        return share * kl + (1 - share) * tv

    found = gradient(lk_lambda, jnp.float32(p), jax.nn.softmax(jnp.float32(z)))
    np.testing.assert_allclose(found, numerical(lambda z: loss(z, held), z), atol=1e-6)
    assert np.abs(found - numerical(loss, z)).max() > 1e-3


@pytest.mark.parametrize("name", EVERY)
def test_a_reduced_vocabulary_is_not_renormalized(name):
    """Values and gradients, in float64: what cannot be drafted is rejected, or a constant."""
    rng = np.random.default_rng(1)
    ids, whole, z = [0, 2, 5, 7], np.exp(rng.normal(size=8)), rng.normal(size=4)
    p = (whole / whole.sum())[ids]
    mass = p.sum()
    held = np.exp(-3 * np.minimum(p, np.exp(z) / np.exp(z).sum()).sum())

    def compute_in_numpy(z: np.ndarray) -> float:
        q = np.exp(z) / np.exp(z).sum()
        accepted = np.minimum(p, q).sum()
        kl = mass * (p / mass * np.log(p / mass / q)).sum()
        return {
            "lk_alpha": -np.log(accepted),
            "lk_lambda": held * kl + (1 - held) * (1 - accepted),
            "tv_ce": -0.1 * np.log(q[2]) + 0.9 * 2 * (1 - accepted),
            "top_k": -(p * np.log(q)).sum(),
        }[name]

    more = {"labels": jnp.array([2])} if name == "tv_ce" else {}

    def compute_in_jax(z: jax.Array) -> jax.Array:
        return from_target(name, jnp.float32(p)[None], z[None], **more)[0]

    value, slope = jax.value_and_grad(compute_in_jax)(jnp.float32(z))
    assert float(value) == pytest.approx(compute_in_numpy(z), rel=1e-5)
    np.testing.assert_allclose(slope, numerical(compute_in_numpy, z), atol=2e-6)


def test_lk_alpha_is_bounded_and_still_learned_from_below_the_bound():
    p, z = jnp.array([0.0, 1.0]), jnp.array([20.0, 0.0])
    q = jax.nn.softmax(z)
    assert q[1] < LEAST_ACCEPTANCE
    assert lk_alpha(jnp.log(p), jnp.log(q)) == pytest.approx(-np.log(LEAST_ACCEPTANCE))
    slope = gradient(lk_alpha, p, q)
    assert slope[1] == pytest.approx(-float(q[1]) / LEAST_ACCEPTANCE, rel=1e-3)


def test_one_lambda_of_the_batch_is_that_of_the_mean_where_the_mask_is():
    rng = np.random.default_rng(2)
    p, q = (jax.nn.log_softmax(jnp.float32(rng.normal(size=(2, 3, 5)))) for _ in range(2))
    mask = jnp.array([[True, True, False], [True, False, False]])
    rate = acceptance_rate(p, q)
    share = np.exp(-2.0 * np.asarray(rate)[np.asarray(mask)].mean())
    expected = share * forward_kl(p, q) + (1 - share) * (1 - rate)
    np.testing.assert_allclose(lk_lambda(p, q, 2.0, mask), expected, rtol=1e-5)
    own = np.exp(-2.0 * rate)
    expected = own * forward_kl(p, q) + (1 - own) * (1 - rate)
    np.testing.assert_allclose(lk_lambda(p, q, 2.0), expected, rtol=1e-5)


def test_a_text_that_cannot_be_drafted_has_no_cross_entropy():
    far = 2 * 0.9 * 0.2
    for label in (3, 7, -1):
        assert tv_ce(jnp.log(P), jnp.log(Q), jnp.array(label)) == pytest.approx(far)


def test_top_k_counts_the_targets_most_probable_ids_only():
    found = top_k_cross_entropy(jnp.log(P), jnp.log(Q), 2)
    assert found == pytest.approx(-0.7 * np.log(0.5) - 0.2 * np.log(0.3))
    assert top_k_cross_entropy(jnp.log(P), jnp.log(Q), 99) == pytest.approx(
        -float(jnp.sum(P * jnp.log(Q)))
    )


OUTPUTS = [[2, 3, 5, 7, 1], [4, 1], [9, 9, 8, 2, 3, 4, 5, 11, 1], [6, 5, 1]]
ROWS = list(zip(PROMPTS, OUTPUTS, strict=True))
MADE = {"eagle": {"steps": 2}, "dflash": {"anchors": 64}}
CHANGES = [{"divergence": name} for name in ACCEPTANCE_AWARE] + [
    {"divergence": "lk_lambda", "acceptance_scope": "batch"},
    {"divergence": "lk_alpha", "weighting": "prefix"},
    {"divergence": "cross_entropy", "weighting": "dpace"},
]
FAST = ("eagle-lk_lambda", "dflash-cross_entropy-dpace")


def make_runs() -> list:
    """Each compiles a training step; those of `FAST` in every run of the tests."""
    runs = {"-".join((kind, *one.values())): (kind, one) for kind in MADE for one in CHANGES}
    return [
        pytest.param(*run, id=name, marks=() if name in FAST else pytest.mark.slow)
        for name, run in runs.items()
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "changes"), make_runs())
def test_a_feature_drafter_learns_by_it(kind, changes):
    cls = OBJECTIVES[kind].cls
    (_, (_, model)), params = make_setting("t5", cls.trains)
    setup = Setup(model, cls(**MADE[kind], **changes), Optimizer(30, 1e-2))
    own = {name: tree for name, tree in params["drafter"].items() if name not in FROZEN}
    own = jax.tree.map(lambda x: jnp.array(x, copy=True), own)
    target = FrozenModel(params["target"], TARGETS["t5"])
    frozen = {TEACHER: target, TRUNK: FrozenModel(params["drafter"], model)}
    batch = pad_batch(ROWS, 4, TARGETS["t5"].info.start_token, 0)

    def measure(own) -> tuple[float, float]:
        total, count = evaluate_batch(setup, own, frozen, batch)
        accepted, tested = measure_batch(setup, own, frozen, batch)["acceptance_1_at_1"]
        return float(total / count), float(accepted / tested)

    loss, accepted = measure(own)
    state = setup.start(own)
    for _ in range(30):
        state, report = train_step(setup, state, frozen, batch)
        assert np.isfinite(report["loss"]) and np.isfinite(report["gradient"])
    after, more = measure(state.params)
    assert after < 0.9 * loss
    assert more > accepted


class GivenSteps(DFlashObjective):
    """An objective of random drafts of three tokens at two places, of one draft each."""

    def compute_steps(self, *given) -> list[Step]:
        rng, mask = np.random.default_rng(3), np.array([[True, True], [True, False]])
        made = []
        for number in range(3):
            p, logits = np.float32(rng.normal(size=(2, 2, 2, 6)))
            p = 0.8 * jax.nn.softmax(p)
            labels = jnp.asarray(rng.integers(0, 7, size=(2, 2)))
            inside = jnp.asarray(mask & (number < 2))
            made.append(Step(p, labels, labels, jnp.asarray(logits), inside))
        return made


@pytest.mark.slow
@pytest.mark.parametrize("name", ACCEPTANCE_AWARE)
def test_prefix_weights_are_those_of_each_draft_until_its_text_ends(name):
    objective = GivenSteps(divergence=name, weighting="prefix")
    total, count = objective.sums(None, {}, {}, {}, None)
    expected = 0.0
    for row, place in ((0, 0), (0, 1), (1, 0)):
        reached = 1.0
        for step in objective.compute_steps()[:2]:
            p, logits = step.p[row, place], step.logits[row, place]
            labels = {"labels": step.labels[row, place]} if name == "tv_ce" else {}
            expected += reached / 3 * float(from_target(name, p, logits, **labels))
            reached *= float(jnp.sum(jnp.minimum(p, jax.nn.softmax(logits))))
    assert int(count) == 3
    assert float(total) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "changes", "sentence"),
    [
        ("eagle", {"kl_decay": 2.0}, "kl_decay is 2.0; divergence 'forward_kl' does not read it"),
        (
            "dflash",
            {"divergence": "lk_alpha", "acceptance_scope": "batch"},
            "acceptance_scope is 'batch'; divergence 'lk_alpha' does not read it",
        ),
        ("medusa", {"divergence": "top_k", "ce_weight": 0.2}, "ce_weight is 0.2; divergence 'top_"),
        ("hydra", {"top_k": 5}, "top_k is 5; divergence 'forward_kl' does not read it"),
        ("distillation", {"l1_weight": 1.0}, "l1_weight is 1.0; divergence 'forward_kl' does not"),
        (
            "distillation",
            {"divergence": "tv_ce", "label_weight": 0.3},
            "label_weight is 0.3; it must be 0 with divergence 'tv_ce'",
        ),
        (
            "dflash",
            {"weighting": "dpace"},
            "divergence is 'forward_kl'; it must be 'cross_entropy' with weighting 'dpace'",
        ),
        (
            "eagle",
            {"weighting": "dpace", "divergence": "lk_alpha"},
            "divergence is 'lk_alpha'; it must be 'cross_entropy' with weighting 'dpace'",
        ),
        (
            "dflash",
            {"weighting": "prefix", "gamma": 7.0},
            "gamma is 7.0; weighting 'prefix' does not read it",
        ),
        (
            "eagle",
            {"weighting": "prefix", "decay": 0.5},
            "decay is 0.5; weighting 'prefix' does not read it",
        ),
        ("eagle", {"dpace_alpha": 0.1}, "dpace_alpha is 0.1; weighting 'decay' does not read it"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(kind, changes, sentence):
    with pytest.raises(ValueError) as refused:
        OBJECTIVES[kind].cls(**changes)
    assert sentence in str(refused.value) and "\n" not in str(refused.value)
