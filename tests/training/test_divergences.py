"""Every divergence of drafters on the target: its values, its gradient, and where it is least."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import without_encoder
from slow_cases import some_slow

from specjax.contracts.registry import OBJECTIVES
from specjax.data.pipeline import pad_batch
from specjax.experiments.train.objective import make_frozen
from specjax.experiments.train.subject import make_subject
from specjax.loading import LoadedModel
from specjax.models.causal import Causal, CausalConfig
from specjax.models.on_target import select_last_state
from specjax.models.positions import Rope
from specjax.training.loss import FROM_TARGET, from_target
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, sums

V, D, STEPS = 11, 8, 2
IDS = (1, 2, 3, 5, 7)
TARGET = Causal(
    CausalConfig(
        "llama", V, d_model=D, d_ff=12, num_layers=2, num_heads=2, num_kv_heads=1, d_head=4,
        max_positions=64, rope=Rope(4), eos=(1,),
    )
)  # fmt: skip
ROWS = [([2, 3, 4], [5, 7, 1]), ([6, 5], [2, 1]), ([3, 3], [1])]
MADE = {
    "eagle": {"steps": STEPS},
    "dflash": {"anchors": 8},  # as many as there are tokens
    "medusa": {"heads": STEPS, "head_width": 6},
    "hydra": {"heads": STEPS, "head_width": 6},
}
FEATURES = ("eagle", "dflash")
FAST = {  # one divergence of each, all of them between them: each pair compiles a gradient
    ("eagle", "forward_kl"), ("dflash", "total_variation"), ("medusa", "cross_entropy"),
    ("hydra", "lk_alpha"), ("eagle", "lk_lambda"), ("dflash", "tv_ce"), ("medusa", "top_k"),
}  # fmt: skip


def make_pairs(kinds) -> list:
    return some_slow(itertools.product(kinds, FROM_TARGET), *FAST)


every = pytest.mark.parametrize(("kind", "divergence"), make_pairs(MADE))


def batch():
    return pad_batch(ROWS, 4, None, 0)


def log_softmax(x: np.ndarray) -> np.ndarray:
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def distance(
    divergence: str, p: np.ndarray, q: np.ndarray, labels: np.ndarray | None = None
) -> np.ndarray:
    """Of probabilities p and log probabilities q of the same ids, as the documents define it.

    `labels` are places among the ids, or outside of them.
    """
    accepted = np.minimum(p, np.exp(q)).sum(-1)
    if divergence == "total_variation":
        return 1 - accepted
    if divergence == "lk_alpha":
        return -np.log(np.maximum(accepted, 1e-5))
    if divergence == "lk_lambda":
        mass, share = p.sum(-1), np.exp(-3 * accepted)
        kl = (p * (np.log(p) - q)).sum(-1) - mass * np.log(mass)
        return share * kl + (1 - share) * (1 - accepted)
    if divergence == "tv_ce":
        text = np.where(np.arange(p.shape[-1]) == labels[..., None], q, 0.0).sum(-1)
        return -0.1 * text + 0.9 * 2 * (1 - accepted)
    if divergence == "top_k":  # of ten: most of the others have hardly any probability
        kept = np.argsort(-p, axis=-1)[..., :10]
        return -(np.take_along_axis(p, kept, -1) * np.take_along_axis(q, kept, -1)).sum(-1)
    if divergence == "cross_entropy":
        return -np.take_along_axis(q, p.argmax(-1)[..., None], axis=-1)[..., 0]
    p = p / p.sum(-1, keepdims=True)
    return (p * (np.log(p) - q)).sum(-1)


def read_labels(divergence: str, labels: np.ndarray) -> dict:
    return {"labels": jnp.asarray(labels)} if divergence == "tv_ce" else {}


@pytest.mark.parametrize("divergence", FROM_TARGET)
def test_a_divergence_is_of_the_ids_that_can_be_drafted(divergence):
    """All but those of acceptance, for which what cannot be drafted is rejected."""
    rng = np.random.default_rng(0)
    p = np.exp(log_softmax(rng.normal(scale=2.0, size=(3, 4, V))))[..., list(IDS)]
    logits = rng.normal(scale=2.0, size=p.shape)
    labels = rng.integers(0, len(IDS) + 1, size=(3, 4))
    found = from_target(
        divergence, jnp.float32(p), jnp.float32(logits), **read_labels(divergence, labels)
    )
    expected = distance(divergence, p, log_softmax(logits), labels)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("divergence", FROM_TARGET)
def test_where_nothing_can_be_drafted_nothing_is_learned(divergence):
    def far(logits):
        labels = read_labels(divergence, np.array([3]))  # none of the ids
        return jnp.sum(from_target(divergence, jnp.zeros((1, 3)), logits, **labels))

    loss, gradient = jax.value_and_grad(far)(jnp.array([[0.5, 2.0, -1.0]]))
    rejected = {"total_variation": 1.0, "lk_alpha": -np.log(1e-5), "tv_ce": 1.8}
    assert loss == pytest.approx(rejected.get(divergence, 0.0))
    np.testing.assert_allclose(gradient, 0.0, atol=1e-6)


@functools.cache
def target() -> LoadedModel:
    return LoadedModel(TARGET, jax.tree.map(lambda x: 1.5 * x, TARGET.init(jax.random.key(0))))


@functools.cache
def drafter(kind: str) -> LoadedModel:
    """A feature drafter that is not trained, as wide as the target; of heads the target."""
    trained = OBJECTIVES[kind].cls.trains
    if trained is None:
        return target()
    return LoadedModel(*without_encoder(V, D, (2,), IDS, None, kind=trained))


@functools.cache
def compute_loss(kind: str, divergence: str):
    """A program of the loss, the positions and the gradient, by what is trained and frozen."""
    objective = OBJECTIVES[kind].cls(**MADE[kind], divergence=divergence)
    setup = Setup(drafter(kind).model, objective, Optimizer(1, 1e-3))
    program = jax.jit(functools.partial(sums, setup))
    return lambda params, frozen: program(params, frozen, batch(), jax.random.key(0))


def train_model(kind: str, of_target: LoadedModel, start: LoadedModel):
    """What is trained, and what is frozen beside it."""
    objective = OBJECTIVES[kind].cls(**MADE[kind])
    return make_subject(objective, start, 0).params, make_frozen(objective, start, of_target)


def still(layer: dict) -> dict:
    """A layer that adds nothing to its residual stream."""
    for part, matrix in (("attention", "o"), ("ff", "down")):
        silent = jax.tree.map(jnp.zeros_like, layer[part][matrix])
        layer = {**layer, part: {**layer[part], matrix: silent}}
    return layer


def constant_target() -> LoadedModel:
    """One that computes the same state of every token: one law, whatever the text."""
    params = dict(target().params)
    table = params["embedding"]
    # As large as states are: none of the norms adds to it what would be seen.
    params["embedding"] = jnp.broadcast_to(100.0 * table[2], table.shape)
    params |= {name: still(tree) for name, tree in params.items() if name.startswith("layers_")}
    return LoadedModel(TARGET, params)


def its_drafter(kind: str, of_target: LoadedModel) -> LoadedModel:
    """A drafter of the constant target's own law."""
    model, params = drafter(kind).model, dict(drafter(kind).params)
    if drafter(kind) is target():
        return of_target  # its fresh heads add nothing
    table = of_target.params["head"]["kernel"][:, list(IDS)]
    params |= {
        "embedding": of_target.params["embedding"],
        "fuse": select_last_state(params["fuse"], jnp.eye(D)),
        "final_norm": of_target.params["final_norm"],
        "head": {"kernel": table},
    }
    params |= {name: still(tree) for name, tree in params.items() if name.startswith("layer")}
    if "mask" in params:
        params["mask"] = jnp.broadcast_to(params["embedding"][0], params["mask"].shape)
    return LoadedModel(model, params)


