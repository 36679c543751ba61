"""`Generator.with_params`: other weights in the same compiled programs."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import LLAMA_SHAPE, PROMPTS, make_setting, mtp_head
from golden_models import GOLDEN

import specjax
from specjax.decoding.loop import generate
from specjax.loading import LoadedModel
from specjax.models.causal import Causal
from specjax.models.with_input import select_encoder
from specjax.training.surgery import take

LIMIT = 12


def redraw(params: Any, scale: float = 0.7) -> Any:
    """Other weights of the same shapes, NumPy's arrays as from another program."""
    generator = np.random.default_rng(7)

    def noisy(x: jax.Array) -> np.ndarray:
        if x.dtype.kind != "f":
            return np.asarray(x)
        return np.asarray(x * (1 + scale * generator.normal(size=x.shape)), x.dtype)

    return jax.tree.map(noisy, params)


@functools.cache
def models() -> dict[str, LoadedModel]:
    """A target, a model, and a layer that has the target's embedding and output layer."""
    (target, _), params = make_setting("llama")
    ids = tuple(range(LLAMA_SHAPE.vocab_size))
    layer, own = mtp_head(LLAMA_SHAPE, ids)
    layer = dataclasses.replace(
        layer, config=dataclasses.replace(layer.config, embedded=False, headed=False)
    )
    small = Causal(dataclasses.replace(LLAMA_SHAPE, num_layers=1))
    left = {name: own[name] for name in own if name not in ("embedding", "head", "target_norm")}
    return {
        "target": LoadedModel(target[1], params["target"]),
        "drafter": LoadedModel(small, jax.jit(small.init)(jax.random.key(3))),
        "layer": LoadedModel(layer, left),
    }


def make(target: Any = None, **fields: Any) -> specjax.Generator:
    """A generator of the models, with other parameters of the target."""
    drafters = dict(models())
    own = drafters.pop("target")
    own = own if target is None else dataclasses.replace(own, params=target)
    strategy = specjax.strategy(**({"drafter": "neural", "length": 3} | fields))
    return specjax.Generator(own, drafters, strategy, max_new_tokens=LIMIT, logprobs=True)


LAYER = {"drafter": "eagle", "model": "layer"}


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{}, LAYER], ids=["model", "layer"])
def test_new_weights_decode_as_a_generator_made_with_them_and_compile_nothing(fields):
    generator = make(**fields)
    before = generator(PROMPTS)
    programs = generate._cache_size()
    changed = redraw(generator.params["target"])
    made = generator.with_params(changed)
    after = made(PROMPTS)
    assert generate._cache_size() == programs
    assert after.tokens != before.tokens
    fresh = make(jax.tree.map(jnp.asarray, changed), **fields)(PROMPTS)
    assert (after.tokens, after.logprobs) == (fresh.tokens, fresh.logprobs)
    assert after.statistics == fresh.statistics
    assert generator(PROMPTS).tokens == before.tokens  # it keeps its own weights


def test_drafters_that_are_named_have_new_weights_too():
    generator = make()
    whole = generator(PROMPTS)
    programs = generate._cache_size()
    drafter = redraw(generator.params["drafter"])
    made = generator.with_params(generator.params["target"], {"drafter": drafter})(PROMPTS)
    assert generate._cache_size() == programs
    assert made.tokens == whole.tokens
    assert made.statistics.accepted != whole.statistics.accepted


def test_weights_that_are_committed_to_a_device_compile_nothing():
    generator = make()
    before = generator(PROMPTS)
    programs = generate._cache_size()
    committed = jax.device_put(generator.params["target"], jax.devices()[0])
    again = generator.with_params(committed)(PROMPTS)
    assert generate._cache_size() == programs
    assert again == before


def test_weights_go_where_those_of_a_mesh_are(pair):
    mesh = specjax.make_mesh({"data": 1, "model": 1})
    target = specjax.load(pair / "target", mesh=mesh)
    generator = specjax.Generator(target, max_new_tokens=LIMIT, logprobs=True)
    before = generator([[5, 6, 1]])
    programs = generate._cache_size()
    made = generator.with_params(jax.tree.map(np.asarray, target.params))
    assert made([[5, 6, 1]]) == before
    assert generate._cache_size() == programs
    places = (jax.tree.map(lambda x: x.sharding, one.params) for one in (generator, made))
    assert next(places) == next(places)


@pytest.mark.slow
def test_a_drafter_with_the_targets_encoder_reads_that_of_the_new_weights():
    target = specjax.load(GOLDEN / "whisper")
    audio = list(np.random.default_rng(0).normal(size=(2, 6, 100)).astype(np.float32))
    model, params = take(target.model, target.params, (0, 2))
    changed = redraw(target.params, 0.3)

    def decode(weights: Any, own: Any) -> specjax.Generator:
        whole = dataclasses.replace(target, params=weights)
        drafter = dataclasses.replace(target, model=model, params=own)
        drafting = specjax.speculative(length=3)
        return specjax.Generator(whole, {"drafter": drafter}, drafting, max_new_tokens=LIMIT)

    generator = decode(target.params, params)
    assert generator.decoder.models[1][1].info.borrows_encoder
    before = generator(audio)
    programs = generate._cache_size()
    after = generator.with_params(changed)(audio)
    assert generate._cache_size() == programs
    assert after.statistics != before.statistics
    encoder = jax.tree.map(jnp.asarray, select_encoder(changed))
    assert after == decode(jax.tree.map(jnp.asarray, changed), params | encoder)(audio)


OTHERS = {
    "a leaf missing": (
        lambda p: p | {"head": {}},
        "target has no leaf 'head/kernel'; it must have",
    ),
    "a leaf too many": (lambda p: p | {"extra": jnp.ones(2)}, "target has the leaf 'extra'; there"),
    "another shape": (
        lambda p: p | {"head": {"kernel": p["head"]["kernel"][:, :3]}},
        r"target has float32 \[16, 3\] at 'head/kernel'; it must be float32 \[16, 12\]",
    ),
    "another dtype": (
        lambda p: p | {"head": {"kernel": p["head"]["kernel"].astype(jnp.bfloat16)}},
        r"target has bfloat16 \[16, 12\] at 'head/kernel'; it must be float32",
    ),
    "no array": (lambda p: p | {"head": {"kernel": 3}}, "target has 3 at 'head/kernel'; it must"),
}


@pytest.mark.parametrize("change", OTHERS)
def test_other_trees_are_refused_by_their_first_leaf_that_differs(change):
    generator = make()
    changed, said = OTHERS[change]
    with pytest.raises(specjax.UserError, match=said):
        generator.with_params(changed(generator.params["target"]))


@pytest.mark.parametrize(
    ("drafters", "said"),
    [
        ({"other": {}}, "drafters has 'other'; of drafters there are 'drafter', 'layer'"),
        ({"drafter": {}}, r"drafters\['drafter'\] has no leaf"),
        ([], r"drafters is \[\]; it must be a dictionary by name"),
    ],
)
def test_drafters_that_do_not_fit_are_refused(drafters, said):
    generator = make()
    with pytest.raises(specjax.UserError, match=said):
        generator.with_params(generator.params["target"], drafters)
