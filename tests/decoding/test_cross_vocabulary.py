"""Drafters of another vocabulary: the target's law and text, restricted laws, caches, prompts."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, first_state, inputs, one_round, propose_jitted, run, texts, with_own
from exits import MODELS, PARAMS, PROMPTS
from scripted import (
    PrefixModel,
    adjust_probabilities,
    chi_square,
    count_outputs,
    prefix_params,
    sequence_distribution,
)

from specjax.decoding.strategy import Strategy, strategy
from specjax.models.vocabularies import OtherVocabulary

V, EOS, LENGTH, LIMIT = 5, 1, 3, 12
PROMPT = (3, 2, 4, 2)
P_VALUE = 1e-3  # of fixed-seed tests
ENCODER = PrefixModel(V, eos=(EOS,))
TARGETS = {"encoder": ENCODER, "decoder": dataclasses.replace(ENCODER, start_token=None)}

WIDER = 7  # ids of the drafter
ORDER = np.array([4, 2, 5, 0, 1])  # of each of the target's ids the drafter's; 3 and 6 are its own
LACKING = 3  # of the target
TABLES = {
    "places": jnp.array(np.where(np.arange(V) == LACKING, WIDER, ORDER)),
    "fed": jnp.array(np.where(np.arange(V) == LACKING, 6, ORDER)),
}
OWN = [[0, 3, 5, 6, 3, 1]]  # the prompt in the drafter's ids, longer than the target's

STRATEGIES = {
    "neural": {"drafter": "neural", "length": 2},
    "neural_tree": {"drafter": "neural", "widths": (2, 1)},
    "cascade": {
        "drafter": "cascade",
        "drafters": ("drafter", "little"),
        "matrix": ((2, 1), (0, 2)),
    },
}


def other(kind: str, params, tables=TABLES, wider: int = WIDER) -> tuple[OtherVocabulary, dict]:
    """A drafter of another vocabulary for a target of this kind."""
    start = None if kind == "decoder" else int(ORDER[0])
    model = PrefixModel(wider, eos=(int(ORDER[EOS]),), start_token=start)
    return OtherVocabulary(model, TARGETS[kind]), {"model": params, **tables}


def three(kind: str):
    """The target, a drafter of another vocabulary and a smaller one of the target's own."""
    drafter, tables = other(kind, prefix_params(WIDER, seed=2, scale=0.7))
    models = ("target", TARGETS[kind]), ("drafter", drafter), ("little", TARGETS[kind])
    params = {"target": prefix_params(V, seed=1), "drafter": tables}
    return models, params | {"little": prefix_params(V, seed=3, scale=0.7)}


