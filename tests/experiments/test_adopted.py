"""What a feature drafter has from its target before the first step."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import TARGETS, V, on_t5, without_encoder
from jax.flatten_util import ravel_pytree

from specjax.experiments.train.feature_drafter import adopt_target, output_layer
from specjax.loading import LoadedModel
from specjax.models.eagle import Eagle
from specjax.models.on_target import FeatureDrafter

OUTPUTS = [np.array([3, 5, 5, 1]), np.array([5, 8, 8, 3, 9, 1])]
LAST = 2


@functools.cache
def make_target(name: str) -> LoadedModel:
    model = TARGETS[name]
    flat, unravel = ravel_pytree(jax.jit(model.init)(jax.random.key(4)))
    params = unravel(flat + 0.3 * jax.random.normal(jax.random.key(5), flat.shape))
    return LoadedModel(model, params, None)


def make_drafter(name: str, width: int, ids: int = 5) -> tuple[FeatureDrafter, dict, LoadedModel]:
    """A drafter of so many ids, as it begins, and its target."""
    target, read = make_target(name), tuple(range(ids))
    if name == "t5":
        drafter, _ = on_t5(target.model.config, (1, LAST), read)
    else:
        drafter, _ = without_encoder(V, target.model.config.d_model, (1, LAST), read, None)
    norms = {"feature_norms": 2} if isinstance(drafter, Eagle) else {}
    shape = dataclasses.replace(drafter.config, d_model=width, **norms)
    drafter = dataclasses.replace(drafter, config=shape)
    start = LoadedModel(drafter, draw_params(drafter), None)
    return drafter, adopt_target(start, target, OUTPUTS).params, target


def draw_params(drafter: FeatureDrafter) -> dict:
    return jax.jit(drafter.init)(jax.random.key(1))


@functools.partial(jax.jit, static_argnames="drafter")
def logits(drafter: FeatureDrafter, params: dict, last: jax.Array) -> jax.Array:
    """Of what the target's states become, with others before its last ones."""
    features = jnp.concatenate([jnp.ones_like(last), last], axis=-1)
    fused_states = drafter.module.apply({"params": params}, features, method="fuse_states")
    return drafter.module.apply({"params": params}, fused_states, method="compute_draft_logits")


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_drafter_as_wide_as_its_target_reads_its_states_as_it_does(name: str) -> None:
    drafter, params, target = make_drafter(name, make_target(name).model.config.d_model)
    last = jax.random.normal(jax.random.key(6), (2, 3, drafter.config.d_model))
    made = logits(drafter, params, last)
    table, norm = output_layer(target.model, target.params)
    normed = last / jnp.sqrt(jnp.mean(last**2, axis=-1, keepdims=True)) * norm
    np.testing.assert_allclose(made, (normed @ table)[..., params["ids"]], rtol=2e-4, atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_a_narrower_one_reads_all_that_so_few_directions_hold(name: str) -> None:
    """No other product of a basis and a matrix is nearer to the target's (Eckart and Young)."""
    width = 3
    drafter, params, target = make_drafter(name, width)
    table, norm = output_layer(target.model, target.params)
    seen = np.asarray(table * norm[:, None])[:, params["ids"]]
    fuse, head = (np.asarray(params[part]["kernel"]) for part in ("fuse", "head"))
    others, basis = fuse[: -len(seen)], fuse[-len(seen) :]
    rest = np.linalg.svd(seen, compute_uv=False)[width:]
    assert np.sum((seen - basis @ head) ** 2) == pytest.approx(np.sum(rest**2), rel=1e-3)
    assert not others.any() and head.shape == (width, 5)


@pytest.mark.slow
def test_a_wider_one_begins_as_drawn() -> None:
    drafter, params, _ = make_drafter("t5", 40)
    first = draw_params(drafter)
    np.testing.assert_array_equal(params["fuse"]["kernel"], first["fuse"]["kernel"])
    np.testing.assert_array_equal(params["head"]["kernel"], first["head"]["kernel"])


@pytest.mark.slow
def test_ids_are_those_that_outputs_have_most_often_and_the_end() -> None:
    _, params, _ = make_drafter("t5", 3)
    assert params["ids"].tolist() == [1, 3, 5, 8, 9]
