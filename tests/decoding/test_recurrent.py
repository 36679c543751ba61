"""Decodes with recurrent targets and drafters: tokens, states after every round, distributions."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, first_state, inputs, one_round, run, texts
from scripted import chi_square, count_outputs, sequence_distribution

import specjax
from specjax.contracts.rows import Caches
from specjax.decoding.loop import generate
from specjax.decoding.state import State
from specjax.decoding.strategy import Strategy, autoregressive
from specjax.drafting.copying import PromptLookup
from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.matrix import Cascade
from specjax.drafting.neural import Neural
from specjax.drafting.nothing import Nothing
from specjax.drafting.suffix import Suffix
from specjax.loading import LoadedModel
from specjax.models import recurrent_layers
from specjax.models.causal import Causal, CausalConfig
from specjax.models.gated_delta import GatedDelta
from specjax.models.mamba2 import Mamba2
from specjax.models.positions import Rope
from specjax.models.recurrent_caches import RecurrentCache, append_tokens, compute_state
from specjax.models.recurrent_layers import Recurrence
from specjax.models.rg_lru import RgLru
from specjax.selection import switching
from specjax.selection.arms import Arm
from specjax.selection.switched import SwitchedArms
from specjax.verification.fitted import FittedReader
from specjax.verification.whole import ResumedReader, WholeReader

V, EOS, LIMIT = 12, 1, 30
HEADS = {"key_heads": 2, "value_heads": 4, "d_key": 5, "d_value": 7}
CHANNELS = RgLru(key_heads=1, value_heads=4, d_key=1, d_value=1, blocks=2)
RECURRENCES = {"delta": GatedDelta(**HEADS), "mamba2": Mamba2(**HEADS), "rg_lru": CHANNELS}
Models = tuple[tuple[str, Causal], ...]


def make_models(kind: Recurrence) -> Models:
    """A target and two smaller models with recurrent layers of this kind."""
    config = CausalConfig(
        "qwen3_5_text", V, d_model=16, d_ff=24, num_layers=3, num_heads=4, num_kv_heads=2, d_head=8,
        max_positions=256, rope=Rope(8), recurrences=(kind, None, kind), gated_attention=True,
        eos=(EOS,),
    )  # fmt: skip
    narrow = dataclasses.replace(config, d_model=12, num_layers=2, recurrences=(None, kind))
    little = dataclasses.replace(config, d_model=8, num_layers=1, recurrences=(kind,))
    return ("target", Causal(config)), ("drafter", Causal(narrow)), ("little", Causal(little))


def split_layers(model: Causal) -> Causal:
    """A model with each sublayer in a layer of its own, as Nemotron-H has them."""
    config = model.config
    twice = {
        "num_layers": 2 * config.num_layers,
        "recurrences": tuple(kind for own in config.recurrences for kind in (own, None)),
        "mixers": (True, False) * config.num_layers,
        "d_ffs": (0, config.d_ff) * config.num_layers,
    }
    return Causal(dataclasses.replace(config, **twice))


SLOW = ("mamba2", "rg_lru", "single sublayers")


@pytest.fixture(params=["delta", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW)])
def models(request: pytest.FixtureRequest) -> Models:
    if request.param in RECURRENCES:
        return make_models(RECURRENCES[request.param])
    whole = make_models(RECURRENCES["mamba2"])
    return tuple((name, split_layers(model)) for name, model in whole)


@pytest.mark.slow
def test_sublayers_in_layers_of_their_own_compute_the_same() -> None:
    (_, whole), *_ = make_models(RECURRENCES["mamba2"])
    params, split = whole.init(jax.random.key(0)), {}
    for name, layer in params.items():
        prefix, _, number = name.partition("_")
        if prefix != "layers":
            split[name] = layer
            continue
        of_ff = {part: layer[part] for part in ("ff", "ff_norm")}
        split[f"layers_{2 * int(number)}"] = {k: v for k, v in layer.items() if k not in of_ff}
        split[f"layers_{2 * int(number) + 1}"] = of_ff
    batch = {"inputs": jnp.array([[3, 4, 5, 6, 7]]), "length": jnp.array([5])}
    expected = whole.teach(params, batch)[0]
    np.testing.assert_allclose(split_layers(whole).teach(split, batch)[0], expected, atol=1e-6)


PROMPTS = [[3, 4, 5, 6, 7, 8, 9, 2, 3, 4], [6], [7, 8, 9, 2, 3, 4], [2, 2]]
ARMS = (
    Arm("none", Nothing(), WholeReader()),
    Arm("small", Neural(3), WholeReader()),
    Arm("exit", EarlyExit(2, exit=2), ResumedReader(2)),
    Arm("tiny", Neural(2, "little"), WholeReader()),
)
SWITCHED = (("costs", (0.0, 0.1, 0.2, 0.1)), *switching.DEFAULTS.items(), ("explore", 3.0))
STRATEGIES = {
    "none": Strategy(Nothing()),
    "neural": Strategy(Neural(4)),
    "sampled": Strategy(Neural(3), temperature=1.0),
    "fitted": Strategy(
        Neural(4, confidence="confidence"),
        numbers=(("confidence", 0.3),),
        reader=FittedReader((1, 2, 4)),
    ),
    "exit": Strategy(EarlyExit(3, exit=1), reader=FittedReader((1, 3), ResumedReader(1))),
    "tree": Strategy(Neural(widths=(3, 2, 1))),
    "sampled_tree": Strategy(Neural(parents=(-1, -1, 0, 2, 1, 0)), temperature=1.0),
    "likeliest_nodes": Strategy(Neural(widths=(4, 3, 2, 2), nodes=16)),
    "prompt_lookup": Strategy(PromptLookup(4)),
    "suffix": Strategy(Suffix(4)),
    "suffix_tree": specjax.strategy(drafter="suffix", length=4, branches=2),
    "cascade": Strategy(Cascade(("drafter", "little"), ((2, 1), (0, 2)))),
    "switched": Strategy(
        SwitchedArms(ARMS, (1, 3), thompson=True), temperature=1.0, numbers=SWITCHED
    ),
}
GREEDY = [name for name, one in STRATEGIES.items() if not one.temperature and name != "none"]


@functools.cache
def weights(models: Models) -> dict[str, Any]:
    """Models whose heads forget slowly; the drafters are often right."""

    def draw(model: Causal, seed: int) -> Any:
        params = jax.tree.map(lambda x: x * 1.5, model.init(jax.random.key(seed)))
        for name, layer in params.items():
            if name.startswith("layers") and "recurrent" in layer:
                layer["recurrent"]["log_speed"] = jnp.array([-4.0, -2.0, -1.0, 0.0])
        return params

    return {name: draw(model, seed) for seed, (name, model) in enumerate(models)}


def rounds(models: Models, strategy: Strategy) -> list[State]:
    """Every state of a decode, the first one too."""
    made = decoder(models, strategy, LIMIT)
    params = {name: weights(models)[name] for name in made.inputs}
    prompt, length, keys, limits = inputs(PROMPTS, LIMIT)
    limits -= jnp.array([0, 15, 5, 1])  # rows end at different rounds
    found = [first_state(made, params, prompt, length, keys, limits, strategy.options())]
    while bool(found[-1].context.active.any()):
        found.append(one_round(made, params, found[-1]))
    return found


@jax.jit
def states(caches: Caches) -> dict[str, list[jax.Array]]:
    """The states of all recurrent layers under the pointers."""
    return {
        name: [
            compute_state(own, cache.length)
            for own in cache.data["own"]
            if isinstance(own, RecurrentCache)
        ]
        for name, cache in caches.items()
    }


@functools.partial(jax.jit, static_argnums=0)
def fresh(models: Models, caches: Caches, tokens: jax.Array) -> Caches:
    """Caches of the same models with all tokens fed at once, under the same pointers."""
    made = {}
    for name, cache in caches.items():
        model, params = dict(models)[name], weights(models)[name]
        empty, _ = model.start(params, tokens[:, :1], cache.length * 0 + 1, tokens.shape[1])
        made[name] = model.extend(params, tokens, empty)[1].replace(length=cache.length)
    return made


def wrong_states(models: Models, state: State) -> list[str]:
    """Models with a state that is not the one of the text under the pointer.

    States of Mamba-2 are sums of keys that have no norm: errors are compared with the largest.
    """
    found = states(state.caches)
    expected = states(fresh(models, state.caches, state.context.tokens))

    def differ(name: str) -> bool:
        pairs = zip(found[name], expected[name], strict=True)
        return any(jnp.abs(a - b).max() > 1e-4 * jnp.maximum(jnp.abs(b).max(), 1) for a, b in pairs)

    return [name for name in found if differ(name)]


@pytest.mark.slow
@pytest.mark.parametrize("name", STRATEGIES)
def test_after_every_round_states_are_those_of_the_text(models: Models, name: str) -> None:
    every = rounds(models, STRATEGIES[name])
    assert all(wrong_states(models, state) == [] for state in every)
    assert len(every) > 5


def move_on(own: RecurrentCache, new: Any, start: jax.Array) -> RecurrentCache:
    """Wrong on purpose: the state takes in what may be rejected."""
    kept = append_tokens(own, new, start)
    end = start + new.keys.shape[2]
    return kept.replace(state=compute_state(kept, end), base=jnp.maximum(kept.base, end))


@pytest.mark.slow
def test_the_audit_and_the_tokens_show_a_state_that_took_in_rejected_tokens(
    models: Models,
) -> None:
    right = rounds(models, STRATEGIES["neural"])[-1].context
    jax.clear_caches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recurrent_layers, "append_tokens", move_on)
        every = rounds(models, STRATEGIES["neural"])
        patch.undo()
        jax.clear_caches()
        assert any(wrong_states(models, state) for state in every)
    assert not np.array_equal(every[-1].context.tokens, right.tokens)


def decode(models: Models, name: str, limit: int = 200) -> list[list[int]]:
    strategy = STRATEGIES[name] if name in STRATEGIES else autoregressive()
    return texts(run(models, weights(models), strategy, PROMPTS, limit))


@pytest.mark.slow
@pytest.mark.parametrize("name", GREEDY)
def test_greedy_tokens_are_those_without_drafts(models: Models, name: str) -> None:
    assert decode(models, name) == decode(models, "none")


class Enumerated:
    """The target, as `sequence_distribution` reads models."""

    eos = (EOS,)

    def __init__(self, model: Causal) -> None:
        self.teach = jax.jit(model.teach)

    def logits(self, params: Any, source: Any, text: tuple[int, ...]) -> np.ndarray:
        padded = jnp.array([[*text, *[0] * (8 - len(text))]])
        made = self.teach(params, {"inputs": padded, "length": jnp.array([len(text)])})[0]
        return np.asarray(made[0, len(text) - 1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sampled", "sampled_tree", "switched"])
def test_sampled_outputs_have_the_targets_distribution(models: Models, name: str) -> None:
    narrow = {key: dataclasses.replace(model.config, vocab_size=5) for key, model in models}
    models = tuple((key, Causal(config)) for key, config in narrow.items())
    params = {key: model.init(jax.random.key(seed)) for seed, (key, model) in enumerate(models)}
    prompt, rows = (3, 2, 3), 20_000
    distribution = sequence_distribution(
        Enumerated(models[0][1]), params["target"], (), prompt, 3, (1.0, 0, 1.0)
    )
    out = run(models, params, STRATEGIES[name], [prompt] * rows, 3, seed=3)
    assert chi_square(count_outputs(texts(out)), distribution) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["neural", "tree", "prompt_lookup", "none"])
def test_refilled_rows_have_the_tokens_of_one_batch(models: Models, name: str) -> None:
    """Also of prompts that are read in parts, longer than a ring."""
    loaded = {key: LoadedModel(model, weights(models)[key], None, key) for key, model in models}
    strategy = STRATEGIES[name]
    drafters = {"drafter": loaded["drafter"]} if name in ("neural", "tree") else {}
    generator = specjax.Generator(loaded["target"], drafters, strategy, max_new_tokens=20)
    draw = np.random.default_rng(3)
    lengths = draw.permutation(np.arange(1, 80, 7))
    prompts = [draw.integers(2, V, length).tolist() for length in lengths]
    assert generator(prompts, batch_size=3).tokens == generator(prompts).tokens


@pytest.mark.slow
@pytest.mark.parametrize("name", ["neural", "suffix", "cascade"])
def test_half_precision_with_invariant_calls_has_the_tokens_without_drafts(
    models: Models, name: str
) -> None:
    """States are float32 and differ in rounding by round; no token depends on it here."""
    params = weights(models)
    models = tuple(
        (key, Causal(dataclasses.replace(model.config, dtype=jnp.bfloat16)))
        for key, model in models
    )

    def decode(strategy: Strategy) -> list[list[int]]:
        made = strategy.decoder(models, 60, invariant=8)
        given = {key: params[key] for key in made.inputs}
        return texts(generate(made, given, *inputs(PROMPTS, 60), strategy.options()))

    assert decode(STRATEGIES[name]) == decode(autoregressive())
