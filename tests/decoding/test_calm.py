"""CALM: thresholds by hand; tokens, exits and caches against a direct computation."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, first_state, inputs, one_round, run, texts
from exits import BOTH, DEPTH, MODELS, PARAMS, PROMPTS, Uncached, decode, sixteen_prompts

import specjax
from specjax.decoding.loop import generate
from specjax.decoding.state import Decoder
from specjax.decoding.strategy import Strategy
from specjax.drafting.neural import Neural
from specjax.models.base import Resume
from specjax.verification.calm import LAYERS, PUBLIC, SATURATION, SOFTMAX, Calm
from specjax.verification.speculative_sampling import SpeculativeSampling

LIMIT = 14
SOME = {SATURATION: 0.9, SOFTMAX: 0.2}
"""Thresholds at which tokens of the tiny models leave at every layer that they can."""


def calm(threshold: float, tau: float = 0.0, **how) -> Strategy:
    return specjax.strategy(reader="calm", threshold=threshold, tau=tau, **how)


@dataclasses.dataclass
class Place:
    """As much of a context as the threshold needs."""

    begin: jax.Array
    limit: jax.Array
    length: jax.Array
    options: object


@pytest.mark.parametrize(
    ("decay", "threshold", "tau", "expected"),
    [
        # t = 0, 5 and 19 of N = 20.
        ("paper", 0.8, 0.0, [0.82, 0.82, 0.82]),
        ("paper", 0.8, 4.0, [0.82, 0.756788, 0.722237]),
        ("paper", 1.0, 4.0, [1.0, 0.936788, 0.902237]),
        (PUBLIC, 0.8, 0.0, [0.8, 0.8, 0.8]),
        (PUBLIC, 0.8, 4.0, [0.8, 0.749430, 0.721790]),
    ],
)
def test_the_threshold_decays_with_the_place_in_the_text(decay, threshold, tau, expected):
    rows = jnp.array([7, 7, 7])
    options = calm(threshold, tau, decay=decay).options()
    place = Place(rows, rows + 20, rows + jnp.array([0, 5, 19]), options)
    np.testing.assert_allclose(Calm(decay=decay).compute_threshold(place), expected, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "measure"), [("t5", SATURATION), ("llama", SOFTMAX)])
def test_without_exits_the_tokens_are_those_of_the_uncached_model(kind, measure):
    generation = decode(kind, calm(1.0, measure=measure))
    assert texts(generation) == [Uncached(kind).greedy(prompt, LIMIT) for prompt in PROMPTS]
    ran = np.asarray(generation.trace.committed) > 0
    assert np.all(np.asarray(generation.trace.column(LAYERS))[ran] == DEPTH)


@pytest.mark.slow
def test_tokens_that_leave_early_obey_settings():
    strategy = calm(0.0, measure=SOFTMAX)
    free = texts(decode("t5", strategy))
    common = {token for row in free for token in row[:2]} - {1}
    assert len(common) > 2
    settings = {"suppress_tokens": sorted(common), "min_new_tokens": 6}
    rows = texts(decode("t5", strategy, settings=settings))
    assert min(map(len, rows)) >= 6 and not common & {token for row in rows for token in row}


@pytest.mark.slow
def test_at_threshold_zero_every_token_leaves_at_its_first_chance():
    for measure, first in {SATURATION: 2, SOFTMAX: 1}.items():
        trace = decode("t5", calm(0.0, 1e6, measure=measure, decay=PUBLIC)).trace
        layers = np.asarray(trace.column(LAYERS))[np.asarray(trace.committed) > 0]
        if measure == SATURATION:
            assert set(layers) <= {first, DEPTH}  # opposite states have a negative cosine
        else:
            assert set(layers) == {first}


class Direct:
    """One token at a time and one layer at a time, in numpy where it decides."""

    def __init__(self, kind: str, measure: str, threshold: float) -> None:
        self.model, self.params = MODELS[kind], PARAMS[kind]
        self.measure, self.threshold = measure, threshold
        self.layer = [jax.jit(functools.partial(self._layer, at=i)) for i in range(DEPTH)]
        self.keep = [
            jax.jit(functools.partial(self.model.propagate, layers=(i, i + 1)))
            for i in range(DEPTH)
        ]

    def _layer(self, params, tokens, cache, state=None, *, at: int):
        resume = None if state is None else Resume(state, at)
        return self.model.extend(params, tokens, cache, exit=at + 1, resume=resume)

    def step(self, token: int, cache):
        """(next token, layers, cache) of one row."""
        start, state, used = cache.length, None, DEPTH
        for i in range(DEPTH):
            if i < used:
                before = state
                how = () if i == 0 else (state,)
                output, cache = self.layer[i](self.params, jnp.array([[token]]), cache, *how)
                state, cache = output.hidden, cache.replace(length=start)
                if self.sure(output, before) >= self.threshold:
                    used = i + 1
            else:
                cache = self.keep[i](self.params, state, cache)
        logits = self.model.read_out(self.params, state)[0, 0]
        return int(jnp.argmax(logits)), used, cache.replace(length=start + 1)

    def sure(self, output, before) -> float:
        if self.measure == SOFTMAX:
            distribution = np.sort(np.asarray(jax.nn.softmax(output.logits[0, 0]), np.float64))
            return distribution[-1] - distribution[-2]
        if before is None:
            return -np.inf
        a, b = (np.asarray(x[0, 0], np.float64) for x in (output.hidden, before))
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    def decode(self, prompt: list[int], limit: int):
        """(tokens, layers, cache) of a whole text."""
        length = jnp.array([len(prompt)])
        start = jax.jit(functools.partial(self.model.start, capacity=LIMIT + len(prompt) + 4))
        cache, _ = start(self.params, jnp.array([prompt]), length)
        token = prompt[-1] if self.model.info.start_token is None else self.model.info.start_token
        made, layers = [], []
        while len(made) < limit and made[-1:] != [1]:
            token, used, cache = self.step(token, cache)
            made.append(token)
            layers.append(used)
        return made, layers, cache


@pytest.mark.parametrize("kind", BOTH)
@pytest.mark.parametrize("measure", [SATURATION, pytest.param(SOFTMAX, marks=pytest.mark.slow)])
def test_tokens_layers_and_caches_are_those_of_a_direct_computation(kind, measure):
    threshold = SOME[measure]
    strategy = calm(threshold, measure=measure, decay=PUBLIC)
    made = decoder((("target", MODELS[kind]),), strategy, LIMIT)
    params = {"target": PARAMS[kind]}
    prompt, length, keys, limit = inputs(PROMPTS, LIMIT)
    state = first_state(made, params, prompt, length, keys, limit, strategy.options())
    while bool(state.context.active.any()):
        state = one_round(made, params, state)
    direct, seen = Direct(kind, measure, threshold), set()
    cache = state.caches["target"]
    for row, text in enumerate(PROMPTS):
        tokens, layers, expected = direct.decode(text, LIMIT)
        begin, end = int(state.context.begin[row]), int(state.context.length[row])
        assert state.context.tokens[row, begin:end].tolist() == tokens
        assert state.trace.column(LAYERS)[row, : len(layers)].tolist() == layers
        seen |= set(layers)
        held = int(cache.length[row])
        assert held == end - 1
        for got, want in zip(cache.data["own"], expected.data["own"], strict=True):
            for x, y in zip(got, want, strict=True):
                np.testing.assert_allclose(x[row, :, :held], y[0, :, :held], atol=2e-5)
    assert {2, DEPTH} <= seen  # rows left at different layers of the same call


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_row_does_not_depend_on_its_batch(temperature):
    prompts = sixteen_prompts()
    strategy = calm(SOME[SATURATION], 2.0, temperature=temperature)
    together = decode("llama", strategy, prompts)
    for count in (1, 4):
        baseline = decode("llama", strategy, prompts[:count])
        assert texts(baseline) == texts(together)[:count]
        layers = (made.trace.column(LAYERS)[:count] for made in (baseline, together))
        np.testing.assert_array_equal(*layers)


def test_other_thresholds_compile_nothing():
    decode("t5", calm(0.9, 0.0))
    before = generate._cache_size()
    decode("t5", calm(0.7, 4.0))
    assert generate._cache_size() == before


class Counted:
    """A model that notes which layers run while a program runs."""

    def __init__(self, model) -> None:
        self.model, self.ran = model, []

    def __getattr__(self, name):
        return getattr(self.model, name)

    def extend(self, params, tokens, cache, **how):
        jax.debug.callback(lambda: self.ran.append(how["exit"]))
        return self.model.extend(params, tokens, cache, **how)


def test_layers_that_every_row_left_do_not_run():
    model = Counted(MODELS["t5"])
    strategy = calm(SOME[SATURATION], 2.0)
    models, params = (("target", model),), {"target": PARAMS["t5"]}
    trace = run(models, params, strategy, PROMPTS[:1], LIMIT).trace
    jax.effects_barrier()
    layers = np.asarray(trace.column(LAYERS))[0]
    assert len(set(layers[layers > 0])) > 1
    for layer in range(1, DEPTH + 1):
        assert model.ran.count(layer) == (layers >= layer).sum()


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ({"threshold": 1.5}, r"threshold is 1.5; it must be a number in \[0, 1\]"),
        ({"threshold": 0.9, "tau": -1.0}, "tau is -1.0; it must be a number of at least 0"),
        ({"threshold": 0.9, "measure": "luck"}, "measure is 'luck'; it must be one of saturation"),
        ({"threshold": 0.9, "decay": "slow"}, "decay is 'slow'; it must be one of paper, public"),
    ],
)
def test_settings_out_of_range_are_refused(how, named):
    with pytest.raises(ValueError, match=named):
        calm(**how)


def test_calm_with_a_drafter_is_refused():
    models = (("target", MODELS["t5"]), ("drafter", MODELS["t5"]))
    with pytest.raises(ValueError, match="decodes without drafts"):
        Decoder(models, Neural(2), SpeculativeSampling(), 4, reader=Calm())
    assert not calm(0.9).lossless and not calm(0.9).autoregressive and Strategy().autoregressive
