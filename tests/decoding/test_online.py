"""A drafter that learns between rounds: its law is what is tested, and tests alone teach it."""

from __future__ import annotations

import dataclasses
import functools

import exits
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run, texts
from feature_drafters import without_encoder
from scripted import (
    WIDTH,
    PrefixModel,
    adjust_probabilities,
    chi_square,
    count_outputs,
    prefix_params,
    sequence_distribution,
)

import specjax
from specjax.contracts.distribution import Categorical
from specjax.decoding.loop import generate
from specjax.decoding.strategy import Strategy, from_config
from specjax.drafting.neural import Neural
from specjax.drafting.online import GRADIENTS
from specjax.models.on_target import FeatureDrafter
from specjax.runtime.errors import UserError
from specjax.sampling import adjust
from specjax.selection.choosing import ByChance
from specjax.selection.strategies import make_selected
from specjax.training.loss import ACCEPTANCE_AWARE, DIVERGENCES, from_target

V, EOS = 5, 1
SOURCE = (3, 2, 4, 2)
PROMPTS = [[3, 2, 4, 2], [2, 2], [4, 3, 2], [3], [4, 4, 2, 3], [2, 4], [3, 3], [2, 3, 4, 4]]
MODEL = PrefixModel(V, eos=(EOS,))
MODELS = (("target", MODEL), ("drafter", MODEL))
PARAMS = {"target": prefix_params(V, seed=1), "drafter": prefix_params(V, seed=2, scale=0.7)}
P_VALUE = 1e-3

FIELDS = {
    "one": {"drafter": "neural", "length": 1},
    "neural": {"drafter": "neural", "length": 3},
    "total_variation": {"drafter": "neural", "length": 1, "online_divergence": "total_variation"},
    "lk_lambda": {"drafter": "neural", "length": 2, "online_divergence": "lk_lambda"},
    "tv_ce": {"drafter": "neural", "length": 3, "online_divergence": "tv_ce"},
    "break_even": {"drafter": "neural", "length": 2, "adapt": "break_even", "cost": 0.3},
    "fitted": {"drafter": "neural", "length": 2, "confidence": 0.4, "reader": "fitted"},
    "early_exit": {"drafter": "early_exit", "exit": 1, "length": 2},
    "eagle": {"drafter": "eagle", "length": 1},
    "dflash": {"drafter": "dflash", "length": 2},
    "block": {"drafter": "neural", "length": 2, "rule": "block"},
}


def first_fast(*names: str) -> list:
    """All but the first are slow: each compiles a decode."""
    first, *others = names
    return [first, *(pytest.param(name, marks=pytest.mark.slow) for name in others)]


def make(kind: str, rate: float, **more) -> Strategy:
    return specjax.strategy(**FIELDS[kind], online_rate=rate, **more)


@functools.cache
def feature_drafter(kind: type[FeatureDrafter]):
    return without_encoder(V, WIDTH, (1,), (1, 2, 4), 0, kind=kind)


def decode_online(strategy: Strategy, prompts, limit: int, seed: int = 7):
    if strategy.drafter.spec.features:
        model, own = feature_drafter(strategy.drafter.drives)
        models = (MODELS[0], ("drafter", model))
        return run(models, {**PARAMS, "drafter": own}, strategy, prompts, limit, seed)
    return run(MODELS, PARAMS, strategy, prompts, limit, seed)


def p_value(strategy: Strategy, rows: int) -> float:
    distribution = sequence_distribution(
        MODEL, PARAMS["target"], SOURCE, (0,), 3, strategy.settings
    )
    return chi_square(
        count_outputs(texts(decode_online(strategy, [SOURCE] * rows, 3))), distribution
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", first_fast(*FIELDS))
def test_sampling_keeps_the_targets_distribution_however_fast_it_learns(kind, rows):
    assert p_value(make(kind, 3.0, temperature=1.0), rows) > P_VALUE


@dataclasses.dataclass(frozen=True)
class OfOldParameters(Neural):
    """Wrong on purpose: says that tokens were drawn without what was learned."""

    def propose(self, env, caches, memory, context, keys):
        logits, _ = self.open(env, caches, memory.own, context)
        draft, *others = super().propose(env, caches, memory, context, keys)
        said = Categorical(adjust(logits, context.options.sampling)[:, None])
        return draft.replace(distribution=said), *others


@pytest.mark.slow
def test_a_law_of_other_parameters_than_those_that_drafted_is_seen(rows):
    wrong = OfOldParameters(1, online_rate="online_rate")
    used = Strategy(wrong, temperature=1.0, numbers=(("online_rate", 3.0),))
    assert p_value(used, rows) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", first_fast("dflash", "eagle", "total_variation", "break_even", "fitted")
)
def test_greedy_outputs_are_the_targets_own(kind):
    out = decode_online(make(kind, 1.0), PROMPTS, 12)
    assert texts(out) == texts(decode_online(Strategy(), PROMPTS, 12))
    assert float(jnp.abs(_learn(out).bias).max()) > 0.1


