"""Feature drafters: what they hold is of the target's states, and drafts are what was trained."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, first_state, inputs, one_round, propose, run, texts
from feature_drafters import on_t5, without_encoder

import specjax
from specjax.decoding.strategy import Strategy
from specjax.drafting.eagle import Eagle
from specjax.drafting.eagle_tree import EagleTree
from specjax.drafting.neural import Neural
from specjax.drafting.neural_tree import NeuralTree
from specjax.models.causal import Causal, CausalConfig
from specjax.models.rope import Rope
from specjax.models.t5 import T5, T5Config
from specjax.readers.whole import Whole
from specjax.selection.arms import Arm
from specjax.selection.choosing import ByChance
from specjax.selection.selected import Selected

V, LIMIT, LENGTH = 12, 14, 3
IDS = (1, 2, 3, 5, 7, 8, 9, 11)
T5_SHAPE = T5Config(
    vocab_size=V, d_model=16, d_kv=4, d_ff=24, num_heads=2, num_layers=1, num_decoder_layers=2,
    max_distance=12, eos=(1,),
)  # fmt: skip
LLAMA_SHAPE = CausalConfig(
    "llama", V, d_model=16, d_ff=16, num_layers=2, num_heads=2, num_kv_heads=1, d_head=8,
    max_positions=64, rope=Rope(8), eos=(1,),
)  # fmt: skip
TARGETS = {"t5": T5(T5_SHAPE), "llama": Causal(LLAMA_SHAPE)}
PROMPTS = [[3, 4, 5, 1], [6, 1], [7, 8, 9, 2, 3, 4, 1], [2, 2, 2, 1]]
KINDS = pytest.mark.parametrize("kind", list(TARGETS))


@functools.cache
def setting(kind: str):
    """The models, and their parameters."""
    target = TARGETS[kind]
    params = jax.tree.map(lambda x: x * 1.3, target.init(jax.random.key(3)))
    if kind == "t5":
        drafter, own = on_t5(T5_SHAPE, (1, 2), IDS)
    else:
        drafter, own = without_encoder(V, LLAMA_SHAPE.d_model, (1, 2), IDS, None)
    return (("target", target), ("drafter", drafter)), {"target": params, "drafter": own}


def states(kind: str, strategy: Strategy):
    """The decoder, its parameters and the state before every round and after the last."""
    models, params = setting(kind)
    made = decoder(models, strategy, LIMIT)
    state = first_state(made, params, *inputs(PROMPTS, LIMIT), strategy.options())
    seen = [state]
    while bool(state.context.active.any()):
        state = one_round(made, params, state)
        seen.append(state)
    return made, params, seen


@functools.partial(jax.jit, static_argnames=("kind", "steps"))
def unrolled(kind: str, params, context, steps: int):
    """The drafter's logits of every step on the text, and the cache of reading all of it."""
    (_, target), (_, drafter) = setting(kind)[0]
    given = context.encoder_tokens, context.encoder_length
    if target.start_token is None:
        given = context.tokens[:, :1], jnp.ones_like(context.length)
    size = context.tokens.shape[1]
    before, _ = target.start(params["target"], *given, size)
    wanted = drafter.config.features
    output, _ = target.extend(params["target"], context.tokens, before, features=wanted)
    features = jnp.concatenate(output.features, axis=-1)
    cache, _ = drafter.start(params["drafter"], *given, size)
    cache = drafter.attend(cache.replace(length=jnp.zeros_like(context.length)), before)
    cache = drafter.absorb(params["drafter"], cache, features, jnp.zeros_like(context.length))
    _, cache = drafter.extend(params["drafter"], context.tokens, cache)
    cross = None
    if drafter.config.cross:
        cross = *cache.data["cross"], cache.data["cross_bias"]
    logits = drafter.unrolled(params["drafter"], context.tokens, features, cross, steps)
    return logits, cache


def wrong_slots(kind: str, params, state) -> int:
    """Slots under the pointer whose keys or values are not those of the target's states."""
    _, fresh = unrolled(kind, params, state.context, 1)
    cache = state.caches["drafter"]
    below = np.arange(state.context.tokens.shape[1]) < np.asarray(cache.length)[:, None]
    bad = np.zeros_like(below)
    for got, want in zip(cache.data["own"][0], fresh.data["own"][0], strict=True):
        bad |= np.abs(np.asarray(got) - np.asarray(want)).max(axis=(1, 3)) > 1e-4
    return int(np.sum(bad & below))


DRAFTERS = {"chain": Eagle(LENGTH), "tree": EagleTree((2, 2, 1), nodes=6)}


@KINDS
@pytest.mark.parametrize("shape", list(DRAFTERS))
def test_after_every_round_trusted_slots_are_of_the_targets_states(kind, shape):
    _, params, seen = states(kind, Strategy(DRAFTERS[shape]))
    assert len(seen) > 3
    for before, after in zip(seen, seen[1:], strict=False):
        assert wrong_slots(kind, params, after) == 0
        active = np.asarray(before.context.active)
        pointer = np.asarray(after.caches["drafter"].length)
        # All but what the round itself wrote.
        assert np.all(pointer[active] == np.asarray(before.context.length)[active])


