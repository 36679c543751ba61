"""Trees that a model drafts: the target's own text and distribution, shapes, and refusals."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting import CALLS, Counting
from decodes import first_state, inputs, propose, run, texts
from exits import MODELS, PARAMS, PROMPTS
from scripted import (
    PrefixModel,
    adjust_probabilities,
    chi_square,
    count_outputs,
    prefix_params,
    sequence_distribution,
)

from specjax.contracts.draft import Draft
from specjax.contracts.env import Env
from specjax.contracts.spec import Call
from specjax.decoding.strategy import Strategy, strategy
from specjax.drafting.growing import select_most_probable
from specjax.drafting.neural import Neural
from specjax.runtime.errors import UserError

LIMIT, LENGTH = 12, 3
SOURCE = (3, 2, 4, 2)
PREFIX = PrefixModel(5, eos=(1,))
TWO = {"target": prefix_params(5, seed=1), "drafter": prefix_params(5, seed=2, scale=0.7)}


def pair(kind: str):
    """A target and a drafter that often agrees with it."""
    model = MODELS[kind]
    params = {"target": PARAMS[kind], "drafter": jax.tree.map(lambda x: x * 0.9, PARAMS[kind])}
    return (("target", model), ("drafter", model)), params


def tree(**given) -> Strategy:
    return strategy(drafter="neural", **given)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t5", "llama"])
def test_a_chain_gives_what_a_neural_drafter_gives(kind):
    models, params = pair(kind)
    chain = run(models, params, tree(widths=(1, 1, 1)), PROMPTS, LIMIT)
    neural = run(models, params, strategy(drafter="neural", length=3), PROMPTS, LIMIT)
    assert texts(chain) == texts(neural)
    assert chain.trace.rounds == neural.trace.rounds
    for name in ("committed", "accepted"):
        np.testing.assert_array_equal(getattr(chain.trace, name), getattr(neural.trace, name))
    np.testing.assert_array_equal(chain.trace.calls["drafter"], neural.trace.calls["drafter"])


def _rounds(generation) -> np.ndarray:
    """Rounds of every row."""
    return np.asarray(generation.trace.committed > 0).sum(axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["t5", "llama"])
@pytest.mark.parametrize("nodes", [0, 6])
def test_a_tree_writes_the_targets_own_text_in_fewer_rounds_than_a_chain(kind, nodes):
    models, params = pair(kind)
    params["drafter"] = jax.tree.map(lambda x: x * 0.8, PARAMS[kind])
    baseline = run(models, params, Strategy(), PROMPTS, LIMIT)
    chain = run(models, params, tree(widths=(1, 1)), PROMPTS, LIMIT)
    wide = run(models, params, tree(widths=(4, 3), nodes=nodes), PROMPTS, LIMIT)
    assert texts(wide) == texts(chain) == texts(baseline)
    assert _rounds(wide).sum() < _rounds(chain).sum() < _rounds(baseline).sum()


COUNTED = tuple((name, Counting(5, eos=(1,), name=name)) for name in ("target", "drafter"))
ENDING = [[first, second] for first in (2, 3, 4) for second in (0, 2, 3, 4)]


def count_runs(made: Strategy, limit: int):
    """A decode, and how often its drafter ran."""
    CALLS.clear()
    out = jax.block_until_ready(run(COUNTED, TWO, made, ENDING, limit))
    jax.effects_barrier()
    return out, CALLS["drafter", "extend"]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [2, LIMIT])
def test_levels_end_with_the_texts(limit):
    """At a row's limit and behind its last token, as a chain's calls do."""
    chain, runs = count_runs(strategy(drafter="neural", length=4), limit)
    same, runs_of_same = count_runs(tree(widths=(1,) * 4), limit)
    assert texts(same) == texts(chain)
    assert same.trace.calls["drafter"].tolist() == chain.trace.calls["drafter"].tolist()
    assert runs_of_same == runs
    assert np.all(np.asarray(same.trace.calls["drafter"]) < 4 * _rounds(same))


@pytest.mark.slow
def test_levels_go_on_while_one_path_does():
    """Of four children of five tokens one mostly ends the text."""
    wide, _ = count_runs(tree(widths=(4, 1, 1, 1)), LIMIT)
    committed = np.asarray(wide.trace.committed)
    left = (LIMIT + committed - np.cumsum(committed, axis=1)) * (committed > 0)
    levels = np.minimum(left, 4).sum(axis=1)
    calls = np.asarray(wide.trace.calls["drafter"])
    assert np.all(calls <= levels) and calls.sum() > 0.75 * levels.sum()


SHAPES = {
    "widths": {"widths": (3, 2)},
    "parents": {"parents": (-1, -1, 0, 2, 1, 0)},
    "likeliest": {"widths": (3, 2), "nodes": 4},
}
PLAIN, TRUNCATED = (1.0, 0, 1.0), (1.5, 4, 0.95)


def p_value(made: Strategy, rows: int, model=PREFIX, prompt=SOURCE, begin=(0,)) -> float:
    source = prompt if begin else ()
    distribution = sequence_distribution(
        model, TWO["target"], source, begin or prompt, LENGTH, made.settings
    )
    models = (("target", model), ("drafter", model))
    out = run(models, TWO, made, [prompt] * rows, LENGTH, seed=7)
    assert int(out.trace.accepted.sum()) > 0
    return chi_square(count_outputs(texts(out)), distribution)


def sample(shape: str, settings) -> Strategy:
    temperature, top_k, top_p = settings
    return tree(**SHAPES[shape], temperature=temperature, top_k=top_k, top_p=top_p)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ("likeliest", PLAIN),
        ("widths", TRUNCATED),
        ("likeliest", TRUNCATED),
        ("parents", PLAIN),
        ("parents", TRUNCATED),
    ],
)
def test_sampling_keeps_the_targets_distribution(shape, settings, rows):
    """Beside the contract's test of the registered example."""
    assert p_value(sample(shape, settings), rows) > 1e-3