CASES = [*itertools.product(STRATEGIES, TARGETS)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_sampling_keeps_the_targets_distribution(name, kind, rows):
    models, params = three(kind)
    source, start = (PROMPT, (0,)) if kind == "encoder" else ((), PROMPT)
    expected = sequence_distribution(
        models[0][1], params["target"], source, start, LENGTH, (1.0, 0, 1.0)
    )
    made = strategy(**STRATEGIES[name], temperature=1.0)
    out = run(models, params, made, [PROMPT] * rows, LENGTH, seed=7, own={"drafter": OWN * rows})
    assert chi_square(count_outputs(texts(out)), expected) > P_VALUE


FEW = [[3, 2, 4, 2], [2, 2], [4, 3, 2], [3], [4, 4, 2, 3]]
FEW_OWN = [[0, 3, 5, 1], [5, 5, 6, 6, 0], [1, 4], [4], [1, 1, 5, 4]]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_greedy_texts_are_the_targets_own_and_rows_keep_theirs(name, kind):
    models, params = three(kind)
    baseline = texts(run(models, params, Strategy(), FEW, LIMIT))
    made = strategy(**STRATEGIES[name])
    assert texts(run(models, params, made, FEW, LIMIT, own={"drafter": FEW_OWN})) == baseline
    back = run(models, params, made, FEW[::-1], LIMIT, own={"drafter": FEW_OWN[::-1]})
    assert texts(back) == baseline[::-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("temperature", "kind"),
    [(1.0, "decoder"), (0.0, "encoder"), (0.0, "decoder"), (1.0, "encoder")],
)
def test_the_same_vocabulary_in_another_order_drafts_the_same(temperature, kind):
    own = prefix_params(V, seed=2, scale=0.7)
    order = ORDER.copy()
    order[order == 5] = 3  # within V
    back = np.argsort(order)
    shuffled = {**own, "embedding": own["embedding"][back], "out": own["out"][:, back]}
    drafter, params = other(kind, shuffled, dict.fromkeys(TABLES, jnp.array(order)), V)
    target = prefix_params(V, seed=1)
    made = strategy(drafter="neural", length=3, temperature=temperature)
    plain = run(
        (("target", TARGETS[kind]), ("drafter", TARGETS[kind])),
        {"target": target, "drafter": own}, made, FEW, LIMIT,
    )  # fmt: skip
    given = (("target", TARGETS[kind]), ("drafter", drafter)), {"target": target, "drafter": params}
    for prompts in (None, {"drafter": [order[row].tolist() for row in FEW]}):
        out = run(*given, made, FEW, LIMIT, own=prompts)
        assert texts(out) == texts(plain)
        for field in ("accepted", "committed", "columns"):
            np.testing.assert_array_equal(getattr(out.trace, field), getattr(plain.trace, field))


@pytest.mark.parametrize("kind", [pytest.param("encoder", marks=pytest.mark.slow), "decoder"])
def test_its_law_is_restricted_to_what_both_have_and_renormalized(kind):
    models, params = three(kind)
    made = strategy(drafter="neural", length=1, temperature=1.0)
    ready = decoder(models, made, LIMIT)
    params = {name: params[name] for name in ready.inputs}
    given = (*inputs([PROMPT], LIMIT), with_own(made, {"drafter": OWN}))
    draft, *_ = propose_jitted(ready, params, first_state(ready, params, *given))
    inner = models[1][1].model
    prefix = (OWN[0], [inner.info.start_token]) if kind == "encoder" else ((), OWN[0])
    whole = adjust_probabilities(inner.logits(params["drafter"]["model"], *prefix), 1.0, 0, 1.0)
    shared = np.where(np.arange(V) == LACKING, 0.0, whole[ORDER])
    distribution = np.asarray(draft.distribution.probs)[0, 0]
    # float32 against float64
    np.testing.assert_allclose(distribution, shared / shared.sum(), atol=1e-6)
    assert distribution[LACKING] == 0.0 and np.argmax(distribution) != np.argmax(whole)


# Caches of transformers

SPELLED = [[3, 4, 5, 1, 12, 13], [6, 2, 2], [7, 8], [2, 2, 13, 5]]
MOVED = {
    "places": jnp.array([0, 1, 13, 12, *range(2, 9), 14]),  # the last is lacking
    "fed": jnp.array([0, 1, 13, 12, *range(2, 9), 9]),
}


@functools.cache
def transformers(kind: str):
    """A target and a drafter of fourteen ids that speaks ten of the target's twelve."""
    target = MODELS[kind]
    own = dataclasses.replace(target, config=dataclasses.replace(target.config, vocab_size=14))
    weights = jax.tree.map(lambda x: x * 1.3, own.init(jax.random.key(8)))
    models = (("target", target), ("drafter", OtherVocabulary(own, target)))
    return models, {"target": PARAMS[kind], "drafter": {"model": weights, **MOVED}}


@functools.partial(jax.jit, static_argnames=("model", "head"))
def fresh(model, weights, prompt, length, tokens, head):
    """The cache after feeding all tokens at once, those of the prompt too if it is the `head`."""
    cache, _ = model.start(weights, prompt, length, tokens.shape[1])
    if head:
        cache = cache.replace(length=jnp.zeros_like(length))
    return model.extend(weights, tokens, cache)[1]


def wrong_slots(kind: str, state) -> int:
    """Slots of the drafter's cache, under its pointer, that hold something else than fed alone."""
    models, params = transformers(kind)
    cache, context = state.caches["drafter"], state.context
    (prompt, length), fed = inputs(SPELLED, 0)[:2], MOVED["fed"][context.tokens]
    if kind == "llama":
        behind = [row[begin:] for row, begin in zip(fed, np.asarray(context.begin), strict=True)]
        rows = [[*own, *row] for own, row in zip(SPELLED, behind, strict=True)]
        fed = inputs([list(map(int, row)) for row in rows], 0)[0]
    expected = fresh(
        models[1][1].model, params["drafter"]["model"], prompt, length, fed, kind != "t5"
    )
    pointer = np.asarray(cache.length + cache.data["offset"])
    wrong = 0
    for got, want in zip(
        jax.tree.leaves(cache.data["model"]["own"]),
        jax.tree.leaves(expected.data["own"]),
        strict=True,
    ):
        size = min(got.shape[2], want.shape[2])
        off = np.abs(np.asarray(got)[:, :, :size] - np.asarray(want)[:, :, :size]).max(axis=(1, 3))
        # float32 at other shapes rounds differently; values are O(1)
        wrong += np.sum((off > 1e-4) & (np.arange(size) < pointer[:, None]))
    return int(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t5", "llama"])
@pytest.mark.parametrize("name", ["neural", "neural_tree"])
def test_after_every_round_trusted_slots_are_of_its_own_spelling(name, kind):
    models, params = transformers(kind)
    made = strategy(**STRATEGIES[name])
    ready = decoder(models, made, LIMIT)
    given = (*inputs(PROMPTS, LIMIT), with_own(made, {"drafter": SPELLED}))
    state, rounds = first_state(ready, params, *given), 0
    while bool(state.context.active.any()):
        before, state, rounds = state, one_round(ready, params, state), rounds + 1
        assert wrong_slots(kind, state) == 0
        active = np.asarray(before.context.active)
        pointer = np.asarray(state.caches["drafter"].length)
        assert np.all(pointer[active] >= np.asarray(before.context.length)[active] - 1)
    assert rounds > 3
