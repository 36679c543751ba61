"""What holds for every registered objective: its sums add up, and only the labels count."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
from feature_drafters import on_t5, without_encoder
from slow_cases import some_slow

from specjax.contracts.fields import build
from specjax.contracts.registry import OBJECTIVES
from specjax.data.pipeline import pad_batch
from specjax.experiments.train.objective import make_frozen
from specjax.experiments.train.subject import make_subject
from specjax.loading import LoadedModel
from specjax.models.assistant import Assistant
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, sums

V = 11
MODELS = {
    "t5": T5(
        T5Config(
            vocab_size=V, d_model=12, d_kv=4, d_ff=16, num_heads=2, num_layers=1,
            num_decoder_layers=2, tied=True, scale_outputs=True,
        )
    ),
    "llama": Causal(
        CausalConfig(
            "llama", V, d_model=12, d_ff=16, num_layers=2, num_heads=2, num_kv_heads=1, d_head=6,
            max_positions=64, rope=Rope(6), eos=(1,),
        )
    ),
}  # fmt: skip
ROWS = [([a, b, 1], [b, a, b, 1][: 2 + a % 3]) for a in range(2, 6) for b in range(2, 4)]
ACCUMULATED = 4

each = pytest.mark.parametrize("kind", ["t5", pytest.param("llama", marks=pytest.mark.slow)])
every = pytest.mark.parametrize("name", some_slow(OBJECTIVES, "medusa"))


def make_batch(kind: str, bucket: int = 4):
    return pad_batch(ROWS, bucket, MODELS[kind].info.start_token, 0)


@functools.cache
def load_setup(kind: str, seed: int) -> LoadedModel:
    return LoadedModel(MODELS[kind], jax.jit(MODELS[kind].init)(jax.random.key(seed)))


def start_of(name: str, kind: str) -> LoadedModel:
    """What an objective trains: the model, or a drafter on its features."""
    trained = OBJECTIVES[name].cls.trains
    if trained is None:
        return load_setup(kind, 0)
    ids, config = (1, 2, 3, 5, 7), MODELS[kind].config
    read = (2,) if trained is Assistant else (1, 2)
    if kind == "t5":
        return LoadedModel(*on_t5(config, read, ids, trained))
    heads = {"d_head": config.d_head, "rope": config.rope} if trained is Assistant else {}
    made = without_encoder(V, config.d_model, read, ids, None, kind=trained, **heads)
    return LoadedModel(*made)


def loss_and_gradient(name: str, kind: str, bucket: int = 4, accumulate: int = 1):
    """Of the registered example, on a model of its own and another one as teacher."""
    entry, start = OBJECTIVES[name], start_of(name, kind)
    objective, _ = build(entry.cls, dict(entry.example))
    frozen = make_frozen(objective, start, load_setup(kind, 1))
    setup = Setup(start.model, objective, Optimizer(1, 1e-3), accumulate)
    call = jax.jit(functools.partial(sums, setup))
    params = make_subject(objective, start, 0).params
    return call(params, frozen, make_batch(kind, bucket), jax.random.key(2))


whole = functools.cache(loss_and_gradient)


@each
@every
def test_the_loss_is_finite_and_has_a_gradient(name, kind):
    total, count, gradient = whole(name, kind)
    assert total.shape == count.shape == () and total > 0 and count > 0
    leaves = jax.tree.leaves(gradient)
    assert all(np.isfinite(leaf).all() for leaf in leaves)
    assert any(np.any(leaf) for leaf in leaves)


@pytest.mark.slow
@each
@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize(
    "change",
    [{"bucket": 16, "accumulate": ACCUMULATED}, {"bucket": 16}, {"accumulate": ACCUMULATED}],
)
def test_padding_adds_nothing_and_micro_batches_add_up(name, kind, change):
    counts = {int(part.sum()) for part in np.split(make_batch(kind)["mask"], ACCUMULATED)}
    assert len(counts) > 1  # parts of unequal weight
    total, count, gradient = loss_and_gradient(name, kind, **change)
    expected, pairs, wanted = whole(name, kind)
    assert int(count) == int(pairs)
    np.testing.assert_allclose(total, expected, rtol=2e-5)
    jax.tree.map(check_sums, gradient, wanted)


def check_sums(gradient, wanted):
    """Up to rounding, which is that of the largest terms: entries near 0 are sums that cancel."""
    scale = max(1.0, np.abs(wanted).max(initial=0.0))
    np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=2e-5 * scale)