@pytest.mark.slow
def test_decoder_only_rows_keep_it_too(rows):
    model = dataclasses.replace(PREFIX, start_token=None)
    assert p_value(sample("widths", PLAIN), rows, model, (3, 2, 3), ()) > 1e-3


@dataclasses.dataclass(frozen=True)
class LikeliestDraws(Neural):
    """Wrong on purpose: chooses among drawn nodes, and reports what the others were drawn from."""

    def propose(self, env, caches, memory, context, keys):
        whole = dataclasses.replace(self, nodes=0)
        draft, *rest = Neural.propose(whole, env, caches, memory, context, keys)
        score = jnp.log(draft.distribution.categorical(5).prob(draft.tokens))
        parents = jnp.maximum(draft.parents, 0)
        score += jnp.where(draft.parents < 0, 0.0, jnp.take_along_axis(score, parents, axis=1))
        cut = select_most_probable(draft, score, self.nodes)
        return cut.replace(distribution=draft.distribution.narrow(self.nodes)), *rest


@pytest.mark.slow
def test_choosing_among_drawn_nodes_would_not_keep_it(rows):
    wrong = LikeliestDraws(widths=(3, 2), nodes=4)
    assert p_value(Strategy(wrong, temperature=1.0), rows) < 1e-6


def test_the_likeliest_nodes_are_kept_with_their_ancestors():
    #            0     1     2     3     4    hang on -1, -1, 0, 1, 2
    score = jnp.array([[-1.0, -0.5, -1.0, -3.0, -4.0], [-2.0, -0.1, -9.0, -0.2, -9.0]])
    tokens = jnp.array([[5, 6, 7, 8, 9]] * 2)
    parents = jnp.array([[-1, -1, 0, 1, 2]] * 2)
    slots = jnp.array([[0, 1, 2, -1, -1]] * 2)
    whole = Draft.chain(tokens).replace(parents=parents, slots=slots)
    kept = select_most_probable(whole, score, 3)
    assert kept.tokens.tolist() == [[5, 6, 7], [5, 6, 8]]
    assert kept.parents.tolist() == [[-1, -1, 0], [-1, -1, 1]]
    assert kept.slots.tolist() == [[0, 1, 2], [0, 1, -1]]
    assert kept.length.tolist() == [3, 3]
    short = select_most_probable(whole.replace(length=jnp.array([2, 4])), score, 3)
    assert short.tokens[:, :2].tolist() == [[5, 6], [5, 6]]
    assert short.length.tolist() == [2, 3]