def make_weights(kind: str) -> list[float]:
    """Of the tokens of a draft."""
    if kind in FEATURES:
        return OBJECTIVES[kind].cls(**MADE[kind]).weights(drafter(kind).model)
    return [OBJECTIVES[kind].cls().decay ** head for head in range(STEPS)]


@pytest.mark.slow
@every
def test_the_loss_has_a_gradient_that_is_a_number(kind, divergence):
    start = drafter(kind)
    total, count, gradient = compute_loss(kind, divergence)(*train_model(kind, target(), start))
    assert count > 0 and np.isfinite(total) and total > 0
    leaves = jax.tree.leaves(gradient)
    assert all(np.isfinite(leaf).all() for leaf in leaves)
    assert any(np.abs(leaf).max() > 1e-3 for leaf in leaves)


@functools.cache
def draft_steps(kind: str):
    """The steps of a feature drafter's drafts, as the objective has them."""
    objective = OBJECTIVES[kind].cls(**MADE[kind])
    given = train_model(kind, target(), drafter(kind))
    program = jax.jit(functools.partial(objective.compute_steps, drafter(kind).model))
    return program(*given, batch(), jax.random.key(0))


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "divergence"), [*itertools.product(FEATURES, FROM_TARGET)])
def test_the_loss_is_the_weighted_mean_of_its_steps(kind, divergence):
    """Those of heads: test_medusa.py."""
    expected, weights = 0.0, make_weights(kind)
    for weight, step in zip(weights, draft_steps(kind), strict=True):
        p, logits = np.asarray(step.p, np.float64), np.asarray(step.logits, np.float64)
        of_each = distance(divergence, p, log_softmax(logits), np.asarray(step.labels))
        expected += weight * of_each[np.asarray(step.mask)].sum() / sum(weights)
    total, *_ = compute_loss(kind, divergence)(*train_model(kind, target(), drafter(kind)))
    np.testing.assert_allclose(total, expected, rtol=1e-5)


@pytest.mark.slow
@every
def test_a_drafter_that_is_the_target_loses_only_what_cannot_be_drafted(kind, divergence):
    of_target = constant_target()
    start = its_drafter(kind, of_target)
    total, count, gradient = compute_loss(kind, divergence)(*train_model(kind, of_target, start))
    logits = TARGET.teach(of_target.params, batch())[0]
    distribution = np.exp(log_softmax(np.asarray(logits, np.float64)[0, 0]))
    p = distribution if start is of_target else distribution[list(IDS)]
    weights, drafted = make_weights(kind), range(V) if start is of_target else IDS
    expected = 0.0
    for step, weight in enumerate(weights):
        texts = [token for _, out in ROWS for token in out[step:]]
        labels = np.array([drafted.index(t) if t in drafted else len(drafted) for t in texts])
        laws = (np.broadcast_to(x, (len(texts), len(p))) for x in (p, np.log(p / p.sum())))
        expected += weight * distance(divergence, *laws, labels).sum() / sum(weights)
    np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-5)
    if divergence == "forward_kl":
        assert all(np.abs(leaf).max() < 1e-4 for leaf in jax.tree.leaves(gradient))