@pytest.mark.slow
@pytest.mark.parametrize("kind", exits.MODELS)
def test_early_exits_learn_and_write_the_targets_own(kind):
    out = exits.decode(kind, make("early_exit", 1.0))
    assert texts(out) == texts(exits.decode(kind, Strategy()))
    # At most 0.08 where the first layers of random weights say nearly what the last ones do.
    assert float(jnp.abs(out.memory.learned.bias).max()) > 0.01


def test_a_row_learns_for_itself_whoever_shares_its_batch():
    strategy = make("neural", 1.0, temperature=1.0)
    mine = decode_online(strategy, PROMPTS, 12)
    others = [PROMPTS[0], *([4] * len(prompt) for prompt in PROMPTS[1:-1]), PROMPTS[-1]]
    again = decode_online(strategy, others, 12)
    for row in (0, -1):
        assert texts(again)[row] == texts(mine)[row]
        bias = np.asarray(_learn(again).bias)[row]
        np.testing.assert_array_equal(bias, np.asarray(_learn(mine).bias)[row])
    assert texts(again) != texts(mine)


def _learn(generation):
    return generation.memory.learned


@pytest.mark.slow
@pytest.mark.parametrize("divergence", GRADIENTS)
def test_gradients_are_those_of_the_divergences(divergence):
    rng = np.random.default_rng(0)
    ids = 14  # more than top_k takes
    target, logits = (jnp.asarray(rng.normal(size=(6, ids)), jnp.float32) for _ in range(2))
    written = jnp.arange(6)
    of_text = divergence == "tv_ce"

    def loss(bias):
        p, q = jax.nn.log_softmax(target), jax.nn.log_softmax(logits + bias)
        labels = {"labels": written} if of_text else {}
        return jnp.sum(DIVERGENCES[divergence](p, q, **labels))

    text = (written,) if of_text else ()
    own = GRADIENTS[divergence](jax.nn.softmax(target), jax.nn.softmax(logits), *text)
    np.testing.assert_allclose(jnp.sum(own, axis=0), jax.grad(loss)(jnp.zeros(ids)), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("divergence", ACCEPTANCE_AWARE)
def test_gradients_of_acceptance_are_those_of_a_reduced_vocabulary_in_training(divergence):
    rng = np.random.default_rng(1)
    p, q = (jax.nn.softmax(jnp.float32(rng.normal(size=14))) for _ in range(2))
    lacking = np.arange(14) % 3 == 0
    ids = np.flatnonzero(~lacking)
    q = jnp.where(lacking, 0.0, q) / jnp.sum(q[ids])
    for written, place in ((ids[4], 4), (0, -1)):  # one that can be drafted, one that cannot
        text, labels = (), {}
        if divergence == "tv_ce":
            text, labels = (jnp.array(written),), {"labels": jnp.array(place)}

        def loss(z, labels=labels):
            return from_target(divergence, p[ids], z, **labels)

        own = GRADIENTS[divergence](jnp.where(lacking, 0.0, p), q, *text)
        np.testing.assert_allclose(own[ids], jax.grad(loss)(jnp.log(q[ids])), atol=1e-6)
        np.testing.assert_array_equal(own[lacking], 0.0)


@pytest.mark.slow
def test_ids_that_a_drafter_lacks_teach_nothing():
    """The gradient of what is left of the cross-entropy, and none on ids without a logit."""
    target = jnp.array([0.3, 1.0, -0.4, 2.0, 0.1])
    logits = jnp.array([0.5, -1e9, 0.2, -1e9, 1.0])
    said = logits > -1e8

    def loss(bias):
        q = jax.nn.log_softmax(logits + bias)
        return -jnp.sum(jnp.where(said, jax.nn.softmax(target) * q, 0.0))

    q = jax.nn.softmax(logits)
    p = jnp.where(q > 0, jax.nn.softmax(target), 0.0)
    own = GRADIENTS["forward_kl"](p, q)
    np.testing.assert_allclose(own, jax.grad(loss)(jnp.zeros(V)), atol=1e-6)
    assert own[1] == own[3] == 0
    out = decode_online(make("dflash", 1.0), PROMPTS, 12)
    lacking = np.asarray(_learn(out).bias)[:, [0, 3]]
    np.testing.assert_array_equal(lacking, np.zeros_like(lacking))


RATE = 0.8


def step_of(divergence: str, p: np.ndarray, q: np.ndarray, written: int) -> np.ndarray:
    """What the bias should move by at a rate of one."""
    if divergence == "forward_kl":
        return p - q
    away = np.sign(p - q)
    return 0.1 * (np.eye(V)[written] - q) + 0.9 * q * (away - (away * q).sum())


def rebuild_record(
    prompt, text, trace, row: int, temperature: float, divergence: str
) -> np.ndarray:
    """The bias [V] after a text, worked out in float64 from the trace and uncached logits.

    Also holds every greedy draft against what the drafter with its bias would draft.
    """
    bias = np.zeros(V)
    at = 0
    drafts, drafted = np.asarray(trace.proposed)[row], np.asarray(trace.drafted)[row]
    accepted, committed = np.asarray(trace.accepted)[row], np.asarray(trace.committed)[row]
    for number in range(int(trace.rounds)):
        step = np.zeros(V)
        count = int(drafted[number])
        for place in range(min(accepted[number] + 1, count)):
            prefix = (0, *text[:at], *drafts[number, :place].tolist())
            logits = MODEL.logits(PARAMS["drafter"], prompt, prefix) + bias
            if temperature == 0:
                assert drafts[number, place] == logits.argmax()
            q = adjust_probabilities(logits, 1.0, 0, 1.0)
            p = adjust_probabilities(MODEL.logits(PARAMS["target"], prompt, prefix), 1.0, 0, 1.0)
            step += step_of(divergence, p, q, text[at + place])
        bias += RATE * step
        at += int(committed[number])
    assert at == len(text)
    return bias


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "temperature"), [("neural", 0.0), ("neural", 1.0), ("tv_ce", 1.0)]
)
def test_tested_positions_teach_it_and_no_others(kind, temperature):
    divergence = FIELDS[kind].get("online_divergence", "forward_kl")
    out = decode_online(make(kind, RATE, temperature=temperature), PROMPTS, 12)
    if temperature == 0:
        assert texts(out) == texts(decode_online(Strategy(), PROMPTS, 12))
    expected = [
        rebuild_record(prompt, text, out.trace, row, temperature, divergence)
        for row, (prompt, text) in enumerate(zip(PROMPTS, texts(out), strict=True))
    ]
    np.testing.assert_allclose(_learn(out).bias, expected, atol=1e-4)
    drafted, accepted = np.asarray(out.trace.drafted), np.asarray(out.trace.accepted)
    assert np.any(accepted + 1 < drafted)  # some positions were not tested


