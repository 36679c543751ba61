"""Decodes with models whose last layers read the caches of earlier ones, and tokens' vectors.

The target has several residual streams, and feed-forwards of which few gates remain.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, first_state, inputs, one_round, run, texts

import specjax
from specjax.contracts.rows import Caches
from specjax.decoding.state import Decoder, State
from specjax.decoding.strategy import Strategy
from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.neural import Neural
from specjax.drafting.nothing import Nothing
from specjax.loading import LoadedModel
from specjax.models.altup import AltUp
from specjax.models.causal import Causal, CausalConfig
from specjax.models.layer_inputs import LayerInputs
from specjax.models.positions import Rope
from specjax.verification.fitted import FittedReader
from specjax.verification.whole import ResumedReader

V, EOS, LIMIT = 12, 1, 40
CONFIG = CausalConfig(
    "gemma3n_text", V, d_model=16, d_ff=24, num_layers=5, num_heads=4, num_kv_heads=2, d_head=8,
    max_positions=256, rope=Rope(8), windows=(3, 0, 3, 0, 3), shared_caches=(1, 2),
    d_ffs=(24, 24, 24, 48, 48), layer_inputs=LayerInputs(6, V), eos=(EOS,),
    altup=AltUp(3, active=1), laurel_rank=4, sparsities=(0.8, 0.5, 0.0, 0.0, 0.3),
)  # fmt: skip
NARROW = dataclasses.replace(
    CONFIG, family="gemma4_text", d_model=12, num_layers=2, windows=(4, 4), shared_caches=(0,),
    d_ffs=(), altup=None, laurel_rank=0, sparsities=(),
)  # fmt: skip
MODELS = (("target", Causal(CONFIG)), ("drafter", Causal(NARROW)))
PROMPTS = [[3, 4, 5, 6, 7, 8, 9, 2, 3, 4], [6], [7, 8, 9, 2, 3, 4], [2, 2]]
STRATEGIES = {
    "none": Strategy(Nothing()),
    "neural": Strategy(Neural(4)),
    "sampled": Strategy(Neural(3), temperature=1.0),
    "exit": Strategy(EarlyExit(3, exit=2), reader=FittedReader((1, 3), ResumedReader(2))),
    "late_exit": Strategy(EarlyExit(2, exit=4), reader=ResumedReader(4)),
    "tree": Strategy(Neural(widths=(3, 2, 1))),
    "sampled_tree": Strategy(Neural(parents=(-1, -1, 0, 2, 1, 0)), temperature=1.0),
    "likeliest_nodes": Strategy(Neural(widths=(4, 3, 2), nodes=10)),
    "suffix_tree": specjax.strategy(drafter="suffix", length=4, branches=2),
}
GREEDY = [name for name, one in STRATEGIES.items() if not one.temperature and name != "none"]


@functools.cache
def weights() -> dict[str, Any]:
    drawn = {name: model.init(jax.random.key(seed)) for seed, (name, model) in enumerate(MODELS)}
    return jax.tree.map(lambda x: x * 1.5, drawn)


class OnPlainCaches(Decoder):
    """A decode that does not know how far ahead it writes, so it has no rings."""

    ahead = None


def rounds(strategy: Strategy) -> list[State]:
    """Every state of a decode on plain caches, the first one too."""
    made = decoder(MODELS, strategy, LIMIT)
    made = OnPlainCaches(
        **{each.name: getattr(made, each.name) for each in dataclasses.fields(made)}
    )
    params = {name: weights()[name] for name in made.inputs}
    prompt, length, keys, limits = inputs(PROMPTS, LIMIT)
    limits -= jnp.array([0, 15, 5, 1])  # rows end at different rounds
    found = [first_state(made, params, prompt, length, keys, limits, strategy.options())]
    while bool(found[-1].context.active.any()):
        found.append(one_round(made, params, found[-1]))
    return found


@jax.jit
def fresh(caches: Caches, tokens: jax.Array) -> Caches:
    """Caches of the same models with all tokens fed at once, under the same pointers."""
    made = {}
    for name, cache in caches.items():
        model, params = dict(MODELS)[name], weights()[name]
        empty, _ = model.start(params, tokens[:, :1], cache.length * 0 + 1, tokens.shape[1])
        made[name] = model.extend(params, tokens, empty)[1].replace(length=cache.length)
    return made


def is_fresh(state: State, name: str) -> bool:
    """Whether all keys and values under the pointers are those of the text."""
    found, expected = state.caches[name], fresh(state.caches, state.context.tokens)[name]
    below = np.arange(state.context.tokens.shape[1]) < np.asarray(found.length)[:, None]
    pairs = zip(*(jax.tree.leaves(cache.data["own"]) for cache in (found, expected)), strict=True)
    return all(
        np.abs(np.asarray(a) - np.asarray(b))
        .max(axis=(1, 3), where=below[:, None, :, None], initial=0)
        .max()
        < 1e-4
        for a, b in pairs
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_after_every_round_the_caches_are_those_of_the_text_and_as_many_as_own_one(
    name: str,
) -> None:
    every = rounds(STRATEGIES[name])
    assert len(every) > 5
    for state in every:
        assert all(is_fresh(state, model) for model in state.caches)
    owned = {model: len(cache.data["own"]) for model, cache in every[0].caches.items()}
    assert owned.items() <= {"target": 3, "drafter": 1}.items()


def decode(name: str, limit: int = LIMIT) -> list[list[int]]:
    return texts(run(MODELS, weights(), STRATEGIES[name], PROMPTS, limit))


@pytest.mark.slow
@pytest.mark.parametrize("name", GREEDY)
def test_greedy_tokens_on_rings_are_those_without_drafts(name: str) -> None:
    found = decode(name, 120)
    assert found == decode("none", 120) and len({t for row in found for t in row}) > 4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["neural", "tree", "none"])
def test_refilled_rows_have_the_tokens_of_one_batch(name: str) -> None:
    """Also of prompts that are longer than a ring."""
    loaded = {key: LoadedModel(model, weights()[key], None, key) for key, model in MODELS}
    drafters = {} if name == "none" else {"drafter": loaded["drafter"]}
    generator = specjax.Generator(loaded["target"], drafters, STRATEGIES[name], max_new_tokens=20)
    draw = np.random.default_rng(3)
    lengths = draw.permutation(np.arange(1, 80, 7))
    prompts = [draw.integers(2, V, length).tolist() for length in lengths]
    assert generator(prompts, batch_size=3).tokens == generator(prompts).tokens
