"""P-EAGLE: every round's distributions are those after a fresh prefill, masks are not kept."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, propose_jitted, run, texts
from feature_drafters import (
    IDS,
    LIMIT,
    ONE_FAST,
    PROMPTS,
    TARGETS,
    V,
    make_setting,
    read_whole,
    states,
)

import specjax
from specjax.decoding.strategy import Strategy
from specjax.drafting.eagle import Eagle
from specjax.drafting.p_eagle import PEagle
from specjax.models.eagle import Eagle as OneByOne
from specjax.models.p_eagle import MASK
from specjax.models.p_eagle import PEagle as Model
from specjax.verification.lenient import Lenient

LENGTH = 2
KINDS = pytest.mark.parametrize("kind", list(TARGETS))
ONE = pytest.mark.parametrize("kind", ONE_FAST)


@functools.partial(jax.jit, static_argnames="models")
def fresh(models, params, context):
    """Distributions [B, K, V] of a draft after the whole text, read at once."""
    _, (_, drafter) = models
    own, last = params["drafter"], context.length - 1
    features, cross, cache = read_whole(models, params, context)
    cache = drafter.read(own, cache, context.tokens, features)
    cache = drafter.absorb(own, cache, features, jnp.zeros_like(last)).replace(length=last)
    pending = jnp.take_along_axis(context.tokens, last[:, None], axis=1)
    fed = jnp.pad(pending, ((0, 0), (0, LENGTH - 1)), constant_values=MASK)
    output, _ = drafter.extend(own, fed, cache)
    slots = drafter.compute_rollouts(
        own, context.tokens, features, cross, [last[:, None]] * (LENGTH - 1)
    )
    first = jnp.take_along_axis(slots[0], last[:, None, None], axis=1)
    trained = jax.nn.softmax(jnp.concatenate([first, *slots[1:]], axis=1))
    return jax.nn.softmax(output.logits), trained


@functools.cache
def rounds(kind: str, drafter: PEagle) -> list:
    """Of every row and round: its drafts accepted before, and how far its distributions are off."""
    rule = Lenient("lenience")  # for rounds that accept all
    strategy = Strategy(drafter, rule, temperature=1.0, numbers=(("lenience", 0.3),))
    made, params, seen = states(kind, strategy, Model)
    models, found, before = make_setting(kind, Model)[0], [], None
    for state in seen[:-1]:
        draft, *_ = propose_jitted(made, params, state)
        given = draft.distribution.probs
        whole, trained = fresh(models, params, state.context)
        np.testing.assert_allclose(trained, whole[..., jnp.array(IDS)], atol=1e-5)
        for row in np.flatnonzero(state.context.active):
            new = None if before is None else int(state.context.length[row] - before[row]) - 1
            found.append((new, float(jnp.abs(given[row] - whole[row]).max())))
        before = np.asarray(state.context.length)
    return found


@pytest.mark.slow
@ONE
def test_each_round_drafts_as_after_a_fresh_prefill(kind):
    found = rounds(kind, PEagle(LENGTH))
    assert {0, 1, LENGTH} <= {accepted for accepted, _ in found}  # none, some and all
    assert max(error for _, error in found) < 1e-5


@dataclasses.dataclass(frozen=True)
class KeepsMasks(PEagle):
    """Wrong on purpose: what masks left in the cache is taken for tokens of the text."""

    def close(self, env, caches, state, context, drafted):
        kept = state.replace(length=context.length + self.depth - 1)
        return {**caches, self.model: kept}, {}, {}


@pytest.mark.slow
@ONE
def test_the_check_sees_masks_that_are_kept(kind):
    assert max(error for _, error in rounds(kind, KeepsMasks(LENGTH))) > 1e-2


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("mask_token", [None, 4])
def test_a_slot_sees_no_later_mask(kind, mask_token):
    """A token in place of the mask of slot k + 1 moves that slot, and none before it."""
    models, params = make_setting(kind, Model, mask_token=mask_token)
    (_, target), (_, drafter) = models
    own, ones = params["drafter"], jnp.ones((2, 1), jnp.int32)
    prompt, length = jnp.array([[3, 4, 5, 1], [6, 2, 2, 1]]), jnp.array([4, 4])
    cache, _ = drafter.start(own, prompt, length, 12)
    there, _ = target.start(params["target"], prompt, length, 12)
    cache = drafter.attend(cache.replace(length=jnp.zeros_like(length)), there)
    masks, call = (
        jnp.concatenate([3 * ones, MASK * jnp.tile(ones, 3)], axis=1),
        jax.jit(lambda tokens: drafter.extend(own, tokens, cache)[0].logits),
    )
    whole = call(masks)
    for slot in (1, 2, 3):
        other = call(masks.at[:, slot].set(7))
        np.testing.assert_array_equal(other[:, :slot], whole[:, :slot])
        assert not np.allclose(other[:, slot:], whole[:, slot:], atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{"length": 3}, {"widths": (2, 2)}, {"nodes": 5, "length": 3}])
def test_the_targets_own_text_is_written(fields):
    models, params = make_setting("llama", Model)
    baseline = texts(run(models, params, Strategy(), PROMPTS, LIMIT))
    strategy = specjax.strategy(drafter="p_eagle", **fields)
    assert texts(run(models, params, strategy, PROMPTS, LIMIT)) == baseline


@pytest.mark.parametrize(
    ("drafter", "model", "words"),
    [
        (PEagle(2), OneByOne, "must be a feature drafter of family 'p_eagle"),
        (Eagle(2), Model, "must be a feature drafter of family 'eagle"),
    ],
)
def test_its_model_is_no_other_drafters(drafter, model, words):
    models, params = make_setting("t5", model)
    made = decoder(models, Strategy(drafter), LIMIT)
    with pytest.raises(ValueError, match=words):
        made.drafter.check(made.env(params))


@pytest.mark.slow
def test_only_ids_of_its_vocabulary_are_drafted():
    made, params, seen = states("llama", Strategy(PEagle(LENGTH), temperature=1.0), Model)
    draft, *_ = propose_jitted(made, params, seen[0])
    outside = np.setdiff1d(np.arange(V), IDS)
    assert float(draft.distribution.probs[..., outside].max()) == 0.0
