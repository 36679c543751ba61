"""One arm for each text: tokens, laws, and what runs when rows choose different arms."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from counting import CALLS, Counting
from decodes import decoder, inputs, run, texts
from exits import DEPTH, Uncached
from exits import MODELS as EXITING
from exits import PARAMS as WEIGHTS
from exits import PROMPTS as EXIT_PROMPTS
from scripted import PrefixModel, chi_square, count_outputs, prefix_params, sequence_distribution

from specjax.api import Generator
from specjax.contracts.context import Options
from specjax.decoding.loop import advance_jitted, begin_jitted, finish, generate
from specjax.decoding.strategy import Strategy
from specjax.drafting.copying import PromptLookup
from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.neural import Neural
from specjax.drafting.nothing import Nothing
from specjax.loading import LoadedModel
from specjax.models.t5 import T5, T5Config
from specjax.runtime.errors import UserError
from specjax.sampling import make_sampling
from specjax.selection.arms import ARM, Arm
from specjax.selection.choosing import ByChance, ByPolicy, ByRule, Given
from specjax.selection.selected import SelectedArms
from specjax.selection.strategies import make_selected as selected_of
from specjax.verification.fitted import FittedReader
from specjax.verification.whole import ResumedReader, WholeReader

V, LIMIT, EOS = 7, 12, 1
PROMPTS = [[3, 2, 4, 2], [5], [6, 2, 6], [2, 2], [4, 5, 6], [3, 3, 3]]
CHOICES = [0, 1, 2, 1, 1, 2]

NAMES = ("target", "near")
MODEL = PrefixModel(V, eos=(EOS,))
TARGET = prefix_params(V, seed=1)


def like(seed: int, noise: float):
    """Weights near the target's."""
    other = prefix_params(V, seed)
    return {name: value + noise * other[name] for name, value in TARGET.items()}


PARAMS = {"target": TARGET, "near": like(2, 0.15)}
ARMS = (
    Arm("none", Nothing(), WholeReader()),
    Arm("near", Neural(3, "near"), WholeReader()),
    Arm("copy", PromptLookup(2), FittedReader((0, 2))),
)
SELECTED = Strategy(SelectedArms(ARMS, Given()), reader=FittedReader((0, 2, 3)))


def name_models(model) -> tuple:
    """The models, each by its name."""
    return tuple((name, dataclasses.replace(model, name=name)) for name in NAMES)


MODELS = name_models(Counting(V, eos=(EOS,)))


def decode_selected(prompts, arms, temperature: float = 0.0, index: int = 0):
    """A decode whose rows, `index` and following, have the given arms."""
    strategy = dataclasses.replace(SELECTED, temperature=temperature)
    made = decoder(MODELS, strategy, LIMIT)
    prompt, length, keys, limit = inputs([*[[2]] * index, *prompts], LIMIT)
    width = max(map(len, PROMPTS))  # the same in every batch
    prompt = jnp.pad(prompt, ((0, 0), (0, width - prompt.shape[1])))
    rows = (each[index:] for each in (prompt, length, keys, limit))
    options = strategy.options().replace(rows={"arms": jnp.array(arms)})
    return generate(made, PARAMS, *rows, options)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(0.0, id="greedy"),
        pytest.param(1.0, id="sampled", marks=pytest.mark.slow),
    ],
)
def temperature(request):
    return request.param


@pytest.fixture(scope="module")
def own(temperature):
    """Decodes of all prompts by each arm's own strategy."""
    return [
        run(
            tuple((name, MODEL) for name in NAMES),
            PARAMS,
            Strategy(arm.drafter, temperature=temperature),
            PROMPTS,
            LIMIT,
        )
        for arm in ARMS
    ]


@pytest.fixture(scope="module")
def together(temperature):
    return decode_selected(PROMPTS, CHOICES, temperature)


@pytest.mark.slow
def test_every_row_decodes_as_under_the_strategy_of_its_arm(own, together):
    for row, arm in enumerate(CHOICES):
        assert texts(together)[row] == texts(own[arm])[row]
        for field in ("drafted", "accepted", "committed"):
            expected = np.asarray(getattr(own[arm].trace, field))[row]
            assert np.array_equal(np.asarray(getattr(together.trace, field))[row], expected)
        ran = np.asarray(together.trace.committed)[row] > 0
        assert set(np.asarray(together.trace.column(ARM))[row, ran].tolist()) == {arm}
        calls = {name: int(count[row]) for name, count in together.trace.calls.items()}
        assert calls == dict.fromkeys(NAMES, 0) | {
            name: int(count[row]) for name, count in own[arm].trace.calls.items()
        }


