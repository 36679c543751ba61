"""Heads on the target's own states: the state they hold, and drafts as they were trained."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, first_state, inputs, one_round, propose_jitted, run, texts
from parallel_heads import heads_on_target, random_heads
from slow_cases import some_slow

from specjax.contracts.drafter import CALLS
from specjax.contracts.env import Env
from specjax.decoding.strategy import Strategy, strategy
from specjax.drafting.hydra import Hydra
from specjax.drafting.medusa import Medusa
from specjax.models.bart import Bart, BartConfig
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config
from specjax.selection.arms import Arm
from specjax.selection.switched import SwitchedArms
from specjax.training.objective import shift_right
from specjax.training.objectives.hydra import Hydra as HydraObjective
from specjax.training.objectives.medusa import Medusa as MedusaObjective
from specjax.verification.whole import WholeReader

V, D, LIMIT, LENGTH = 12, 16, 14, 3
T5_SHAPE = T5Config(
    vocab_size=V, d_model=D, d_kv=4, d_ff=24, num_heads=2, num_layers=1, num_decoder_layers=2,
    max_distance=12, eos=(1,), tied=True, scale_outputs=True,
)  # fmt: skip
LLAMA_SHAPE = CausalConfig(
    "llama", V, d_model=D, d_ff=16, num_layers=2, num_heads=2, num_kv_heads=1, d_head=8,
    max_positions=64, rope=Rope(8), eos=(1,),
)  # fmt: skip
BART_SHAPE = BartConfig(
    "bart", V, d_model=D, d_ff=24, num_heads=2, num_decoder_layers=2, encoder_ff=24,
    encoder_heads=2, num_layers=1, max_positions=32, post_norm=True, embedding_norm=True,
    final_norm=False, logits_bias=True, start_token=0, eos=(1,), pad=0,
)  # fmt: skip
TARGETS = {"t5": T5(T5_SHAPE), "llama": Causal(LLAMA_SHAPE), "bart": Bart(BART_SHAPE)}
WITH_ENCODER = ("t5", "bart")
PROMPTS = [[3, 4, 5, 1], [6], [7, 8, 9, 2, 3, 4, 1], [2, 2, 2, 1]]
HEADS = {kind: heads_on_target(LENGTH, D, kind, scale=0.2) for kind in (False, True)}
UNNORMED = {kind: heads_on_target(LENGTH, D, kind, 0.2, normed=False) for kind in (False, True)}
DRAFTERS = {
    "medusa_chain": Medusa(LENGTH, model="target"),
    "medusa": Medusa(widths=(2, 2, 1), model="target"),
    "hydra": Hydra(LENGTH),
    "hydra_tree": Hydra(widths=(2, 2, 1), nodes=6),
}
EVERY = ["t5", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("llama", "bart"))]
PAIRS = [(kind, name) for kind in TARGETS for name in DRAFTERS]


def every_pair(*quick: tuple[str, str]):
    """Every target with every drafter; all but the quick ones compile more than they add."""
    return pytest.mark.parametrize(("kind", "name"), some_slow(PAIRS, *quick))


def heads_on(kind: str, sequential: bool):
    """Heads for a target; BART has no final norm."""
    return (UNNORMED if kind == "bart" else HEADS)[sequential]


@functools.cache
def weights(kind: str):
    return jax.tree.map(lambda x: x * 1.3, TARGETS[kind].init(jax.random.key(3)))


def setting(kind: str, drafter):
    """The target, and what a decode with the drafter reads."""
    loaded = heads_on(kind, getattr(drafter, "sequential", False))
    return (("target", TARGETS[kind]),), {"target": weights(kind), "heads": loaded}


@functools.cache
def states(kind: str, drafter):
    """The decoder, its parameters and the state before every round and after the last."""
    models, params = setting(kind, drafter)
    made = decoder(models, Strategy(drafter), LIMIT)
    state = first_state(made, params, *inputs(PROMPTS, LIMIT), Strategy(drafter).options())
    seen = [state]
    while bool(state.context.active.any()):
        state = one_round(made, params, state)
        seen.append(state)
    return made, params, seen


def make_batch(kind: str, context) -> dict[str, jax.Array]:
    """The text as training has it."""
    batch = {"inputs": context.tokens, "length": context.length}
    if kind in WITH_ENCODER:
        batch |= {"prompt": context.encoder_tokens, "prompt_length": context.encoder_length}
    return batch | {"mask": jnp.ones_like(context.tokens, bool)}


@functools.partial(jax.jit, static_argnames="kind")
def decode_uncached(kind: str, batch) -> jax.Array:
    return TARGETS[kind].states(weights(kind), batch)


def wrong_rows(kind: str, state) -> int:
    """Active rows whose memory is not the target's last state before the pending token."""
    hidden = shift_right(decode_uncached(kind, make_batch(kind, state.context)), 1)
    rows = np.arange(len(PROMPTS))
    expected = np.asarray(hidden)[rows, np.asarray(state.context.length) - 1]
    off = np.abs(np.asarray(state.memory.own) - expected).max(axis=-1) > 1e-4
    return int(np.sum(off & np.asarray(state.context.active)))


