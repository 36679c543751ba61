"""Blockwise drafting: drafts against a direct computation, whole decodes against the target's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run, texts
from parallel_heads import random_heads
from scripted import WIDTH, PrefixModel, adjust_probabilities, prefix_params

from specjax.api import Generator
from specjax.contracts.context import Context, Options
from specjax.contracts.distribution import OneHot
from specjax.contracts.drafter import CALLS
from specjax.contracts.env import Env
from specjax.decoding.strategy import Strategy, from_config
from specjax.drafting.medusa import Medusa
from specjax.drafting.neural import Neural
from specjax.drafting.nodes import NOTHING
from specjax.loading import LoadedModel
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config
from specjax.runtime.errors import UserError
from specjax.sampling import make_sampling
from specjax.verification.block import BlockVerification

V, EOS, D, LENGTH = 11, 1, 12, 3
MODELS = {
    "t5": T5(
        T5Config(
            vocab_size=V, d_model=D, d_kv=4, d_ff=16, num_heads=2, num_layers=1,
            num_decoder_layers=1, eos=(EOS,),
        )
    ),
    "llama": Causal(
        CausalConfig(
            "llama", V, d_model=D, d_ff=16, num_layers=1, num_heads=2, num_kv_heads=1, d_head=6,
            max_positions=64, rope=Rope(6), eos=(EOS,),
        )
    ),
}  # fmt: skip
PROMPTS = [[3, 4, 5, 1], [6, 2], [7, 8, 9, 2, 3, 4, 2]]


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_greedy_decoding_gives_the_targets_own_tokens(kind):
    model = MODELS[kind]
    target = jax.tree.map(lambda x: x * 1.3, jax.jit(model.init)(jax.random.key(3)))
    # A trunk like the target, so that drafts are accepted as well as rejected.
    trunk = jax.tree.map(lambda x: x * 0.95, target)
    heads = random_heads(LENGTH, D, seed=0, scale=0.15)
    params = {"target": target, "drafter": trunk, "heads": heads}
    models = (("target", model), ("drafter", model))
    baseline, drafted = (
        run(models, params, strategy, PROMPTS, 16)
        for strategy in (Strategy(), Strategy(Medusa(LENGTH)))
    )
    assert texts(drafted) == texts(baseline)
    trace = drafted.trace
    assert 0 < np.sum(trace.accepted) < np.sum(trace.drafted)
    np.testing.assert_array_equal(trace.calls["drafter"], trace.calls["target"])
    np.testing.assert_array_equal(trace.stops.sum(axis=1), (trace.committed > 0).sum(axis=1))


MODEL = PrefixModel(6, eos=(EOS,))
PARAMS = {"drafter": prefix_params(6, seed=2), "heads": random_heads(LENGTH, WIDTH, 14, scale=0.6)}
TEXTS = [[0, 4, 2, 5, 3], [0, 2], [0, 3, 3, 2, 5, 4], [0, 5, 2, 4], [0, 3, 5], [0, 4]]
LIMITS = [20, 20, 7, 6, 4, 20]  # room for 15, 18, 1, 2, 1 and 18 drafted tokens
ACTIVE = [True, True, True, True, True, False]
SOURCE = [3, 2]


def make_context(settings) -> Context:
    tokens = np.zeros((len(TEXTS), 24), np.int32)
    for row, text in enumerate(TEXTS):
        tokens[row, : len(text)] = text
    length = jnp.array([len(text) for text in TEXTS], jnp.int32)
    return Context(
        encoder_tokens=jnp.tile(jnp.array([SOURCE], jnp.int32), (len(TEXTS), 1)),
        encoder_length=jnp.full(len(TEXTS), len(SOURCE), jnp.int32),
        tokens=jnp.asarray(tokens),
        length=length,
        begin=jnp.ones(len(TEXTS), jnp.int32),
        limit=jnp.array(LIMITS, jnp.int32),
        most=jnp.where(jnp.array(ACTIVE), jnp.minimum(jnp.array(LIMITS) - length, LENGTH), 0),
        active=jnp.array(ACTIVE),
        options=Options(make_sampling(*settings), {}),
    )


@jax.jit
def draft_tokens(context: Context):
    read = context.encoder_tokens, context.encoder_length
    cache, _ = MODEL.start(PARAMS["drafter"], *read, 24)
    keys = jax.random.split(jax.random.key(0), len(TEXTS))
    env = Env(PARAMS, (("drafter", MODEL),))
    draft, caches, _, log = Medusa(LENGTH).propose(env, {"drafter": cache}, NOTHING, context, keys)
    return draft.cut(context.most, MODEL.eos), caches, log


def head_logits(text: list[int]) -> np.ndarray:
    """Logits [K, V] of the heads after a text, without cache or batch, in float64."""
    weights = {name: np.asarray(value, np.float64) for name, value in PARAMS["drafter"].items()}
    state = weights["embedding"][SOURCE].sum(axis=0)
    state = np.tanh(
        state + sum(weights["embedding"][t] * weights["position"][i] for i, t in enumerate(text))
    )
    found = []
    for head in range(1, LENGTH + 1):
        tree = PARAMS["heads"].params[f"head_{head}"]
        tree = jax.tree.map(lambda x: np.asarray(x, np.float64), tree)
        inner = np.maximum(state @ tree["up"]["kernel"] + tree["up"]["bias"], 0)
        h = state + inner @ tree["down"]["kernel"] + tree["down"]["bias"]
        found.append(h @ weights["out"])
    return np.array(found)


def test_a_greedy_draft_is_the_argmax_of_each_head_up_to_eos_and_budget():
    draft, caches, log = draft_tokens(make_context((0.0, 0, 1.0)))
    expected = np.array([head_logits(text).argmax(axis=-1) for text in TEXTS])
    np.testing.assert_array_equal(draft.tokens, expected)
    assert [row.index(EOS) for row in expected.tolist() if EOS in row] == [0, 0]
    assert draft.length.tolist() == [1, 3, 1, 2, 1, 0]
    assert isinstance(draft.distribution, OneHot)
    assert log[CALLS + "drafter"].tolist() == [int(active) for active in ACTIVE]
    rows = np.array(ACTIVE)
    held = np.asarray(caches["drafter"].length)
    np.testing.assert_array_equal(held[rows], np.array(list(map(len, TEXTS)))[rows])


@pytest.mark.slow
def test_the_laws_of_a_sampled_draft_are_adjusted_as_the_targets():
    settings = (0.7, 4, 0.9)
    draft, *_ = draft_tokens(make_context(settings))
    for row, text in enumerate(TEXTS[:3]):
        expected = [adjust_probabilities(logits, *settings) for logits in head_logits(text)]
        np.testing.assert_allclose(draft.distribution.probs[row], expected, rtol=1e-4, atol=1e-6)
    drawn = np.take_along_axis(
        np.asarray(draft.distribution.probs), np.asarray(draft.tokens)[..., None], -1
    )
    assert np.all(drawn[:3] > 0)


def generator(drafter: Medusa, heads) -> Generator:
    loaded = LoadedModel(MODELS["t5"], {})
    return Generator(loaded, {"drafter": loaded}, Strategy(drafter), tables={"heads": heads})


@pytest.mark.parametrize(
    ("drafter", "heads", "named"),
    [
        (Medusa(4), random_heads(3, D, 0), "length is 4; 'heads' holds 3 heads"),
        (Medusa(2), random_heads(3, 8, 0), "of width 8; 'drafter' has 12"),
        (Medusa(2, model="target"), random_heads(3, D, 0), "reads states of the pending token"),
        (Neural(2, "target"), random_heads(3, D, 0), "drafter's model is 'target'"),
        (Medusa(2), {}, "'heads' is a dict; it must be LoadedHeads"),
    ],
)
def test_heads_that_do_not_fit_are_refused_at_the_door(drafter, heads, named):
    with pytest.raises(UserError, match=named):
        generator(drafter, heads)


def test_as_many_tokens_as_there_are_heads_are_allowed():
    assert generator(Medusa(3), random_heads(3, D, 0)).decoder.drafter.spec.width == 3


def test_a_config_names_the_drafter_its_trunk_and_its_length():
    spec = {"drafter": "medusa", "length": 4, "temperature": 1.0}
    made = from_config("mine", spec)
    assert made == Strategy(Medusa(4), BlockVerification(), temperature=1.0)
    assert from_config("mine", spec | {"model": "small"}).drafter.spec.models == ("small",)
    with pytest.raises(UserError, match="mine: length is missing"):
        from_config("mine", {"drafter": "medusa"})
    with pytest.raises(UserError, match="table is 'heads'; it must be a name other than"):
        from_config("mine", {"drafter": "bigram", "length": 2, "table": "heads"})