@pytest.mark.slow
def test_a_row_alone_has_the_tokens_rounds_and_writers_it_has_in_a_batch(temperature, together):
    for row, arm in enumerate(CHOICES):
        one = decode_selected(PROMPTS[row : row + 1], [arm], temperature, index=row)
        assert texts(one) == texts(together)[row : row + 1]
        for name in ("drafted", "accepted", "committed", "tested", ARM):
            got, want = (np.asarray(out.trace.column(name)) for out in (one, together))
            assert np.array_equal(got[0], want[row])
        assert np.array_equal(one.trace.drafted_by[0], together.trace.drafted_by[row])
        begin, end = int(one.begin[0]), int(one.length[0])
        got, want = (out.trace.written_by for out in (one, together))
        assert np.array_equal(got[0, begin:end], want[row, begin:end])
        assert one.trace.runs["target"] == one.trace.calls["target"][0]


@pytest.mark.slow
@pytest.mark.parametrize("arm", range(len(ARMS)))
@pytest.mark.parametrize("rows", [1, 6])
def test_models_of_arms_that_no_row_chose_do_not_run(arm, rows):
    CALLS.clear()
    out = decode_selected(PROMPTS[:rows], [arm] * rows)
    jax.block_until_ready(out)
    jax.effects_barrier()
    models = ARMS[arm].drafter.spec.models
    assert {name for name, _ in CALLS} == {"target", *models}
    # The embedding is the target's one reading of the prompt.
    assert {name: CALLS[name, "start"] for name in models} == dict.fromkeys(models, 1)
    assert CALLS["target", "start"] == 1
    assert CALLS["target", "extend"] == int(out.trace.runs["target"])


def test_rows_that_are_not_decoded_wake_no_arm():
    strategy = SELECTED
    prompt, length, keys, limit = inputs(PROMPTS, LIMIT)
    CALLS.clear()
    options = strategy.options().replace(rows={"arms": jnp.array([0, 2, 1, 1, 1, 1])})
    limit = limit * jnp.array([1, 1, 0, 0, 0, 0])
    generate(decoder(MODELS, strategy, LIMIT), PARAMS, prompt, length, keys, limit, options)
    jax.effects_barrier()
    assert {name for name, _ in CALLS} == {"target"}


@pytest.mark.slow
def test_a_stream_is_the_same_as_a_whole_decode():
    made = decoder(MODELS, SELECTED, LIMIT)
    options = SELECTED.options().replace(rows={"arms": jnp.array([1])})
    state = begin_jitted(made, PARAMS, *inputs(PROMPTS[:1], LIMIT), options)
    while bool(state.context.active.any()):
        before = int(state.trace.rounds)
        state = advance_jitted(made, PARAMS, state, 2)
        assert int(state.trace.rounds) <= before + 2
    assert texts(finish(state)) == texts(decode_selected(PROMPTS[:1], [1]))


# Choosers


def scores(params, embedding):
    return embedding @ params["kernel"]


KERNEL = {"kernel": jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)), jnp.float32)}


def choose(chooser, tree, embedding, seed: int = 0):
    """Arms [B] that a chooser names for embeddings [B, D]."""
    keys = jax.random.split(jax.random.key(seed), len(embedding))
    params = dict.fromkeys(chooser.tables, tree)
    return chooser.choose(params, embedding, Options(make_sampling(0.0), {}), keys, len(ARMS))


def test_a_greedy_policy_takes_the_largest_logit():
    logits = scores(KERNEL, TARGET["embedding"])
    arms = choose(ByPolicy(scores), KERNEL, TARGET["embedding"])
    assert len(set(arms.tolist())) > 1
    assert np.array_equal(arms, np.argmax(logits, axis=1))


def test_dynamic_and_random_choices_have_their_laws():
    embedding = jnp.broadcast_to(TARGET["embedding"][2], (4000, 6))
    distribution = jax.nn.softmax(scores(KERNEL, embedding[:1])[0])
    for chooser, expected in (
        (ByPolicy(scores, True), distribution),
        (ByChance(), np.full(3, 1 / 3)),
    ):
        arms = np.asarray(choose(chooser, KERNEL, embedding))
        seen = {(arm,): int((arms == arm).sum()) for arm in range(3)}
        assert chi_square(seen, {(arm,): float(expected[arm]) for arm in range(3)}) > 1e-3


def test_given_arms_must_be_given():
    assert SELECTED.drafter.rows == ("arms",)
    with pytest.raises(KeyError, match="arms"):
        choose(Given(), {}, TARGET["embedding"])


