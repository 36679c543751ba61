"""Another arm and draft length at every round: what is learned, what is chosen, and the law."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run, texts
from scripted import (
    PrefixModel,
    TracedScript,
    chi_square,
    count_outputs,
    prefix_params,
    sequence_distribution,
)

from specjax.decoding.strategy import Strategy
from specjax.drafting.adaptive_length import Running
from specjax.drafting.copying import PromptLookup
from specjax.drafting.neural import Neural
from specjax.drafting.nothing import Nothing
from specjax.selection import switching
from specjax.selection.arms import ARM, Arm
from specjax.selection.switched import SwitchedArms
from specjax.theory.speculative import expected_tokens
from specjax.verification.fitted import FittedReader
from specjax.verification.whole import WholeReader

NUMBERS = {
    "acceptance": 0.6,
    "trust": 2.0,
    "discount": 0.8,
    "explore": 1.0,
    "prior": 4.0,
    "verification": 0.05,
    "overhead": 0.3,
}


def numbers(**changes):
    return {name: jnp.float32(value) for name, value in (NUMBERS | changes).items()}


def test_speeds_are_tokens_over_costs():
    acceptance = jnp.array([[0.3, 0.9, 0.5], [1.0 - 1e-6, 0.0, 0.5]])
    arms, lengths = (0, 1, 1, 2), (3, 1, 7, 0)
    found = switching.speeds(acceptance, arms, lengths, numbers(costs=(0.2, 0.1, 0.0)))
    for row in range(2):
        for option, (arm, length) in enumerate(zip(arms, lengths, strict=True)):
            tokens = expected_tokens(float(acceptance[row, arm]), length)
            cost = 1 + 0.3 * (length > 0) + length * ((0.2, 0.1, 0.0)[arm] + 0.05)
            assert found[row, option] == pytest.approx(float(tokens) / cost, rel=1e-5)


def test_a_round_counts_for_its_arm_and_makes_older_ones_count_less():
    seen = Running(jnp.array([[2.0, 1.0]]), jnp.array([[3.0, 4.0]]))
    arm, accepted, tested = (jnp.array([value]) for value in (1, 2, 3))
    after = switching.after(seen, arm, accepted, tested, numbers(discount=0.5))
    assert after.accepted.tolist() == [[1.0, 2.5]]
    assert after.tested.tolist() == [[1.5, 5.0]]


def test_optimism_shrinks_with_tests_and_noise_has_its_size():
    seen = Running(jnp.array([[0.0, 6.0, 600.0]]), jnp.array([[0.0, 10.0, 1000.0]]))
    plain = switching.optimistic_acceptance(seen, numbers(explore=0.0), None)
    assert np.allclose(plain, 0.6, atol=1e-3)
    bonus = np.asarray(switching.optimistic_acceptance(seen, numbers(), None) - plain)[0]
    assert np.allclose(bonus, np.sqrt(0.24 / np.array([2.0, 12.0, 1002.0])), atol=1e-3)
    many = jax.tree.map(lambda x: jnp.broadcast_to(x[:, 1:], (4000, 2)), seen)
    keys = jax.random.split(jax.random.key(0), 4000)
    drawn = np.asarray(switching.optimistic_acceptance(many, numbers(), keys))
    assert np.allclose(drawn.mean(axis=0), 0.6, atol=0.01)
    assert np.allclose(drawn.std(axis=0), bonus[1:], rtol=0.05)


def test_a_policy_is_believed_like_so_many_tests():
    start = switching.policy_prior(jnp.log(jnp.array([[0.5, 0.25, 0.25]])), numbers(prior=4.0))
    assert np.allclose(start.tested, 4.0)
    assert np.allclose(start.accepted, [[4.0, 2.0, 2.0]])


LONG = 24
TEXT = tuple(5 + place % 4 for place in range(LONG))
WRONG = (9,) * LONG
SCRIPTED = tuple((name, TracedScript()) for name in ("target", "first", "second"))
ARMS = (
    Arm("none", Nothing(), WholeReader()),
    Arm("first", Neural(3, "first"), WholeReader()),
    Arm("second", Neural(3, "second"), WholeReader()),
)


def scripts(**texts: tuple[int, ...]):
    """Parameters of the scripted models."""
    peaks = jnp.full(64, 9.0)
    return {
        name: {"script": jnp.array((*texts[name], *(2,) * (64 - LONG))), "peaks": peaks}
        for name in ("target", "first", "second")
    }


def switch(lengths=(1, 3), **changes) -> Strategy:
    values = {"costs": (0.0, 0.1, 0.1), **switching.DEFAULTS, **changes}
    return Strategy(
        SwitchedArms(ARMS, lengths), numbers=tuple(values.items()), reader=FittedReader((0, 1, 3))
    )


def rounds(strategy: Strategy, params):
    """(arms, drafted, accepted) by round, and the tokens."""
    out = run(SCRIPTED, params, strategy, [[3]], LONG)
    count = int(out.trace.rounds)
    fields = (out.trace.column(ARM), out.trace.drafted, out.trace.accepted)
    return *(np.asarray(field)[0, :count].tolist() for field in fields), texts(out)[0]


def test_the_arm_changes_where_the_text_does():
    half = LONG // 2
    params = scripts(
        target=TEXT, first=TEXT[:half] + WRONG[half:], second=WRONG[:half] + TEXT[half:]
    )
    arms, _, accepted, tokens = rounds(switch(), params)
    assert tokens == list(TEXT)
    begins = np.cumsum([0, *(n + 1 for n in accepted)])[:-1]
    early = [arm for arm, begin in zip(arms, begins, strict=True) if begin < half]
    late = [arm for arm, begin in zip(arms, begins, strict=True) if begin >= half]
    assert early.count(1) > len(early) / 2
    assert late[-1] == 2 and late.count(2) >= len(late) / 2
    # Six rounds of four tokens would be the best; one arm alone needs three and twelve.
    assert len(arms) <= 11


def test_where_no_arm_is_right_the_target_soon_goes_on_alone():
    params = scripts(target=TEXT, first=WRONG, second=WRONG)
    arms, drafted, _, tokens = rounds(
        switch(costs=(0.0, 0.4, 0.4), discount=1.0, explore=0.5), params
    )
    assert tokens == list(TEXT)
    assert set(arms[:4]) >= {1, 2}
    assert arms[-8:] == [0] * 8
    assert drafted[-8:] == [0] * 8


def test_the_length_follows_the_acceptance():
    params = scripts(target=TEXT, first=TEXT, second=WRONG)
    arms, drafted, _, _ = rounds(switch(acceptance=0.2, explore=0.0, trust=1.0), params)
    assert (arms[-2:], drafted[-2]) == ([1, 1], 3)


def of_prompt(tree, embedding):
    """The arm in which the one-hot prompt token is."""
    return embedding @ tree


def test_a_policy_decides_the_first_round():
    strategy = switch(prior=20.0)
    drafter = dataclasses.replace(strategy.drafter, logits=of_prompt)
    strategy = dataclasses.replace(strategy, drafter=drafter)
    params = scripts(target=TEXT, first=TEXT, second=TEXT)
    for arm in (1, 2):
        tree = jnp.zeros((10, 3)).at[3, arm].set(9.0)
        arms, *_ = rounds(strategy, params | {"policy": tree})
        assert arms[0] == arm


V, EOS, LENGTH = 5, 1, 3
SOURCE = (3, 2, 4, 2)
MODEL = PrefixModel(V, eos=(EOS,))
PREFIX = {"target": prefix_params(V, 1), "drafter": prefix_params(V, 2, scale=0.7)}
SAMPLED_ARMS = (
    Arm("none", Nothing(), WholeReader()),
    Arm("neural", Neural(3), WholeReader()),
    Arm("copy", PromptLookup(2), WholeReader()),
)


def p_value(drafter: SwitchedArms, settings, rows: int) -> tuple[float, np.ndarray]:
    """Of the chi-square test against the target's law; and the arms that drafted [N]."""
    models = (("target", MODEL), ("drafter", MODEL))
    values = {**switching.DEFAULTS, "explore": 2.0, "acceptance": 0.5}
    costs = ("costs", (0.0, 0.2, 0.1))
    numbers, reader = (costs, *values.items()), FittedReader((0, 1, 2, 3))
    strategy = Strategy(drafter, Strategy().rule, *settings, numbers, reader)
    out = run(models, PREFIX, strategy, [SOURCE] * rows, LENGTH, seed=7)
    distribution = sequence_distribution(MODEL, PREFIX["target"], SOURCE, (0,), LENGTH, settings)
    ran = np.asarray(out.trace.committed) > 0
    return chi_square(count_outputs(texts(out)), distribution), np.asarray(out.trace.column(ARM))[
        ran
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("thompson", "settings"),
    [(True, (1.0, 0, 1.0)), (False, (1.0, 0, 1.0)), (True, (0.7, 4, 0.9)), (False, (0.7, 4, 0.9))],
)
def test_switching_keeps_the_target_law(thompson, settings, rows):
    p, arms = p_value(SwitchedArms(SAMPLED_ARMS, (1, 3), thompson=thompson), settings, rows)
    assert p > 1e-3
    assert len(np.unique(arms)) > 1


@dataclasses.dataclass(frozen=True)
class Peeking(SwitchedArms):
    """Wrong on purpose: drops a draft when it sees that it would end the text."""

    def propose(self, env, caches, memory, context, keys):
        draft, *rest = super().propose(env, caches, memory, context, keys)
        length = jnp.where(draft.tokens[:, 0] == EOS, 0, draft.length)
        return draft.replace(length=length), *rest


@pytest.mark.slow
def test_a_choice_that_sees_the_draft_fails_the_same_test(rows):
    peeking = Peeking(SAMPLED_ARMS, (1, 3), thompson=True)
    assert p_value(peeking, (1.0, 0, 1.0), rows)[0] < 1e-6
