"""Blocks whose distributions are corrected left to right: what is handed over is what was drawn."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import propose_jitted, run, texts
from feature_drafters import CORRECTIONS, IDS, MARKOV, PROMPTS, fresh_blocks, make_setting, states

import specjax
from specjax.decoding.strategy import Strategy
from specjax.drafting.dflash import DFlash, DSpark
from specjax.models.dflash import DFlash as Model
from specjax.models.vocabularies import SharedVocabulary
from specjax.training.calibration import scale

LENGTH = 3
SETTINGS = {
    **{kind: {"correction": correction} for kind, correction in CORRECTIONS.items()},
    "anchor first": {"correction": CORRECTIONS["markov"], "anchor_first": True, "block_size": 3},
    "causal": {"correction": CORRECTIONS["rnn"], "is_causal": True},
    "calibrated": {"correction": dataclasses.replace(MARKOV, temperatures=(3.0, 0.5))},
}
TARGETS = pytest.mark.parametrize("target", ["t5", "llama"])
SAMPLED = {"temperature": 0.7, "top_p": 0.95}


def of_target(logits: jax.Array, vocabulary: int) -> np.ndarray:
    """Logits [..., U] of the ids that can be drafted as those [..., V] of all."""
    whole = np.full((*logits.shape[:-1], vocabulary), -1e9, np.float32)
    whole[..., list(IDS)] = np.asarray(logits)
    return whole


@functools.cache
def rounds(target: str, name: str, drafter: DSpark | DFlash, greedy: bool) -> list:
    """Of every round: the context, the draft and what training says after the drafted tokens."""
    changes = SETTINGS[name]
    strategy = Strategy(drafter, temperature=0.0) if greedy else Strategy(drafter, **SAMPLED)
    made, params, seen = states(target, strategy, Model, **changes)
    models, _ = make_setting(target, Model, **changes)
    size = models[1][1].config.block_size
    found = []
    for state in seen[:-1]:
        draft, *_ = propose_jitted(made, params, state)
        context = state.context
        at = context.length[:, None] + jnp.arange(LENGTH)
        rows = jnp.arange(len(at))[:, None]
        tokens = context.tokens.at[rows, at].set(draft.tokens[:, :LENGTH], mode="drop")
        context = context.replace(tokens=tokens)
        said, _ = fresh_blocks(models, params, context, context.length[:, None] - 1, size)
        found.append((context, draft, said))
    return found


def errors(target: str, name: str, drafter: DSpark) -> tuple[float, float]:
    """How far draws' distributions are from those of training, and from uncorrected ones."""
    worst, apart = 0.0, 0.0
    for context, draft, said in rounds(target, name, drafter, greedy=False):
        vocabulary = draft.distribution.probs.shape[-1]
        inside = (np.arange(LENGTH) < np.asarray(draft.length)[:, None]) & np.asarray(
            context.active
        )[:, None]
        got = np.asarray(draft.distribution.probs)[inside]
        candidates = SETTINGS[name]["correction"].candidates
        assert not candidates or ((got > 0).sum(-1) <= candidates).all()
        for logits, base in ((said.logits, False), (said.base, True)):
            want = adjust_logits(of_target(logits[:, 0], vocabulary))[inside]
            far = np.abs(got - want).sum(-1).max() if len(got) else 0.0
            worst, apart = (worst, max(apart, far)) if base else (max(worst, far), apart)
    return worst, apart


def adjust_logits(logits: np.ndarray) -> np.ndarray:
    """The distribution that is drawn from under `SAMPLED`."""
    scaled = logits / SAMPLED["temperature"]
    probs = np.exp(scaled - scaled.max(-1, keepdims=True))
    probs /= probs.sum(-1, keepdims=True)
    order = np.argsort(-probs, axis=-1, kind="stable")
    ranked = np.take_along_axis(probs, order, -1)
    kept = np.cumsum(ranked, -1) - ranked < SAMPLED["top_p"]
    mask = np.zeros_like(kept)
    np.put_along_axis(mask, order, kept, -1)
    probs = np.where(mask, probs, 0.0)
    return probs / probs.sum(-1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["t5", "llama"])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_distribution_of_a_token_is_the_one_after_the_tokens_drafted_before(target, name):
    worst, apart = errors(target, name, DSpark(LENGTH))
    assert worst < 5e-4  # rounding of sharp distributions; another token changes tenths
    assert apart > 0.1  # the uncorrected distribution is another: the test can fail


@dataclasses.dataclass(frozen=True)
class ReadsTheAnchor(DSpark):
    """Wrong on purpose: every place is corrected by the pending token."""

    def feed(self, env, state, nodes):
        first = nodes.drafted[:, :1]
        return super().feed(env, state, dataclasses.replace(nodes, tokens=first))


@pytest.mark.slow
def test_the_check_sees_a_correction_by_another_token():
    assert errors("llama", "markov", ReadsTheAnchor(LENGTH))[0] > 0.1


@pytest.mark.slow
@TARGETS
@pytest.mark.parametrize("name", SETTINGS)
def test_a_greedy_token_is_the_most_probable_one_of_the_corrected_distribution(target, name):
    checked = 0
    for context, draft, said in rounds(target, name, DSpark(LENGTH), greedy=True):
        for row in np.flatnonzero(context.active):
            for step in range(int(draft.length[row])):
                at = np.asarray(said.logits)[row, 0, step]
                two = np.sort(at)[-2:]
                if two[1] - two[0] > 1e-3:  # no tie that rounding decides
                    assert IDS[at.argmax()] == draft.tokens[row, step]
                    checked += 1
    assert checked > 8