@pytest.mark.slow
@every_pair(("t5", "hydra_tree"), ("llama", "hydra"))
def test_the_memory_is_the_targets_state_before_the_pending_token(kind, name):
    _, _, seen = states(kind, DRAFTERS[name])
    assert len(seen) > 3
    assert [wrong_rows(kind, state) for state in seen] == [0] * len(seen)
    first = np.asarray(seen[0].memory.own)
    # An encoder-decoder target has read nothing; of a prompt of one token nothing is before it.
    assert (
        not np.any(first)
        if kind in WITH_ENCODER
        else np.all(np.any(first, axis=-1) == [1, 0, 1, 1])
    )


@dataclasses.dataclass(frozen=True)
class Forgetful(Hydra):
    """Wrong on purpose: goes on from the state of the round before the last."""

    def update(self, memory, outcome):
        return memory


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVERY)
def test_the_audit_sees_a_stale_state(kind):
    _, _, seen = states(kind, Forgetful(LENGTH))
    assert any(wrong_rows(kind, state) for state in seen)


@functools.partial(jax.jit, static_argnames=("kind", "sequential"))
def compute_head_logits(kind: str, sequential: bool, batch) -> list[jax.Array]:
    """Logits [B, T, V] of every head on a text, where the objective compares them."""
    objective = (HydraObjective if sequential else MedusaObjective)(LENGTH, D + 2)
    model, params = TARGETS[kind], weights(kind)
    heads = heads_on(kind, sequential)
    assert objective.heads_on(model) == heads.heads
    hidden = model.states(params, batch)
    drafted, _ = objective._drafts(model, params, heads.params, batch, hidden)
    return [model.read_out(params, state) for state in drafted]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("llama", "hydra"),
        ("t5", "medusa_chain"),
        ("t5", "hydra"),
        ("bart", "hydra"),
        ("bart", "medusa_chain"),
        ("llama", "medusa_chain"),
    ],
)
def test_a_draft_is_what_was_trained_at_its_place(kind, name):
    """Token j is of head j, where training put it: behind the draft's first j - 1 tokens."""
    made, params, seen = states(kind, DRAFTERS[name])
    checked = 0
    for state in seen[:-1]:
        draft, *_ = propose_jitted(made, params, state)
        context, rows = state.context, np.flatnonzero(np.asarray(state.context.active))
        text = np.asarray(context.tokens).copy()
        for row in rows:
            room = text[row, int(context.length[row]) :][:LENGTH]
            room[:] = np.asarray(draft.tokens)[row, : len(room)]
        batch = make_batch(kind, context.replace(tokens=jnp.asarray(text)))
        logits = compute_head_logits(kind, name == "hydra", batch)
        for row in rows:
            for place in range(int(draft.length[row])):
                at = np.asarray(logits[place])[row, int(context.length[row]) - 1 + place]
                two = np.sort(at)[-2:]
                if two[1] - two[0] > 1e-3:  # no tie that rounding decides
                    assert at.argmax() == draft.tokens[row, place]
                    checked += 1
    assert checked > 20


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_node_reads_the_tokens_of_its_path(temperature):
    """Every node hangs on a path; the law it was drawn from is that of a chain along the path."""
    drafter = Hydra(widths=(2, 2, 1))
    models, params = setting("t5", drafter)
    chosen = Strategy(drafter, temperature=temperature)
    made = decoder(models, chosen, LIMIT)
    state = first_state(made, params, *inputs(PROMPTS, LIMIT), chosen.options())
    state = one_round(made, params, state)
    draft, *_ = propose_jitted(made, params, state)
    tokens = np.asarray(draft.tokens)
    pending = np.asarray(state.context.tokens)[range(4), np.asarray(state.context.length) - 1]
    env, shape = made.env(params), drafter.shape
    for node in range(shape.size):
        path = shape.path(shape.parents[node])
        text = np.concatenate([pending[:, None], tokens[:, list(path)]], axis=1)
        logits = np.asarray(made.drafter._logits(env, state.memory.own, jnp.asarray(text)))
        if temperature:
            distribution = np.asarray(draft.distribution.probs)[:, shape.distributions[node]]
            np.testing.assert_allclose(distribution, jax.nn.softmax(logits), atol=1e-5)
        else:
            best = np.argsort(-logits, axis=-1)[:, shape.ranks[node]]
            np.testing.assert_array_equal(tokens[:, node], best)