def test_a_generator_that_is_not_told_the_arms_says_so():
    model = T5(
        T5Config(
            vocab_size=9, d_model=8, d_kv=4, d_ff=8, num_heads=2, num_layers=1,
            num_decoder_layers=1,
        )
    )  # fmt: skip
    loaded = LoadedModel(model, model.init(jax.random.key(0)))
    arms = {"none": Strategy(), "copy": Strategy(PromptLookup(2))}
    generator = Generator(loaded, strategy=selected_of(arms, Given()), max_new_tokens=2)
    with pytest.raises(UserError, match="arms is None; the strategy needs that of each row"):
        generator([[3, 4]])


def above(tree, embedding, keys):
    return jnp.where(embedding[:, 0] > tree["least"], 1, 2)


def test_a_rule_may_read_a_state_that_changes_between_calls():
    strategy = dataclasses.replace(SELECTED, drafter=SelectedArms(ARMS, ByRule(above, "bandit")))
    made = decoder(MODELS, strategy, LIMIT)
    before = generate._cache_size()
    for least, arm in ((-1e9, 1), (1e9, 2)):
        params = PARAMS | {"bandit": {"least": jnp.float32(least)}}
        out = generate(made, params, *inputs(PROMPTS, LIMIT), strategy.options())
        assert set(np.asarray(out.trace.column(ARM))[:, 0].tolist()) == {arm}
        last = [prompt[-1] for prompt in PROMPTS]
        assert np.array_equal(out.memory.embedding, TARGET["embedding"][np.array(last)])
    assert generate._cache_size() == before + 1


# Early exits

EXITS = (
    Arm("none", Nothing(), WholeReader()),
    Arm("exit_1", EarlyExit(3, exit=1), ResumedReader(1)),
    Arm("exit_2", EarlyExit(2, exit=2), ResumedReader(2)),
)
assert DEPTH == 3


STRATEGY = Strategy(SelectedArms(EXITS, Given()), reader=FittedReader((0, 2, 3)))


def decode_exiting(kind: str, prompts, arms):
    """A decode of rows with the given early exits."""
    made = decoder((("target", EXITING[kind]),), STRATEGY, LIMIT)
    options = STRATEGY.options().replace(rows={"arms": jnp.array(arms)})
    return generate(made, {"target": WEIGHTS[kind]}, *inputs(prompts, LIMIT), options)


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXITING)
def test_early_exits_of_several_depths_are_arms_of_one_target(kind):
    prompt = EXIT_PROMPTS[0]
    for arm in (0, 1, 2):
        one = decode_exiting(kind, [prompt], [arm])
        assert texts(one) == [Uncached(kind).greedy(prompt, LIMIT)]
        assert bool(np.any(one.trace.drafted)) == (arm > 0)
        calls = {part: int(count[0]) for part, count in one.trace.calls.items()}
        assert [calls[f"target[:{exit}]"] > 0 for exit in (1, 2)] == [arm == 1, arm == 2]


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXITING)
def test_early_exits_side_by_side_leave_each_others_rows_alone(kind):
    arms = [1, 2, 1, 0]
    together = decode_exiting(kind, EXIT_PROMPTS, arms)
    assert texts(together) == [Uncached(kind).greedy(prompt, LIMIT) for prompt in EXIT_PROMPTS]
    for row, (prompt, arm) in enumerate(zip(EXIT_PROMPTS, arms, strict=True)):
        one = decode_exiting(kind, [prompt], [arm])
        assert np.array_equal(one.trace.accepted[0], together.trace.accepted[row])


# The law

LENGTH = 3
SETTINGS = {"plain": (1.0, 0, 1.0), "truncated": (0.7, 4, 0.9)}


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["plain", "truncated"])
def test_sampling_with_arms_side_by_side_keeps_the_target_law(settings, rows):
    settings = SETTINGS[settings]
    models = tuple((name, MODEL) for name in NAMES)
    distribution = sequence_distribution(MODEL, TARGET, (3, 2, 4, 2), (0,), LENGTH, settings)
    strategy = Strategy(
        SelectedArms(ARMS, ByChance()), SELECTED.rule, *settings, reader=FittedReader((0, 2, 3))
    )
    out = run(models, PARAMS, strategy, [(3, 2, 4, 2)] * rows, LENGTH, seed=7)
    assert len(np.unique(np.asarray(out.trace.column(ARM))[:, 0])) == len(ARMS)
    assert chi_square(count_outputs(texts(out)), distribution) > 1e-3
