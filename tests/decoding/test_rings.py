"""Decodes on rings: after every round a window still reaches what a plain cache would hold."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, first_state, inputs, one_round, texts
from parallel_heads import random_heads

import specjax
from specjax.contracts.catching_up import CHUNK, catch_up, feed_last
from specjax.contracts.context import Context, Options
from specjax.contracts.env import Bound
from specjax.decoding.loop import generate
from specjax.decoding.state import Decoder
from specjax.decoding.strategy import Strategy, autoregressive, speculative
from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.matrix import Cascade
from specjax.drafting.medusa import Medusa
from specjax.drafting.neural import Neural
from specjax.drafting.nothing import Nothing
from specjax.hf.huggingface import load
from specjax.models.base import Cache
from specjax.models.caches import Ring
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.sampling import make_sampling
from specjax.selection import switching
from specjax.selection.arms import Arm
from specjax.selection.switched import SwitchedArms
from specjax.verification.lenient import Lenient
from specjax.verification.whole import ResumedReader, WholeReader

V, LIMIT, LAG = 12, 60, 4
GOLDEN = Path(__file__).parents[1] / "golden" / "mistral"
CONFIG = CausalConfig(
    "mistral", V, d_model=16, d_ff=24, num_layers=2, num_heads=2, num_kv_heads=1, d_head=8,
    max_positions=256, rope=Rope(8), windows=(3, 6),
)  # fmt: skip
MODELS = tuple(
    (name, Causal(dataclasses.replace(CONFIG, **changes)))
    for name, changes in (
        ("target", {}),
        ("drafter", {"d_model": 12, "num_layers": 1, "windows": (4,)}),
        ("little", {"d_model": 8, "num_layers": 1, "windows": (2,)}),
    )
)
PROMPTS = [[3, 4, 5, 6, 7, 8, 9, 2, 3, 4], [6], [7, 8, 9, 2, 3, 4], [2, 2]]
ARMS = (
    Arm("none", Nothing(), WholeReader()),
    Arm("small", Neural(3), WholeReader()),
    Arm("exit", EarlyExit(2, exit=1), ResumedReader(1)),
    Arm("tiny", Neural(2, "little"), WholeReader()),
)
SWITCHED = (("costs", (0.0, 0.1, 0.2, 0.1)), *switching.DEFAULTS.items(), ("explore", 3.0))
STRATEGIES = {
    "none": Strategy(Nothing()),
    "neural": Strategy(Neural(3), temperature=1.0),
    "neural_tree": Strategy(Neural(widths=(2, 2)), temperature=1.0),
    "exit": Strategy(EarlyExit(3, exit=1)),
    "blockwise": Strategy(Medusa(3), Lenient(), temperature=1.0, numbers=(("lenience", 1e-4),)),
    "bild_official": specjax.strategy(
        drafter="bild", rollback=1.5, length=3, fallback=0.2, compat="official"
    ),
    "cascade": Strategy(
        Cascade(("drafter", "little"), ((2, 1), (0, 2)), lenience="lenience"),
        temperature=1.0,
        numbers=(("lenience", 0.2),),
    ),
    "switched": Strategy(
        SwitchedArms(ARMS, (1, 3), thompson=True), temperature=1.0, numbers=SWITCHED
    ),
}


@functools.cache
def weights():
    drawn = {name: model.init(jax.random.key(seed)) for seed, (name, model) in enumerate(MODELS)}
    sharper = {name: jax.tree.map(lambda x: x * 1.5, tree) for name, tree in drawn.items()}
    return sharper | {"heads": random_heads(3, 12, seed=0)}


class OnPlainCaches(Decoder):
    """A decode that does not know how far ahead it writes, so it has no rings."""

    ahead = None


def plain(made: Decoder) -> OnPlainCaches:
    return OnPlainCaches(
        **{each.name: getattr(made, each.name) for each in dataclasses.fields(made)}
    )


def rounds(strategy: Strategy, rings: bool, limit: int = LIMIT):
    """Every state of a decode, the first one too."""
    made = decoder(MODELS, strategy, limit)
    made = made if rings else plain(made)
    params = {name: weights()[name] for name in made.inputs}
    prompt, length, keys, limits = inputs(PROMPTS, limit)
    limits -= jnp.array([0, 25, 9, 1])  # rows end at different rounds
    state = first_state(made, params, prompt, length, keys, limits, strategy.options())
    yield state
    while bool(state.context.active.any()):
        yield (state := one_round(made, params, state))


def lost(own: Ring, full: tuple, window: int, pointer: np.ndarray) -> list[tuple[int, int]]:
    """(row, slot) under the pointers, which a window reaches, that the ring does not have."""
    size, found = own.keys.shape[2], []
    for row, end in enumerate(pointer):
        for slot in range(max(end - window - LAG + 1, 0), end):
            pairs = zip(own, full, strict=True)
            far = [np.abs(a[row, :, slot % size] - b[row, :, slot]).max() for a, b in pairs]
            if max(far) > 1e-4:
                found.append((row, slot))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_after_every_round_rings_hold_what_windows_reach(name: str) -> None:
    strategy = STRATEGIES[name]
    on_rings, on_plain = (list(rounds(strategy, rings)) for rings in (True, False))
    assert len(on_rings) == len(on_plain) > 10
    for ring, full in zip(on_rings, on_plain, strict=True):
        np.testing.assert_array_equal(ring.context.tokens, full.context.tokens)
        for model, cache in ring.caches.items():
            pointer = np.asarray(cache.length)
            np.testing.assert_array_equal(pointer, full.caches[model].length)
            windows = dict(MODELS)[model].config.windows
            pairs = zip(cache.data["own"], full.caches[model].data["own"], windows, strict=True)
            for own, wanted, window in pairs:
                assert isinstance(own, Ring) and own.keys.shape[2] < wanted[0].shape[2]
                assert lost(jax.device_get(own), jax.device_get(wanted), window, pointer) == []
    end, largest = on_rings[-1].context.length, max(map(np.max, cache_sizes(on_rings[-1])))
    assert np.max(end) > 2 * largest  # every ring went round twice


def cache_sizes(state) -> list[list[int]]:
    """Places of every model's rings."""
    return [[own.keys.shape[2] for own in c.data["own"]] for c in state.caches.values()]


