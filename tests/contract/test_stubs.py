"""What the contract must carry that no shipped method uses yet, as stubs that use nothing else:

a tree of drafts, a drafter that reads the target's states, and one that learns between rounds.
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
from exits import EOS, MODELS, PARAMS, PROMPTS, V
from scripted import PrefixModel, chi_square, count_outputs, prefix_params, sequence_distribution

from specjax.contracts import Categorical, Draft, Drafter, Spec, TreeSpec
from specjax.contracts.context import fold_keys
from specjax.contracts.rows import pick_last, slice_window
from specjax.decoding.strategy import Strategy
from specjax.sampling import adjust, argmax, draw
from specjax.verification.whole import TreeReader

LIMIT = 12
DEEP = 2  # tokens of each of the two branches


@dataclasses.dataclass(frozen=True)
class TwoBranches(Drafter):
    """Two guesses of the next tokens side by side; `answers` [B, L] says which are right.

    The right ones stand in the first branch at even lengths, else in the second.
    """

    resource: str = "answers"

    @property
    def spec(self) -> Spec:
        nodes = 2 * DEEP
        return Spec(
            width=nodes,
            reach=nodes,
            resources=(self.resource,),
            writers=("a", "b"),
            tree=TreeSpec(DEEP),
        )

    def propose(self, env, caches, memory, context, keys):
        right = slice_window(env.params[self.resource], context.length, DEEP)
        first = (context.length % 2 == 0)[:, None]
        wrong = (right + 3) % V
        tokens = jnp.concatenate(
            [jnp.where(first, right, wrong), jnp.where(first, wrong, right)], axis=1
        )
        rows = tokens.shape[0]
        parents = jnp.tile(jnp.array([-1, 0, -1, DEEP]), (rows, 1))
        writer = jnp.tile(jnp.array([0, 0, 1, 1]), (rows, 1))
        draft = Draft.chain(tokens, drafted_by=writer).replace(parents=parents)
        return draft, caches, memory, {}


def answers(kind: str) -> jax.Array:
    """The target's own greedy texts, where the token buffer has them."""
    models = (("target", MODELS[kind]),)
    return run(models, {"target": PARAMS[kind]}, Strategy(), PROMPTS, LIMIT).tokens


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
def test_a_tree_of_two_branches_decodes_the_targets_own_text(kind):
    models, right = (("target", MODELS[kind]),), answers(kind)
    baseline = run(models, {"target": PARAMS[kind]}, Strategy(), PROMPTS, LIMIT)
    tree = Strategy(TwoBranches(), reader=TreeReader())
    params = {"target": PARAMS[kind], "answers": right}
    made = decoder(models, tree, LIMIT)
    prompt, length, keys, limit = inputs(PROMPTS, LIMIT)
    state = first_state(made, params, prompt, length, keys, limit, tree.options())
    rounds = 0
    while bool(state.context.active.any()):
        state, rounds = one_round(made, params, state), rounds + 1
        assert stale_slots(kind, state) == []
    assert make_texts(state) == texts(baseline)
    longest = max(map(len, texts(baseline)))
    assert rounds <= -(-longest // (DEEP + 1)) + 1  # the right branch stood, in either place
    writers = set(np.unique(np.asarray(state.trace.written_by)))
    assert {1, 2, 3} <= writers  # the target, and both branches


def make_texts(state) -> list[list[int]]:
    context = state.context
    rows = zip(*map(np.asarray, (context.tokens, context.begin, context.length)), strict=True)
    return [row[b:n].tolist() for row, b, n in rows]


@functools.partial(jax.jit, static_argnames="model")
def fresh(model, params, context):
    prompt, length = context.encoder_tokens, context.encoder_length
    if model.info.start_token is None:
        prompt, length = context.tokens[:, :1], jnp.ones_like(context.length)
    cache, _ = model.start(params, prompt, length, context.tokens.shape[1])
    cache = cache.replace(length=jnp.zeros_like(cache.length))
    return model.extend(params, context.tokens, cache)[1]


def stale_slots(kind: str, state) -> list:
    """(row, slot) under the target's pointer that a fresh computation fills otherwise."""
    expected, cache = fresh(MODELS[kind], PARAMS[kind], state.context), state.caches["target"]
    below = np.arange(state.context.tokens.shape[1]) < np.asarray(cache.length)[:, None]
    bad = np.zeros_like(below)
    leaves = jax.tree.leaves(cache.data["own"]), jax.tree.leaves(expected.data["own"])
    for got, want in zip(*leaves, strict=True):
        bad |= np.abs(np.asarray(got) - np.asarray(want)).max(axis=(1, 3)) > 1e-4
    return list(zip(*np.nonzero(bad & below), strict=True))


@dataclasses.dataclass(frozen=True)
class ReadsStates(Drafter):
    """Guesses from the target's states behind its first layer, at the last position it read."""

    @property
    def spec(self) -> Spec:
        return Spec(width=1, writers=("states",), resources=("out",), features=(1,))

    def begin(self, env, caches, context, prompt, keys):
        return jnp.zeros((context.length.shape[0], 16), jnp.float32), caches

    def propose(self, env, caches, memory, context, keys):
        return Draft.chain(argmax(memory @ env.params["out"])[:, None]), caches, memory, {}

    def observe(self, memory, outcome):
        (states,) = outcome.reading.features  # [B, K + 1, D]
        return pick_last(states, outcome.committed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_a_drafter_may_read_the_targets_states(kind):
    models = (("target", MODELS[kind]),)
    out = jax.random.normal(jax.random.key(1), (16, V))
    params = {"target": PARAMS[kind], "out": out}
    made = decoder(models, Strategy(ReadsStates()), LIMIT)
    prompt, length, keys, limit = inputs(PROMPTS, LIMIT)
    state = first_state(made, params, prompt, length, keys, limit, Strategy().options())
    for _ in range(3):
        state = one_round(made, params, state)
    context = state.context
    batch = {"inputs": context.tokens, "length": context.length}
    if MODELS[kind].info.start_token is not None:
        batch |= {"prompt": context.encoder_tokens, "prompt_length": context.encoder_length}
    # What the target was in when it wrote the pending token: the state of the token before it.
    logits = MODELS[kind].teach(PARAMS[kind], batch, exits=(1,))[0]
    at = np.asarray(context.length) - 2
    active = np.asarray(context.active)
    expected = np.asarray(logits)[np.arange(len(at)), at]
    got = np.asarray(MODELS[kind].read_out(PARAMS[kind], state.memory[:, None]))[:, 0]
    np.testing.assert_allclose(got[active], expected[active], atol=1e-4)
    baseline = run(models, {"target": PARAMS[kind]}, Strategy(), PROMPTS, LIMIT)
    assert texts(run(models, params, Strategy(ReadsStates()), PROMPTS, LIMIT)) == texts(baseline)


@dataclasses.dataclass(frozen=True)
class Learns(Drafter):
    """A distribution of single tokens per row, moved towards the target's where it was tested."""

    width: int = 2
    rate: float = 1.0

    @property
    def spec(self) -> Spec:
        return Spec(width=self.width, writers=("learned",))

    def begin(self, env, caches, context, prompt, keys):
        return jnp.zeros((context.length.shape[0], env.target.info.vocab_size), jnp.float32), caches

    def propose(self, env, caches, memory, context, keys):
        q = adjust(memory, context.options.sampling)
        tokens = jnp.stack([draw(fold_keys(keys, k), q) for k in range(self.width)], axis=1)
        probs = jnp.broadcast_to(q[:, None], (*tokens.shape, q.shape[-1]))
        return Draft.chain(tokens, distribution=Categorical(probs)), caches, memory, {}

    def observe(self, memory, outcome):
        p = jax.nn.softmax(outcome.reading.logits[:, :-1])
        tested = jnp.arange(self.width) < outcome.tested[:, None]
        gradient = jnp.sum((p - jax.nn.softmax(memory)[:, None]) * tested[..., None], axis=1)
        return memory + self.rate * gradient


SAMPLED: dict[str, Any] = {"temperature": 1.0}


@pytest.mark.slow
def test_parameters_may_change_between_rounds_and_outputs_stay_exact():
    size, length, source = 5, 4, (3, 2, 4, 2)
    model = PrefixModel(size, eos=(EOS,))
    params = {"target": prefix_params(size, seed=1)}
    expected = sequence_distribution(model, params["target"], source, (0,), length, (1.0, 0, 1.0))
    out = run(
        (("target", model),), params, Strategy(Learns(), **SAMPLED), [source] * 20_000, length
    )
    assert chi_square(count_outputs(texts(out)), expected) > 1e-3
    assert float(jnp.abs(out.memory).max()) > 0.1
    assert int(out.trace.accepted.sum()) > 0


@dataclasses.dataclass(frozen=True)
class Misfit(Drafter):
    """Tokens that its spec does not speak of."""

    shape: tuple[int, ...]
    kind: str = "int32"

    @property
    def spec(self) -> Spec:
        return Spec(width=2, writers=("misfit",))

    def propose(self, env, caches, memory, context, keys):
        tokens = jnp.zeros((len(context.length), *self.shape), self.kind)
        return Draft.chain(tokens), caches, memory, {}


@pytest.mark.parametrize(
    ("misfit", "words"),
    [
        (Misfit((3,)), r"int32 of shape \(\d, 3\); they must be int32 \[\d, K\] with K at most 2"),
        (Misfit((2,), "float32"), r"drafted tokens are float32 of shape \(\d, 2\)"),
        (Misfit(()), r"drafted tokens have shape \(\d,\); expected \[B, K\]"),
    ],
    ids=["too wide", "no integers", "no columns"],
)
def test_tokens_that_do_not_fit_the_spec_are_refused_in_words(misfit, words):
    kind, model = next(iter(MODELS.items()))
    with pytest.raises(ValueError, match=words):
        run((("target", model),), {"target": PARAMS[kind]}, Strategy(misfit), PROMPTS, LIMIT)