@pytest.mark.slow
@pytest.mark.parametrize("name", ["markov", "anchor first", "calibrated"])
def test_a_draft_ends_before_the_first_token_of_low_confidence(name):
    """The head reads the token before: whether a token is drafted does not depend on itself.

    Its logit is divided by the temperature of the place, the last one for places beyond.
    """
    threshold, cut = 0.5, 0
    fields = {"length": LENGTH, "confidence": threshold, "temperature": 1.0}
    strategy = specjax.strategy(drafter="dspark", **fields)
    made, params, seen = states("llama", strategy, Model, **SETTINGS[name])
    models, _ = make_setting("llama", Model, **SETTINGS[name])
    for state in seen[:-1]:
        draft, *_ = propose_jitted(made, params, state)
        context, length = state.context, np.asarray(draft.length)
        at = context.length[:, None] + jnp.arange(LENGTH)
        tokens = context.tokens.at[jnp.arange(len(at))[:, None], at].set(draft.tokens, mode="drop")
        anchors = context.length[:, None] - 1
        size = models[1][1].config.block_size
        said, _ = fresh_blocks(models, params, context.replace(tokens=tokens), anchors, size)
        confidence = np.asarray(said.confidence)[:, 0]
        if name == "calibrated":
            confidence = scale(confidence, np.array([3.0, 0.5, 0.5]))
        for row in np.flatnonzero(np.asarray(context.active)):
            n = length[row]
            assert (confidence[row, :n] >= threshold - 1e-5).all()
            ended = n and int(draft.tokens[row, n - 1]) == 1
            if n < min(LENGTH, int(context.room[row]) - 1) and not ended:
                assert confidence[row, n] < threshold + 1e-5
                cut += 1
    assert cut > 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["markov", "rnn", "gru"])
def test_the_children_of_a_node_are_drawn_from_the_distribution_after_its_path(name):
    drafter = DSpark(widths=(2, 2, 1))
    paths = ((), (0,), (1,), (0, 2), (0, 3), (1, 4), (1, 5))  # of each distribution
    children = 0, 2, 4, 6, 7, 8, 9  # the first that is drawn from it
    strategy = Strategy(drafter, temperature=1.0)
    made, params, seen = states("llama", strategy, Model, **SETTINGS[name])
    models, _ = make_setting("llama", Model, **SETTINGS[name])
    size, checked = drafter.depth + 1, 0  # a block sees itself whole: its size matters
    for state in seen[:-1]:
        draft, *_ = propose_jitted(made, params, state)
        context, probs = state.context, np.asarray(draft.distribution.probs)
        for number, path in enumerate(paths):
            tokens = context.tokens
            for step, node in enumerate(path):
                at = context.length + step
                rows = jnp.arange(len(at))
                tokens = tokens.at[rows, at].set(draft.tokens[:, node], mode="drop")
            anchors = context.length[:, None] - 1
            said, _ = fresh_blocks(models, params, context.replace(tokens=tokens), anchors, size)
            logits = of_target(said.logits[:, 0, len(path)], probs.shape[-1])
            want = np.asarray(jax.nn.softmax(logits))
            for row in np.flatnonzero(np.asarray(context.active)):
                if int(draft.length[row]) > children[number]:
                    np.testing.assert_allclose(probs[row, number], want[row], atol=2e-5)
                    checked += 1
    assert checked > 20


@pytest.mark.slow
def test_a_causal_block_does_not_see_later_places():
    """Changed masks of later places change no distribution before them; else they do."""
    for causal in (True, False):
        models, params = make_setting("llama", Model, is_causal=causal)
        drafter, own = models[1][1], params["drafter"]
        cache, _ = drafter.start(own, jnp.zeros((1, 4), jnp.int32), jnp.array([4]), 16)
        block = jnp.array([[3, 0, 0, 0]])
        changed = own | {"mask": own["mask"].at[2].add(1.0)}
        logits, *_ = drafter.draft_block(own, cache, block)
        others, *_ = drafter.draft_block(changed, cache, block)
        same = np.array_equal(logits[:, :2], others[:, :2])
        assert same == causal
        assert not np.array_equal(logits[:, 2], others[:, 2])


@pytest.mark.slow
def test_ids_that_not_all_models_have_are_cut_off():
    """Of models padded differently the ids that all have are decoded: no others are drafted."""
    changes = SETTINGS["markov"]
    models, params = make_setting("llama", Model, **changes)
    shared = tuple((name, SharedVocabulary(model, 11)) for name, model in models)
    for fields in ({"length": LENGTH}, {"widths": (2, 2)}):
        strategy = specjax.strategy(drafter="dspark", temperature=1.0, **fields)
        written = texts(run(shared, params, strategy, PROMPTS, 14))
        assert max(map(max, written)) < 11
        baseline = specjax.autoregressive(temperature=0.0)
        greedy = specjax.strategy(drafter="dspark", temperature=0.0, **fields)
        one, other = (texts(run(shared, params, s, PROMPTS, 14)) for s in (baseline, greedy))
        assert one == other