@dataclasses.dataclass(frozen=True)
class Forgetful(Eagle):
    """Wrong on purpose: goes on from the states of the round before the last."""

    def observe(self, memory, outcome):
        return dataclasses.replace(super().observe(memory, outcome), features=memory.features)


@KINDS
def test_the_audit_sees_stale_features(kind):
    _, params, seen = states(kind, Strategy(Forgetful(LENGTH)))
    assert any(wrong_slots(kind, params, state) for state in seen)


@KINDS
def test_a_draft_is_what_the_unrolled_layer_says(kind):
    """Token k + 1 is of step k, where training put it: behind the draft's first k tokens."""
    made, params, seen = states(kind, Strategy(Eagle(LENGTH)))
    (_, (_, drafter)) = setting(kind)[0]
    checked = 0
    for state in seen[:-1]:
        draft, *_ = propose(made, made.env(params), state)
        context = state.context
        with_draft = np.asarray(context.tokens).copy()
        rows = np.flatnonzero(np.asarray(context.active))
        for row in rows:
            begin = int(context.length[row])
            room = with_draft[row, begin : begin + LENGTH]
            room[:] = np.asarray(draft.tokens)[row, : len(room)]
        logits, _ = unrolled(kind, params, context.replace(tokens=jnp.asarray(with_draft)), LENGTH)
        for row in rows:
            for step in range(int(draft.length[row])):
                at = np.asarray(logits[step])[row, int(context.length[row]) - 1 + step]
                two = np.sort(at)[-2:]
                if two[1] - two[0] > 1e-3:  # no tie that rounding decides
                    assert IDS[at.argmax()] == draft.tokens[row, step]
                    checked += 1
    assert checked > 20


@KINDS
def test_the_targets_own_text_is_written(kind):
    models, params = setting(kind)
    alone = texts(run(models, params, Strategy(), PROMPTS, LIMIT))
    for strategy in (
        Strategy(Eagle(LENGTH)),
        Strategy(DRAFTERS["tree"]),
        specjax.strategy(drafter="eagle", length=4, confidence=0.2, reader="fitted"),
    ):
        assert texts(run(models, params, strategy, PROMPTS, LIMIT)) == alone


def test_only_ids_of_its_vocabulary_are_drafted():
    models, params = setting("t5")
    for temperature in (0.0, 1.0):
        strategy = Strategy(Eagle(LENGTH), temperature=temperature)
        out = run(models, params, strategy, PROMPTS, LIMIT)
        proposed = np.asarray(out.trace.proposed)
        drafted = np.asarray(out.trace.column("drafted"))
        for row, round_ in zip(*np.nonzero(drafted), strict=True):
            assert set(proposed[row, round_, : drafted[row, round_]].tolist()) <= set(IDS)


def test_a_tree_needs_no_more_children_than_ids_that_are_drafted():
    models, params = setting("t5")
    made = decoder(models, Strategy(EagleTree((9,))), LIMIT)
    with pytest.raises(ValueError, match=r"widths gives a node 9 children; .* there are tokens, 8"):
        made.drafter.check(made.env(params))


def test_an_arm_must_not_read_the_target():
    arms = (Arm("features", Eagle(2), Whole()),)
    with pytest.raises(ValueError, match="arm 'features' reads the target's states"):
        Selected(arms, ByChance())


@pytest.mark.parametrize(
    "change, words",
    [
        ({"target_width": 20}, "made for a target of width 20; this one has 16"),
        ({"cross_heads": 3}, "made for a target of heads 3; this one has 2"),
        ({"features": (1, 5)}, r"reads the target's layers \(1, 5\); it has 2"),
    ],
)
def test_a_drafter_of_another_target_is_refused(change, words):
    models, params = setting("t5")
    drafter = dict(models)["drafter"]
    other = dataclasses.replace(drafter, config=dataclasses.replace(drafter.config, **change))
    made = decoder((models[0], ("drafter", other)), Strategy(Eagle(2)), LIMIT)
    with pytest.raises(ValueError, match=words):
        made.drafter.check(made.env(params))


@pytest.mark.parametrize("drafter", [Neural(2), NeuralTree((2,))])
def test_a_feature_drafter_is_no_small_model(drafter):
    models, params = setting("t5")
    made = decoder(models, Strategy(drafter), LIMIT)
    with pytest.raises(ValueError, match="its drafter must be 'eagle' or 'eagle_tree'"):
        made.drafter.check(made.env(params))


def test_a_small_model_is_no_feature_drafter():
    models, params = setting("t5")
    made = decoder((models[0], ("drafter", models[0][1])), Strategy(Eagle(2)), LIMIT)
    with pytest.raises(ValueError, match="must be a feature drafter"):
        made.drafter.check(made.env(params | {"drafter": params["target"]}))
