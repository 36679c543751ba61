"""Cache audit: under every pointer lies what a fresh uncached computation gives.

Stale drafter caches do not change lossless outputs, they only cost acceptance, so no end-to-end
test would see them.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, first_state, inputs, one_round, run, texts
from parallel_heads import random_heads
from scripted import PrefixModel, prefix_params

import specjax
from specjax.contracts.catching_up import catch_up, count_catch_up_runs
from specjax.contracts.context import Context, Options
from specjax.contracts.env import Bound
from specjax.data.corpus import Corpus
from specjax.decoding.strategy import Strategy
from specjax.drafting import cascade as cascades
from specjax.drafting.adaptive_length import BREAK_EVEN
from specjax.drafting.copying import MaxGram, PromptLookup
from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.matrix import Cascade
from specjax.drafting.medusa import Medusa
from specjax.drafting.neural import Neural
from specjax.drafting.ngram import Bigram, Unigram
from specjax.drafting.nothing import Nothing
from specjax.drafting.suffix import Suffix
from specjax.drafting.uniform import Uniform
from specjax.models.t5 import T5, T5Config
from specjax.sampling import make_sampling
from specjax.selection import switching
from specjax.selection.arms import Arm
from specjax.selection.choosing import ByChance
from specjax.selection.selected import SelectedArms
from specjax.selection.switched import SwitchedArms
from specjax.training.ngram import fit
from specjax.verification.fitted import FittedReader
from specjax.verification.lenient import Lenient
from specjax.verification.whole import ResumedReader, WholeReader

V, EOS = 12, 1
CONFIG = T5Config(
    vocab_size=V, d_model=16, d_kv=4, d_ff=24, num_heads=2, num_layers=1, num_decoder_layers=2,
    max_distance=12, eos=(EOS,),
)  # fmt: skip
TARGET = T5(CONFIG)
SMALL = T5(dataclasses.replace(CONFIG, d_model=12, num_decoder_layers=1, gated=False))
MODELS = (("target", TARGET), ("drafter", SMALL))
LITTLE = T5(dataclasses.replace(CONFIG, d_model=8, num_decoder_layers=1))
THREE = (*MODELS, ("little", LITTLE))
PROMPTS = [[3, 4, 5, 1], [6, 1], [7, 8, 9, 2, 3, 4, 1], [2, 2, 2, 1]]
LIMIT = 14


def scale(params, factor: float):
    """Sharper random models: outputs vary, and now and then there is an EOS."""
    return jax.tree.map(lambda x: x * factor, params)


@functools.cache
def weights():
    earlier = Corpus(TARGET, 64)
    earlier.add([[3, 4, 5, 6, 1], [7, 8, 9, 1], [2, 3, 2, 3]])
    return {
        "target": scale(TARGET.init(jax.random.key(3)), 1.3),
        "drafter": scale(SMALL.init(jax.random.key(4)), 1.3),
        "little": scale(LITTLE.init(jax.random.key(5)), 1.3),
        "ngram": fit([[3, 4, 5, 6, 1], [7, 8, 9, 1], [2, 3, 2, 3]], V, start_token=0),
        "heads": random_heads(3, SMALL.config.d_model, seed=0),
        "corpus": earlier.table(),
    }


def bild(**given) -> Strategy:
    return specjax.strategy(**({"drafter": "bild", "rollback": 1.5, "length": 3} | given))


STRATEGIES = {
    "none": Strategy(Nothing()),
    "neural": Strategy(Neural(3)),
    "hot": Strategy(Neural(2), temperature=1.5),
    "confidence": Strategy(Neural(4, confidence="confidence"), numbers=(("confidence", 0.3),)),
    "break_even": Strategy(
        Neural(4, adapt=BREAK_EVEN), numbers=(("cost", 0.2),), reader=FittedReader((1, 2, 4))
    ),
    "exit": Strategy(EarlyExit(3, exit=1)),
    "exit_drafted": Strategy(
        EarlyExit(4, exit=1, confidence="confidence"),
        temperature=1.0,
        numbers=(("confidence", 0.3),),
        reader=FittedReader((0, 1, 3, 4), ResumedReader(1)),
    ),
    "sampled": Strategy(Neural(3), temperature=1.0),
    # Lenient enough for most drafts to stand: the trunk is then as far behind as it ever is.
    "blockwise": Strategy(Medusa(3), Lenient(), temperature=1.0, numbers=(("lenience", 1e-4),)),
    "neural_tree": Strategy(Neural(widths=(2, 2, 1))),
    "neural_tree_sampled": Strategy(Neural(parents=(-1, -1, 0, 2, 1, 0)), temperature=1.0),
    "likeliest_nodes": Strategy(Neural(widths=(3, 2, 2), nodes=6), temperature=1.0),
    "unigram": Strategy(Unigram(2), temperature=1.0),
    "bigram": Strategy(Bigram(3)),
    "prompt_lookup": Strategy(PromptLookup(3)),
    "max_gram": Strategy(MaxGram(3)),
    "suffix": Strategy(Suffix(3, corpus=True), temperature=1.0),
    "uniform": Strategy(Uniform(2), temperature=1.0),
    "bild": bild(fallback=0.3),
    "bild_official": bild(fallback=0.3, compat="official"),
    "bild_exit": bild(fallback=0.3, exit=1, compat="official"),
    "bild_reviewed_nucleus": bild(
        fallback=0.2,
        rollback=2.0,
        length=4,
        distance="kl",
        verify_eos=True,
        temperature=1.0,
        top_p=0.8,
    ),
    "vertical": Strategy(Cascade(("drafter", "little"), ((3, 0), (0, 2))), temperature=1.0),
    "horizontal": Strategy(Cascade(("drafter", "little"), ((1, 2), (0, 0)))),
    "cascade": Strategy(
        Cascade(
            ("drafter", "little", "max_gram"),
            ((2, 2, 2), (0, 1, 1), (0, 0, 2)),
            lenience="lenience",
        ),
        temperature=1.0,
        numbers=(("lenience", 0.2),),
    ),
    "reviewed_tree": Strategy(
        Cascade(("drafter", "bigram"), ((3, 0), (0, 2)), branches=3), temperature=1.0
    ),
    "selected": Strategy(
        SelectedArms(
            (
                Arm("small", Neural(3), WholeReader()),
                Arm("exit", EarlyExit(2, exit=1), ResumedReader(1)),
                Arm("tiny", Neural(2, "little"), WholeReader()),
            ),
            ByChance(),
        ),
        reader=FittedReader((2, 3)),
    ),
    "switched": Strategy(
        SwitchedArms(
            (
                Arm("none", Nothing(), WholeReader()),
                Arm("small", Neural(3), WholeReader()),
                Arm("exit", EarlyExit(2, exit=1), ResumedReader(1)),
                Arm("tiny", Neural(2, "little"), WholeReader()),
                Arm("small_confident", Neural(2, confidence="confidence"), WholeReader()),
            ),
            (1, 3),
            thompson=True,
        ),
        temperature=1.0,
        numbers=(
            ("confidence", 0.3),
            ("costs", (0.0, 0.1, 0.2, 0.1, 0.1)),
            *switching.DEFAULTS.items(),
            ("explore", 3.0),
        ),
        reader=FittedReader((0, 1, 2, 3)),
    ),
}


@jax.jit
def fresh(params, source, source_length, tokens):
    """Caches of all models after feeding all tokens at once."""
    caches = {}
    for name, model in THREE:
        cache, _ = model.start(params[name], source, source_length, tokens.shape[1])
        caches[name] = model.extend(params[name], tokens, cache)[1]
    return caches


def wrong_slots(state, name: str, model: str = "") -> list[tuple[int, int]]:
    """(row, slot) under the pointer of cache `name` whose keys or values are not the fresh ones.

    `model` is whose these are, where it is another one.
    """
    context, cache = state.context, state.caches[name]
    given = context.encoder_tokens, context.encoder_length, context.tokens
    expected = fresh(weights(), *given)[model or name]
    below = np.arange(context.tokens.shape[1]) < np.asarray(cache.length)[:, None]
    bad = np.zeros_like(below)
    pairs = zip(
        jax.tree.leaves(cache.data["own"]), jax.tree.leaves(expected.data["own"]), strict=True
    )
    for got, want in pairs:
        # float32 at other shapes rounds differently; values are O(1)
        bad |= np.abs(np.asarray(got) - np.asarray(want)).max(axis=(1, 3)) > 1e-4
    return list(zip(*np.nonzero(bad & below), strict=True))


def audit_rounds(strategy: Strategy, models=THREE, params=None):
    """Every state after a round, with the state before it."""
    params = params or weights()
    made = decoder(models, strategy, LIMIT)
    params = {name: params[name] for name in made.inputs}
    prompt, length, keys, limit = inputs(PROMPTS, LIMIT)
    limit = limit - jnp.array([0, 3, 9, 1])  # rows end at different rounds
    state = first_state(made, params, prompt, length, keys, limit, strategy.options())
    while bool(state.context.active.any()):
        before, state = state, one_round(made, params, state)
        yield before, state


QUICK = ("neural",)
EVERY_STRATEGY = pytest.mark.parametrize(
    "strategy",
    [
        pytest.param(strategy, id=name, marks=[] if name in QUICK else pytest.mark.slow)
        for name, strategy in STRATEGIES.items()
    ],
)


@EVERY_STRATEGY
def test_after_every_round_the_trusted_slots_are_fresh(strategy):
    rounds = 0
    for before, state in audit_rounds(strategy):
        rounds += 1
        for name, cache in state.caches.items():
            assert wrong_slots(state, name) == []
            pointer, length = np.asarray(cache.length), np.asarray(state.context.length)
            assert np.all(pointer <= length - 1)
            active = np.asarray(before.context.active)
            assert np.all(pointer[~active] == np.asarray(before.caches[name].length)[~active])
        target = np.asarray(state.caches["target"].length)
        going = np.asarray(state.context.active)  # a row may have ended without the target
        assert np.all(target[going] == length[going] - 1)
    assert rounds > 2


@pytest.mark.slow
@pytest.mark.parametrize("shape", [{"widths": (2, 2, 1)}, {"widths": (3, 2), "nodes": 5}], ids=str)
def test_a_drafter_trusts_no_slot_of_an_accepted_leaf(shape):
    """It is its target, so that whole paths are accepted, whose leaves it was never fed."""
    models = (("target", TARGET), ("drafter", TARGET))
    params = weights() | {"drafter": weights()["target"]}
    longest = 0
    for before, state in audit_rounds(Strategy(Neural(**shape)), models, params):
        assert wrong_slots(state, "drafter", "target") == []
        longest = max(longest, int((state.context.length - before.context.length).max()))
    assert longest == len(shape["widths"]) + 1


@pytest.mark.slow
def test_the_first_call_of_a_drafter_feeds_all_that_it_lacks():
    """Also its own last token, of a draft that stood whole: else every such round catches up."""
    models = (("target", TARGET), ("drafter", TARGET))
    params = weights() | {"drafter": weights()["target"]}
    strategy = STRATEGIES["neural"]
    opening = strategy.drafter.spec.calls[0].tokens
    lacking = []
    for _, state in audit_rounds(strategy, models, params):
        assert not np.any(count_catch_up_runs(state.caches["drafter"], state.context, opening))
        lacking += (state.context.length - state.caches["drafter"].length).tolist()
    assert max(lacking) == 2  # else no draft stood whole


@dataclasses.dataclass(frozen=True)
class Overconfident(Neural):
    """Wrong on purpose: trusts the slot of its last drafted token, which it never fed."""

    def propose(self, env, caches, memory, context, keys):
        draft, caches, *rest = super().propose(env, caches, memory, context, keys)
        cache = caches[self.model]
        return draft, {**caches, self.model: cache.replace(length=cache.length + 1)}, *rest


@pytest.mark.slow
def test_the_audit_sees_a_pointer_beyond_what_was_fed():
    # The target drafts for itself: drafts are always accepted, so the unfed slot stays trusted.
    strategy = Strategy(Overconfident(2, "target_again"))
    models = (*MODELS, ("target_again", TARGET))
    made = decoder(models, strategy, LIMIT)
    params = {name: weights()["target"] for name in made.inputs}
    prompt, length, keys, limit = inputs(PROMPTS, LIMIT)
    state = first_state(made, params, prompt, length, keys, limit, strategy.options())
    state = one_round(made, params, state)
    caches = {"target": state.caches["target_again"]}
    assert wrong_slots(state.replace(caches=caches), "target") != []


@pytest.mark.slow
def test_the_audit_sees_a_cascade_that_does_not_rewind(monkeypatch):
    def keeps(caches, before, length, active):
        return caches

    monkeypatch.setattr(cascades, "rewind", keeps)
    # The reviewer is the target itself: all it hands on stands, and what it rejected stays trusted.
    models = (("target", TARGET), ("drafter", TARGET), ("little", LITTLE))
    params = weights() | {"drafter": weights()["target"]}
    strategy = Strategy(Cascade(("drafter", "little"), ((4, 0), (0, 3))))
    rounds = audit_rounds(strategy, models, params)
    assert any(wrong_slots(after, "little") for _, after in rounds)


@pytest.mark.slow
def test_a_reviewer_trusts_no_slot_of_a_token_that_it_dropped():
    """Nobody else rewinds what drafted for it: the target is its twin and lets all of it stand."""
    models = (("target", TARGET), ("drafter", TARGET), ("little", LITTLE))
    params = weights() | {"drafter": weights()["target"]}
    strategy = Strategy(cascades.ReviewedDrafter("drafter", Neural(3, "little")))
    dropped = 0
    for before, after in audit_rounds(strategy, models, params):
        assert wrong_slots(after, "little") == []
        written = np.asarray(after.context.length - before.context.length)
        dropped += np.sum(written[np.asarray(after.context.active)] < 4)
    assert dropped  # else there was nothing to rewind


@pytest.mark.slow
def test_a_model_that_lags_far_behind_catches_up():
    prompt, length, _, _ = inputs(PROMPTS, LIMIT)
    tokens = jax.random.randint(jax.random.key(0), (4, 40), 2, V)
    committed = jnp.array([1, 30, 17, 25])
    pointer = jnp.array([0, 3, 16, 9])
    active = jnp.array([True, True, True, False])
    options = Options(make_sampling(0.0), {})
    first = jnp.ones(4, jnp.int32)
    most = jnp.where(active, 3, 0)
    context = Context(
        prompt, length, tokens, committed, first, committed + 5, most, active, options
    )
    # A cache that is right below each pointer and junk above it.
    cache = fresh(weights(), prompt, length, tokens)["target"].replace(length=pointer)
    junk = jnp.arange(40)[None, None, :, None] >= pointer[:, None, None, None]
    own = jax.tree.map(lambda x: jnp.where(junk, 99.0, x), cache.data["own"])
    cache = cache.replace(data={**cache.data, "own": own})
    cache = jax.jit(lambda c: catch_up(Bound(TARGET, weights()["target"]), c, context, 2))(cache)
    assert cache.length[3] == 9  # inactive rows stay
    assert np.all(np.asarray(cache.length - committed)[:3] >= -2)

    class Held:
        caches = {"target": cache}

    Held.context = context
    assert wrong_slots(Held, "target") == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["break_even", "confidence", "cascade", "selected", "switched"],
)
def test_rows_do_not_depend_on_who_shares_the_batch(name):
    """Of what the contract's test of every registered drafter does not have: one program, twice."""
    model = PrefixModel(V, eos=(EOS,))
    models = tuple((name, model) for name, _ in THREE)
    params = {
        "target": prefix_params(V, 1),
        "drafter": prefix_params(V, 2),
        "little": prefix_params(V, 3),
        "ngram": weights()["ngram"],
    }
    rng = np.random.default_rng(5)
    prompts = [rng.integers(2, V, 1 + row % 6).tolist() for row in range(8)]
    others = [[*prompt[::-1], 3][-len(prompt) :] for prompt in prompts]
    first, second = (
        texts(run(models, params, STRATEGIES[name], [*prompts[:4], *behind], LIMIT))
        for behind in (prompts[4:], others[4:])
    )
    assert first[:4] == second[:4] and first != second
