"""Beam search: its step against a reference of lists, and speculation that changes nothing."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import repeated_bigram  # noqa: F401 - a newcomer's proposer registers itself
from beam_reference import Bigram, close, run_search
from processors import process

from specjax.decoding.beams.drafters import texts
from specjax.decoding.beams.drafting import draft
from specjax.decoding.beams.loop import advance_jitted, begin_jitted, search
from specjax.decoding.beams.outcome import collect_found, final_tokens
from specjax.decoding.beams.strategy import BeamStrategy
from specjax.decoding.beams.trie import live_nodes
from specjax.logits.settings import apply_settings
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config
from specjax.training import ngram

VOCABULARY, MOST = 13, 9
PENALTIES = (-0.7, 0.0, 0.6, 1.0, 2.0)
STOPPING = (False, True, "never")


def tables(seed: int, end: float = 1.0, scale: float = 1.5) -> dict[str, jax.Array]:
    """Parameters of a bigram whose token 1 is as likely as `end` makes it."""
    draw = np.random.default_rng(seed).normal
    by_token = draw(size=(VOCABULARY, VOCABULARY)) * scale
    by_token[:, 1] += end
    by_place = draw(size=(MOST + 5, VOCABULARY)) * scale / 3
    made = {"by_token": by_token, "by_place": by_place}
    return {name: jnp.asarray(x, jnp.float32) for name, x in made.items()}


def mix(one, other, share: float):
    """Parameters between two."""
    return jax.tree.map(lambda x, y: (1 - share) * x + share * y, one, other)


def searches(models, params, prompts, strategy: BeamStrategy, most: int = MOST, settings=None):
    """Found hypotheses by row, and the search itself."""
    decoder = strategy.decoder(tuple(models.items()), most)
    width = 1 if max(map(len, prompts)) == 1 else 8  # few programs
    tokens = np.array([[*p, *[0] * (width - len(p))] for p in prompts], np.int32)
    length = np.array([len(p) for p in prompts], np.int32)
    active = jnp.ones(len(prompts), bool)
    params = {name: params[name] for name in decoder.inputs}
    scoring = strategy.scoring(most)
    options = apply_settings(scoring.options, settings or {}, decoder.target_model, beams=True)
    made = search(decoder, params, tokens, length, active, scoring.replace(options=options))
    return collect_found(made, len(prompts), strategy.beams), jax.device_get(made)


def same(one, other) -> None:
    """Texts and scores of two searches, row by row."""
    for row, expected in zip(one, other, strict=True):
        assert row.tokens == expected.tokens
        # Logarithms of probabilities near one have the rounding of logits, which are O(1).
        np.testing.assert_allclose(row.scores, expected.scores, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    "beams, eos", [(1, (1,)), pytest.param(3, (1,), marks=pytest.mark.slow), (4, (1, 2)), (4, ())]
)
def test_beams_are_those_of_the_reference(beams, eos):
    """All penalties and stopping words, with texts that end early, late and not at all."""
    model = Bigram(VOCABULARY, eos)
    prompts = [[token] for token in range(VOCABULARY)]
    steps = set()
    cases = itertools.product(PENALTIES, STOPPING)
    for seed, (penalty, stopping) in enumerate(cases):
        table = tables(seed, end=float(seed % 4) - 1.0)
        strategy = BeamStrategy(beams=beams, length_penalty=penalty, early_stopping=str(stopping))
        rows, made = searches({"target": model}, {"target": table}, prompts, strategy)
        for row, taken, (prompt,) in zip(rows, made.step.tolist(), prompts, strict=True):
            expected, length = run_search(
                model.law(table, prompt), beams=beams, eos=eos, most=MOST,
                length_penalty=penalty, early_stopping=stopping,
            )  # fmt: skip
            assert [tuple(text) for text in row.tokens] == [text for _, text in expected]
            assert all(map(close, row.scores, [score for score, _ in expected]))
            assert taken == length
            steps.add(taken)
    assert MOST in steps and (not eos or len(steps) > 3)


UNDER = {
    "repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "bad_words_ids": ((5,), (3, 4)),
    "min_new_tokens": 4, "forced_eos_token_id": (1,), "suppress_tokens": (9,),
    "begin_suppress_tokens": (2,), "encoder_no_repeat_ngram_size": 1,
    "sequence_bias": (((6,), 0.5), ((3, 7), 1.0), ((7, 8), -0.7)),
    "encoder_repetition_penalty": 1.3, "exponential_decay_length_penalty": (3, 0.8),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("length", "normalized"), [(0, False), (2, True), (0, True), (2, False)])
def test_settings_adjust_the_log_probabilities_of_hypotheses(length, normalized):
    model = Bigram(VOCABULARY)
    prompts = [[token] for token in range(VOCABULARY)]
    drafted = {"drafter": "neural", "length": length} if length else {}
    table = tables(3, end=1.0)
    both = {"target": table, "drafter": mix(table, tables(53), 0.1)}
    models = {"target": model, "drafter": model}
    under = {**UNDER, "renormalize_logits": normalized}
    rows, made = searches(models, both, prompts, BeamStrategy(**drafted), settings=under)
    plain, _ = searches(models, both, prompts, BeamStrategy())
    for row, taken, (prompt,) in zip(rows, made.step.tolist(), prompts, strict=True):
        own = model.law(table, prompt)

        def law(text, own=own, prompt=prompt):
            given = {"prompt": (prompt,), "begin": 1, "limit": 1 + MOST, "eos": model.info.eos}
            return process(own(text), (prompt, *text), under, **given)

        expected, steps = run_search(law, beams=4, eos=model.info.eos, most=MOST)
        assert [tuple(text) for text in row.tokens] == [text for _, text in expected]
        assert all(map(close, row.scores, [score for score, _ in expected]))
        assert taken == steps
    assert [row.tokens for row in rows] != [row.tokens for row in plain]
    assert not length or made.rounds.sum() < 0.7 * made.step.sum()


def test_one_beam_that_stops_first_is_greedy():
    model, params = Bigram(VOCABULARY), tables(0)
    prompts = [[token] for token in range(VOCABULARY)]
    strategy = BeamStrategy(beams=1, early_stopping="True")
    rows, _ = searches({"target": model}, {"target": params}, prompts, strategy)
    for row, (prompt,) in zip(rows, prompts, strict=True):
        distribution, text = model.law(params, prompt), ()
        while len(text) < MOST and text[-1:] != (1,):
            text += (int(distribution(text).argmax()),)
        assert row.tokens == [list(text)]


@pytest.mark.parametrize(
    "length, width", [pytest.param(1, 0, marks=pytest.mark.slow), (2, 5), (3, 4)]
)
def test_a_drafter_changes_no_step(length, width):
    """The target itself as drafter: all steps of all drafts stand; another one: some do."""
    model = Bigram(VOCABULARY)
    prompts = [[token] for token in range(VOCABULARY)]
    models = {"target": model, "drafter": model}
    taken = []
    for seed, stopping in enumerate(STOPPING * 2):
        settings = {"beams": 4, "early_stopping": str(stopping), "length_penalty": 0.6}
        target, other = tables(seed, end=-1.0), tables(seed + 50)
        params = {"target": target}
        plain, baseline = searches(models, params, prompts, BeamStrategy(**settings))
        drafted = BeamStrategy(drafter="neural", length=length, width=width, **settings)
        for drafter in (target, mix(target, other, 0.1), other):
            rows, made = searches(models, params | {"drafter": drafter}, prompts, drafted)
            same(rows, plain)
            np.testing.assert_array_equal(made.step, baseline.step)
            taken.append(made.rounds.sum() / made.step.sum())
            if drafter is target and width in (0, 4):
                np.testing.assert_array_equal(made.rounds, -(-made.step // (length + 1)))
                # After each round but the last the drafter reads what it had drafted last.
                np.testing.assert_array_equal(made.drafts, (length + 1) * made.rounds - 1)
    itself, near, other = (np.mean(taken[kind::3]) for kind in range(3))
    assert itself < near < other <= 1.0


def exact_counts(table: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """The counts of neighbors that give the law of a bigram without places."""
    distribution = np.asarray(jax.nn.softmax(table["by_token"]), np.float64)
    ids = np.argsort(-distribution, axis=1)
    made = {
        "unigram": np.log(distribution.mean(axis=0)),
        "counts": np.take_along_axis(distribution, ids, axis=1) * 1e6,
        "smoothing": np.float64(1e-9),
    }
    made = {name: jnp.asarray(x, jnp.float32) for name, x in made.items()}
    return made | {"ids": jnp.asarray(ids, jnp.int32), "best": jnp.asarray(ids[:, 0], jnp.int32)}


@pytest.mark.parametrize("drafter", ["bigram", "repeated_bigram"])
def test_counts_that_know_the_target_have_all_their_steps_stand(drafter):
    """Of four tokens: of more, two texts may have the same pairs, and so the same score."""
    model, table = Bigram(VOCABULARY), tables(0, end=-1.0)
    table["by_place"] = jnp.zeros_like(table["by_place"])
    params = {"target": table, "ngram": exact_counts(table)}
    prompts = [[token] for token in range(VOCABULARY)]
    strategy = BeamStrategy(drafter=drafter, length=2)
    _, made = searches({"target": model}, params, prompts, strategy, most=4)
    assert (made.step == 4).all() and (made.rounds == 2).all()
    assert not made.drafts.any()  # no model drafts


def test_more_candidates_than_the_vocabulary_has_are_refused():
    models = (("target", Bigram(VOCABULARY)), ("drafter", Bigram(6)))
    with pytest.raises(ValueError, match="beams is 7; 14 candidates are needed"):
        BeamStrategy(beams=7).decoder(models, MOST)
    with pytest.raises(ValueError, match="width is 6; model 'drafter' has too few tokens"):
        BeamStrategy(drafter="neural", width=6).decoder(models, MOST)


def t5(width: int, seed: int):
    shape = T5Config(
        vocab_size=40, d_model=width, d_kv=6, d_ff=2 * width, num_heads=2, num_layers=1,
        num_decoder_layers=1, tied=True, scale_outputs=True,
    )  # fmt: skip
    model = T5(shape)
    return model, jax.tree.map(lambda x: x * 2.0, model.init(jax.random.key(seed)))


def llama(width: int, seed: int):
    shape = CausalConfig(
        family="mistral", vocab_size=40, d_model=width, d_ff=2 * width, num_layers=2, num_heads=2,
        num_kv_heads=1, d_head=6, max_positions=64, rope=Rope(width=6), windows=(0, 7), eos=(1,),
        tied=True,
    )  # fmt: skip
    model = Causal(shape)
    return model, jax.tree.map(lambda x: x * 4.0, model.init(jax.random.key(seed)))


FAMILIES = {"t5": t5, "llama": llama}
TEXTS = [[5, 9, 12, 1], [7, 3, 1], [30, 31, 32, 33, 8, 2, 11], [22, 4, 1], [17, 39]]


@pytest.fixture(scope="module", params=["t5", pytest.param("llama", marks=pytest.mark.slow)])
def family(request):
    """A target and three drafters: the target itself, nearly the same, and a smaller one."""
    made = FAMILIES[request.param]
    target, params = made(24, 0)
    draws = np.random.default_rng(3)
    near = jax.tree.map(lambda x: x * (1 + 0.02 * draws.normal(size=x.shape)), params)
    near = jax.tree.map(lambda x: x.astype(jnp.float32), near)
    small, weak = made(12, 1)
    models = {"target": target, "drafter": target, "small": small}
    return models, {"target": params, "drafter": params, "near": near, "small": weak}


SETTINGS = {"beams": 4, "length_penalty": 0.8}


@pytest.fixture(scope="module")
def plain(family):
    return searches(*family, TEXTS, BeamStrategy(**SETTINGS))


def prefix_distribution(model, params, prompt: list[int]):
    """Log-probabilities behind a prefix by teacher forcing, without any cache."""
    head = [0] if model.info.start_token is not None else prompt
    known: dict[tuple[int, ...], np.ndarray] = {}

    def law(before: tuple[int, ...]) -> np.ndarray:
        if before not in known:
            inputs, source = np.zeros((1, 16), np.int32), np.zeros((1, 8), np.int32)
            inputs[0, : len(head) + len(before)] = [*head, *before]
            source[0, : len(prompt)] = prompt
            length, read = np.array([len(head) + len(before)]), np.array([len(prompt)])
            batch = {"inputs": inputs, "length": length, "prompt": source, "prompt_length": read}
            known[before] = np.asarray(taught(model, params, batch))[0, length[0] - 1]
        return known[before]

    return law


@functools.partial(jax.jit, static_argnums=0)
def taught(model, params, batch) -> jax.Array:
    """Log-probabilities [1, T, V] of whole rows."""
    return jax.nn.log_softmax(model.teach(params, batch)[0])


@pytest.mark.slow
def test_hypotheses_see_their_own_tokens_only(family, plain):
    """Against teacher forcing, which knows no trie: real attention, positions and windows."""
    models, params = family
    for row, prompt in list(zip(plain[0], TEXTS, strict=True))[1:3]:
        distribution = prefix_distribution(models["target"], params["target"], prompt)
        expected, _ = run_search(distribution, eos=(1,), most=MOST, **SETTINGS)
        assert [tuple(text) for text in row.tokens] == [text for _, text in expected]
        np.testing.assert_allclose(row.scores, [score for score, _ in expected], rtol=1e-4)


DRAFTED = BeamStrategy(drafter="neural", length=2, width=4, **SETTINGS)


@pytest.fixture(scope="module")
def near(family):
    """Searches with the drafter that is nearly the target."""
    models, params = family
    return searches(models, params | {"drafter": params["near"]}, TEXTS, DRAFTED)


@pytest.mark.slow
def test_the_target_as_drafter_has_all_its_steps_stand(family, plain):
    rows, made = searches(*family, TEXTS, DRAFTED)
    same(rows, plain[0])
    np.testing.assert_array_equal(made.rounds, -(-made.step // 3))


@pytest.mark.slow
def test_a_drafter_near_the_target_has_some_of_its_steps_stand(near, plain):
    rows, made = near
    same(rows, plain[0])
    assert (made.rounds <= made.step).all()
    assert (-(-made.step // 3)).sum() < made.rounds.sum() < made.step.sum()


@pytest.mark.slow
def test_a_small_drafter_of_a_wider_beam_changes_nothing(family, plain):
    strategy = BeamStrategy(drafter="neural", model="small", length=1, width=6, **SETTINGS)
    same(searches(*family, TEXTS, strategy)[0], plain[0])


COUNTED = ngram.fit([[0, *text] for text in TEXTS for _ in range(3)], 40)
COPIES = BeamStrategy(drafter="max_gram", length=2, width=6, **SETTINGS)


@pytest.mark.parametrize(
    "strategy",
    [
        COPIES,
        pytest.param(
            BeamStrategy(drafter="bigram", length=1, width=5, **SETTINGS), marks=pytest.mark.slow
        ),
        pytest.param(
            BeamStrategy(drafter="prompt_lookup", length=2, longest=3, **SETTINGS),
            marks=pytest.mark.slow,
        ),
    ],
    ids=lambda strategy: strategy.drafter,
)
def test_drafters_without_a_model_change_nothing(family, plain, strategy):
    models, params = family
    rows, made = searches(models, params | {"ngram": COUNTED}, TEXTS, strategy)
    same(rows, plain[0])
    np.testing.assert_array_equal(made.step, plain[1].step)


def test_copies_are_looked_for_in_the_texts_of_hypotheses():
    """Tables and masks of hypotheses say the same; what follows a match is drafted first."""
    model, table = Bigram(VOCABULARY, ()), tables(3)
    prompts = np.array([[5, 6, 7, 5, 6, 0], [4, 0, 0, 0, 0, 0]], np.int32)
    length, active = np.array([5, 1], np.int32), jnp.ones(2, bool)
    decoder = BeamStrategy(drafter="prompt_lookup", length=2).decoder((("target", model),), MOST)
    scoring = BeamStrategy().scoring(MOST)
    state = begin_jitted(decoder, {"target": table}, prompts, length, active)
    env, options = decoder.env({"target": table}), scoring.options
    drafted = jax.jit(lambda state: draft(decoder, env, options, state)[0])
    nodes = drafted(state)
    assert nodes.token[0, 4] == 7 and nodes.token[0, 8] == 5  # the best of both drafted steps
    state = advance_jitted(decoder, {"target": table}, state, scoring, 3)
    read = jax.jit(lambda state: texts(decoder, state, live_nodes(decoder, state.search)))
    made = jax.device_get(read(state))
    tokens, ranks = jax.device_get((state.search.tokens, state.search.ranks))
    for row, (prompt, size) in enumerate(zip(prompts, length, strict=True)):
        step = int(state.search.step[row])
        assert step >= 3 and made.length[row] == size + step
        for which in range(4):
            rank, text = which, []
            for at in range(step, 0, -1):
                text.insert(0, tokens[row, at, rank])
                rank = ranks[row, at, rank]
            found = made.tokens[row, which, : size + step].tolist()
            assert found == [*prompt[:size], *text]


def test_rows_are_what_they_are_alone(family, near, plain):
    """Speculative rows advance at their own pace in a batch."""
    models, params = family
    params = params | {"drafter": params["near"]}
    assert len(set(near[1].rounds.tolist())) > 1
    for index in (1, 2):
        rows, baseline = searches(models, params, [TEXTS[index], *[TEXTS[0]] * 4], DRAFTED)
        same(rows[:1], plain[0][index : index + 1])
        assert baseline.rounds[0] == near[1].rounds[index]


def test_what_is_final_is_never_taken_back():
    """After every round the best text begins with it; at the end it is that text."""
    model, early = Bigram(VOCABULARY), 0
    for seed, stopping in enumerate(STOPPING):
        strategy = BeamStrategy(early_stopping=str(stopping), beams=3, length_penalty=0.6)
        decoder, scoring = strategy.decoder((("target", model),), MOST), strategy.scoring(MOST)
        for token in range(4):
            params = {"target": tables(seed + 7 * token, end=-1.0, scale=3.0)}
            prompt = np.array([[token]], np.int32), np.array([1], np.int32), jnp.ones(1, bool)
            best = collect_found(search(decoder, params, *prompt, scoring), 1, 1)[0].tokens[0]
            state, given = begin_jitted(decoder, params, *prompt), []
            while state.search.active.any():
                state = advance_jitted(decoder, params, state, scoring, 1)
                now = final_tokens(state.search)
                assert now[: len(given)] == given and best[: len(now)] == now
                early += bool(now) and bool(state.search.active.any())
                given = now
            assert given == best
    assert early > 10