def test_a_rate_of_zero_changes_nothing_and_a_sweep_compiles_nothing():
    plain = decode_online(specjax.strategy(**FIELDS["neural"], temperature=1.0), PROMPTS, 12)
    zero = decode_online(make("neural", 0.0, temperature=1.0), PROMPTS, 12)
    compiled = generate._cache_size()
    fast = decode_online(make("neural", 2.0, temperature=1.0), PROMPTS, 12)
    assert generate._cache_size() == compiled
    assert texts(zero) == texts(plain) != texts(fast)
    np.testing.assert_array_equal(zero.trace.proposed, plain.trace.proposed)
    assert not np.array_equal(fast.trace.proposed, plain.trace.proposed)


@pytest.mark.slow
@pytest.mark.parametrize("divergence", GRADIENTS)
def test_a_drafter_that_learns_is_accepted_more(divergence):
    """Of a target that prefers the same ids everywhere, which the drafter does not know."""
    model = PrefixModel(V)  # no text ends early
    weights = prefix_params(V, seed=1)
    # tanh saturates at 1 there: an id's logit grows by its entry.
    preferred = {**weights, "embedding": weights["embedding"].at[:, 0].set(9.0)}
    preferred["position"] = weights["position"].at[:, 0].set(1.0)
    target = {**preferred, "out": preferred["out"].at[0].set(jnp.array([3.0, 0, 0, 2.0, 0]))}
    drafter = {**preferred, "out": preferred["out"].at[0].set(0.0)}
    models = (("target", model), ("drafter", model))
    rate = {}
    for name, step in (("off", 0.0), ("on", 0.3)):
        strategy = specjax.strategy(
            drafter="neural", length=3, temperature=1.0, online_rate=step,
            online_divergence=divergence,
        )  # fmt: skip
        params = {"target": target, "drafter": drafter}
        trace = run(models, params, strategy, PROMPTS * 4, 48).trace
        rate[name] = float(jnp.sum(trace.overlap) / jnp.sum(trace.tested))
    assert rate["on"] > rate["off"] + 0.05, rate


@pytest.mark.slow
def test_arms_learn_from_their_own_rows():
    arms = {
        "slow": specjax.strategy(drafter="neural", length=2, online_rate=1.0),
        "none": specjax.strategy(drafter="uniform", length=3),
    }
    out = decode_online(make_selected(arms, ByChance()), PROMPTS, 12)
    assert texts(out) == texts(decode_online(Strategy(), PROMPTS, 12))


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"online_rate": -1.0}, "strategies.a.online_rate is -1.0; it must be a number of at"),
        ({"online_divergence": "total_variation"}, "online_divergence needs online_rate"),
        (
            {"online_rate": 1.0, "online_divergence": "far"},
            "online_divergence is 'far'; it must be one of forward_kl, total_variation",
        ),
    ],
)
def test_what_does_not_fit_is_refused(fields, sentence):
    with pytest.raises(UserError, match=sentence):
        from_config("a", {"drafter": "neural", "length": 2, **fields})