def paths(draft: Draft) -> set[tuple[int, ...]]:
    """The tokens from the root to every node of the first row."""
    found: list[tuple[int, ...]] = []
    for token, parent in zip(draft.tokens[0].tolist(), draft.parents[0].tolist(), strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return set(found)


@pytest.mark.parametrize("temperature", [0.0, 0.4])
def test_the_likeliest_paths_go_to_the_target(temperature):
    made = tree(widths=(3, 2, 2), nodes=6, temperature=temperature)
    models = (("target", PREFIX), ("drafter", PREFIX))
    whole = made.decoder(models, LENGTH)
    state = first_state(whole, TWO, *inputs([SOURCE], LENGTH), made.options())
    draft, *_ = jax.jit(propose, static_argnums=0)(whole, whole.env(TWO), state)
    chances, level = {}, {(): 1.0}
    for width in (3, 2, 2):
        grown = {}
        for path, chance in level.items():
            logits = PREFIX.logits(TWO["drafter"], SOURCE, (0, *path))
            distribution = adjust_probabilities(logits, temperature or 1.0, 0, 1.0)
            best = np.argsort(-distribution)[:width].tolist()
            grown |= {(*path, token): chance * distribution[token] for token in best}
        level = grown
        chances |= grown
    assert paths(draft) == set(sorted(chances, key=chances.get)[-6:])
    assert len({len(path) for path in paths(draft)}) > 1


def test_one_call_feeds_the_nodes_of_a_level_that_have_children():
    one = Call("drafter", 2, 1)
    assert Neural(widths=(3, 2, 1)).spec.calls == (
        one,
        Call("drafter", 3, 3),
        Call("drafter", 6, 6),
    )
    listed = Neural(parents=(-1, 0, -1, 1, 0))  # of the second level one has children
    assert listed.spec.calls == (one, Call("drafter", 1, 1), Call("drafter", 1, 1))
    assert listed.spec.width == 5 and listed.spec.reach == 5
    few = Neural(widths=(3, 3, 1), nodes=4).spec
    assert few.width == 4 and few.reach == 3 + 9


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "length is missing; it must be .* or widths, parents or nodes must say a tree"),
        ({"length": 2, "nodes": 3}, "one of them must be given"),
        ({"widths": (2,), "confidence": 0.5}, "confidence is given; it must not be, for drafts"),
        ({"widths": (2,), "entropy": 0.5}, "entropy is given; it must not be, for drafts"),
        ({"widths": (2,), "parents": (-1,)}, "one of them must be given"),
        ({"widths": (2, 0)}, "widths is .*; it must be a list of integers of at least 1"),
        ({"parents": (-1, 1)}, "the parent of node 1 must be an earlier node"),
        ({"parents": (-2,)}, "parents is .*; it must be a list of integers of at least -1"),
        ({"widths": (2, 2), "nodes": 7}, "nodes is 7; it must be at most 6, as the tree has"),
        ({"widths": (40, 40), "nodes": 7}, "the tree has 1,640 nodes; it must have at most 1,000"),
    ],
)
def test_what_is_no_tree_is_refused(given, said):
    with pytest.raises(UserError, match=said):
        tree(**given)


def test_more_children_than_tokens_are_refused():
    model = MODELS["t5"]
    env = Env({"target": {}, "drafter": {}}, (("target", model), ("drafter", model)))
    with pytest.raises(ValueError, match="widths gives a node 20 children; .* are tokens, 12$"):
        Neural(widths=(20, 1)).check(env)