@pytest.mark.slow
@every_pair(("t5", "hydra_tree"))
def test_the_targets_own_text_is_written(kind, name):
    models, params = setting(kind, DRAFTERS[name])
    baseline = texts(run(models, params, Strategy(), PROMPTS, LIMIT))
    assert texts(run(models, params, Strategy(DRAFTERS[name]), PROMPTS, LIMIT)) == baseline


@pytest.mark.slow
@pytest.mark.parametrize("drafter", ["hydra", "medusa"])
def test_a_narrower_call_gives_the_same_text_and_states(drafter):
    fields = {"length": LENGTH} | ({"model": "target"} if drafter == "medusa" else {})
    whole, fitted = (strategy(drafter=drafter, **fields, reader=r) for r in ("whole", "fitted"))
    models, params = setting("t5", whole.drafter)
    one, other = (run(models, params, chosen, PROMPTS, LIMIT) for chosen in (whole, fitted))
    assert texts(one) == texts(other)
    np.testing.assert_array_equal(one.trace.accepted, other.trace.accepted)


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAFTERS)
def test_no_model_is_called_but_the_read_out_is_counted(name):
    drafter = DRAFTERS[name]
    spec = drafter.spec
    assert spec.models == () and {call.part for call in spec.calls} == {"target read-out"}
    assert sum(call.tokens for call in spec.calls) == (
        sum(drafter.fed) if drafter.sequential else drafter.depth
    )
    _, _, seen = states("t5", drafter)
    trace = seen[-1].trace
    runs = np.asarray(trace.column(CALLS + "target read-out"))
    rounds = np.asarray(trace.column(CALLS + "target"))
    most = len(spec.calls)
    assert np.all(runs <= most * rounds) and np.all((runs > 0) == (rounds > 0))
    assert runs.max() == most


REFUSED = {
    "as wide": (Hydra(2), heads_on_target(2, 8, True), "a model of width 8; 'target' has 16"),
    "as many": (Hydra(4), HEADS[True], "length is 4; 'heads' holds 3 heads"),
    "levels": (Hydra(widths=(1,) * 4), HEADS[True], "of 4 levels; 'heads' holds 3 heads"),
    "children": (Hydra(widths=(20,)), HEADS[True], "gives a node 20 children"),
    "of a trunk": (
        DRAFTERS["medusa_chain"], random_heads(3, D, 0),
        "states of the pending token; model is 'target', it must be a model that is called",
    ),
    "of the target": (
        Medusa(2), HEADS[False],
        "states before the pending token; model is 'drafter', it must be the target",
    ),
    "independent": (Hydra(2), HEADS[False], "does not read .* must be medusa"),
    "sequential": (DRAFTERS["medusa"], HEADS[True], "reads the .* must be hydra"),
}  # fmt: skip


@pytest.mark.parametrize("case", list(REFUSED))
def test_heads_that_were_made_for_other_states_are_refused(case):
    drafter, heads, words = REFUSED[case]
    model = TARGETS["t5"]
    env = Env(
        {"target": {}, "drafter": {}, "heads": heads}, (("target", model), ("drafter", model))
    )
    with pytest.raises(ValueError, match=words):
        drafter.check(env)


@pytest.mark.parametrize("name", ["medusa_chain", "hydra"])
def test_an_arm_of_single_rounds_must_not_read_the_target(name):
    with pytest.raises(ValueError, match="arm 'heads' reads the target's states"):
        SwitchedArms((Arm("heads", DRAFTERS[name], WholeReader()),), (1,))


@pytest.mark.parametrize("kind", some_slow(TARGETS, "t5"))
def test_fresh_heads_repeat_the_targets_law(kind):
    """Whether or not a final norm drops the scale of its states."""
    heads = MedusaObjective(1).heads_on(TARGETS[kind])
    hidden = 3.0 * jax.random.normal(jax.random.key(1), (5, D))
    state = heads.compute_state(heads.init(jax.random.key(0)), hidden, 1)
    expected, found = (TARGETS[kind].read_out(weights(kind), x) for x in (hidden, state))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_of_states_and_embeddings_only_the_direction_counts():
    """As to a final norm, which drops the length too."""
    loaded = HEADS[True]
    state, token = jax.random.normal(jax.random.key(0), (2, 3, D))
    one, other = (
        loaded.heads.compute_state(loaded.params, scale * state, 1, scale * token[:, None])
        for scale in (1.0, 50.0)
    )
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