def make_context(tokens: jax.Array, length: jax.Array, active: jax.Array) -> Context:
    nothing, first = tokens[:, :0], jnp.zeros_like(length)
    most = jnp.where(active, 3, 0)
    options = Options(make_sampling(0.0), {})
    return Context(nothing, first, tokens, length, first, length + 5, most, active, options)


@functools.partial(jax.jit, static_argnames=("model", "lag"))
def drafting(model: Causal, params, cache: Cache, context: Context, lag: int) -> Cache:
    """The cache after two tokens were drafted for the active rows."""
    bound, before = Bound(model, params), cache.length
    cache = catch_up(bound, cache, context, lag)
    _, cache = feed_last(bound, cache, context, lag)
    for step in range(2):
        _, cache = bound.extend(context.tokens[:, step : step + 1], cache)
    after = jnp.where(context.active, jnp.minimum(cache.length, context.length - 1), before)
    return cache.replace(length=after)


@functools.partial(jax.jit, static_argnames=("model", "lag"))
def compute_logits(model: Causal, params, cache: Cache, context: Context, lag: int) -> jax.Array:
    """Logits behind the text of all rows."""
    bound = Bound(model, params)
    return feed_last(bound, catch_up(bound, cache, context, lag), context, lag)[0]


@pytest.mark.slow
def test_a_model_that_is_not_asked_loses_nothing_of_its_window() -> None:
    """It lags behind while it drafts for another row; then its turn comes.

    By as much as another row's calls would need to overwrite what its next token sees, and no
    more: what that was then still reaches, by two layers, the token that is asked for.
    """
    model = Causal(dataclasses.replace(CONFIG, windows=(16, 16)))
    drawn = jax.tree.map(lambda x: x * 1.5, model.init(jax.random.key(1)))
    ahead, lag = CHUNK + 4, 2
    tokens = jax.random.randint(jax.random.key(0), (2, 64), 2, V)
    logits = []
    for given in (ahead, None):
        begin = jax.jit(functools.partial(model.start, capacity=70, ahead=given))
        cache, _ = begin(drawn, tokens[:, :20], jnp.array([20, 20]))
        for length in range(24, 36, 4):
            context = make_context(tokens, jnp.array([length] * 2), jnp.array([True, False]))
            cache = drafting(model, drawn, cache, context, lag)
        assert cache.length[1] == 19
        context = context.replace(active=jnp.array([True, True]))
        logits.append(compute_logits(model, drawn, cache, context, lag))
    np.testing.assert_allclose(*logits, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(autoregressive(), id="plain"),
        pytest.param(speculative(2), id="drafted"),
    ],
)
@pytest.mark.slow
def test_the_golden_mistral_decodes_the_same_text_on_rings(strategy) -> None:
    checkpoint, limit = load(GOLDEN), 40
    models = (("target", checkpoint.model), ("drafter", checkpoint.model))
    weights = checkpoint.params
    params = {"target": weights, "drafter": jax.tree.map(lambda x: x * 0.9, weights)}
    prompts = [[5, 9, 33, 71, 20, 8, 64, 90, 12, 11, 4], [17, 2]]
    made = strategy.decoder(models, limit)
    assert checkpoint.model.config.windows[0] + made.ahead < made.buffer(11)
    kept = {name: params[name] for name in made.inputs}
    given = *inputs(prompts, limit), strategy.options()
    ring, full = (texts(generate(each, kept, *given)) for each in (made, plain(made)))
    assert ring == full


def test_a_decode_says_how_far_ahead_it_writes() -> None:
    """A draft of three and the pending token, one catching-up call, and a call's width back."""
    assert speculative(3).decoder(MODELS, 8).ahead == 4 + CHUNK + 4
    assert autoregressive().decoder(MODELS, 8).ahead == 1 + CHUNK + 1


def test_decodes_of_the_same_logits_have_rings_of_one_size() -> None:
    """Attention adds over all places of a ring."""
    chains = [one for one in STRATEGIES.values() if not one.drafter.spec.tree]
    made = [one.decoder(MODELS, 8, invariant=7) for one in chains]
    assert len({decoder.ahead for decoder in made}) == 1
