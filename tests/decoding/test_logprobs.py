"""Log-probabilities of written tokens, against one call of the target over the whole text."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from feature_drafters import LLAMA_SHAPE, PROMPTS, T5_SHAPE, make_setting
from golden_models import GOLDEN
from tiny import corpus

import specjax
from specjax.decoding.loop import begin
from specjax.loading import LoadedModel
from specjax.models.causal import Causal
from specjax.models.t5 import T5
from specjax.sampling import adjust
from specjax.selection.choosing import ByChance
from specjax.selection.strategies import make_selected

LIMIT = 14
NUCLEUS = {"temperature": 1.0, "top_p": 0.8}
CHAIN = {"drafter": "neural", "length": 3}
TREE = {"drafter": "neural", "widths": (2, 2)}
COPIES = {"drafter": "prompt_lookup", "length": 3}
EAGLE = {"drafter": "eagle", "model": "feature"}


@functools.cache
def make_models(kind: str) -> dict[str, LoadedModel]:
    """A target, a smaller model and a feature drafter, all random."""
    ((_, model), (_, layer)), params = make_setting(kind)
    if kind == "t5":
        small = T5(dataclasses.replace(T5_SHAPE, num_decoder_layers=1))
    else:
        small = Causal(dataclasses.replace(LLAMA_SHAPE, num_layers=1))
    # The target's own seed: some drafts are accepted, some are not.
    own = jax.tree.map(lambda x: 1.3 * x, jax.jit(small.init)(jax.random.key(3)))
    return {
        "target": LoadedModel(model, params["target"]),
        "drafter": LoadedModel(small, own),
        "feature": LoadedModel(layer, params["drafter"]),
    }


def make(kind: str, fields: dict[str, Any], logprobs: bool | str = True, **more: Any):
    drafters = dict(make_models(kind))
    target, strategy = drafters.pop("target"), specjax.strategy(**fields)
    settings = {"max_new_tokens": LIMIT, "logprobs": logprobs} | more
    return specjax.Generator(target, drafters, strategy, **settings)


def teacher_forced(generator: specjax.Generator, prompts: Any) -> list[list[Any]]:
    """Logits [V] before each written token of every row, from one call over its text."""
    batch = generator.batch(generator.encode(prompts), len(prompts))
    generation = generator.run(batch, generator.keys(batch, 0))
    model, params = generator.decoder.target_model, generator.params["target"]
    size = generation.tokens.shape[1]
    cache, _ = model.start(params, batch.tokens, batch.length, 2 * size)
    slots = cache.length[:, None] + jnp.arange(size)
    fed = jnp.take_along_axis(generation.tokens, slots, axis=1, mode="clip")
    logits = np.asarray(model.extend(params, fed, cache)[0].logits)
    first = np.asarray(generation.begin - cache.length) - 1
    lengths = [len(row) for row in generator.rows(generation)]
    return [list(logits[i, n : n + m]) for i, (n, m) in enumerate(zip(first, lengths, strict=True))]


def softmax_logprobs(logits: Any) -> np.ndarray:
    return np.asarray(jax.nn.log_softmax(jnp.asarray(logits), axis=-1))


def compare(generator: specjax.Generator, prompts: Any, logprobs: Any = softmax_logprobs) -> Any:
    """Asserts that all log-probabilities are those of teacher forcing; returns the result."""
    result = generator(prompts)
    expected = teacher_forced(generator, prompts)
    for tokens, own, logits in zip(result.tokens, result.logprobs, expected, strict=True):
        assert len(tokens) == len(own) == len(logits) > 0
        at = np.take_along_axis(logprobs(np.stack(logits)), np.array(tokens)[:, None], 1)[:, 0]
        np.testing.assert_allclose(own, at, rtol=1e-5, atol=1e-5)
    return result


CASES = {
    "t5 chain": ("t5", CHAIN),
}
SLOW = {
    "llama eagle": ("llama", EAGLE | {"length": 3}),
    "t5 alone": ("t5", {}),
    "t5 block verification": ("t5", CHAIN | NUCLEUS),
    "t5 tree sampled": ("t5", TREE | NUCLEUS),
    "t5 eagle tree": ("t5", EAGLE | {"widths": (2, 2)} | NUCLEUS),
    "llama chain sampled": ("llama", CHAIN | NUCLEUS | {"rule": "lossless"}),
    "llama traversal": ("llama", TREE | NUCLEUS | {"rule": "traversal"}),
    "llama tree": ("llama", TREE),
    "llama copies": ("llama", COPIES),
    "llama suffix branches": ("llama", {"drafter": "suffix", "length": 3, "branches": 2}),
    "t5 fitted": ("t5", COPIES | {"reader": "fitted"}),
    "t5 copies": ("t5", COPIES | NUCLEUS),
    "llama early exit": ("llama", {"drafter": "early_exit", "length": 2, "exit": 1}),
    "llama lenient": ("llama", CHAIN | {"rule": "lenient", "lenience": 0.1}),
    "llama typical": ("llama", CHAIN | {"rule": "typical", "temperature": 1.0}),
    "t5 bild": ("t5", {"drafter": "bild", "fallback": 0.3, "rollback": 3.0, "verify_eos": True}),
}


@pytest.mark.parametrize(
    ("kind", "fields"),
    [pytest.param(*case, id=name) for name, case in CASES.items()]
    + [pytest.param(*case, id=name, marks=pytest.mark.slow) for name, case in SLOW.items()],
)
def test_raw_logprobs_are_those_of_teacher_forcing(kind, fields):
    result = compare(make(kind, fields), PROMPTS)
    if fields.get("drafter") in ("neural", "prompt_lookup", "eagle"):
        assert result.statistics.accepted


@pytest.mark.slow
def test_results_have_no_logprobs_unless_they_are_requested():
    generator = make("llama", CHAIN, logprobs=False)
    assert generator(PROMPTS).logprobs is None
    batch = generator.batch(generator.encode(PROMPTS), len(PROMPTS))
    arguments = generator.arguments(batch, generator.keys(batch, 0))
    state, wanted = (
        jax.eval_shape(functools.partial(begin, decoder), *arguments[1:])
        for decoder in (generator.decoder, make("llama", CHAIN).decoder)
    )
    assert state.trace.logprobs is None
    assert len(jax.tree.leaves(wanted)) == len(jax.tree.leaves(state)) + 1


@pytest.mark.slow
@pytest.mark.parametrize("shape", [CHAIN, TREE], ids=["chain", "tree"])
def test_processed_logprobs_are_of_the_distribution_that_is_sampled(shape):
    fields = shape | {"temperature": 0.7, "top_k": 4, "top_p": 0.9}
    sampling = specjax.strategy(**fields).options().sampling
    result = compare(
        make("llama", fields, "processed"), PROMPTS, lambda x: jnp.log(adjust(x, sampling))
    )
    assert all(value > -np.inf for row in result.logprobs for value in row)


@pytest.mark.slow
def test_raw_logprobs_are_of_logits_before_the_processors_and_processed_ones_of_those_after():
    """The first token is forced: it has the target's probability, or 1."""
    fields, forced = CHAIN | {"temperature": 1.0}, {"generation": {"forced_bos_token_id": 7}}
    raw = compare(make("t5", fields, "raw", **forced), PROMPTS)
    processed = make("t5", fields, "processed", **forced)(PROMPTS)
    assert raw.tokens == processed.tokens and {row[0] for row in raw.tokens} == {7}
    for own, other in zip(raw.logprobs, processed.logprobs, strict=True):
        assert own[0] < -0.01 and other[0] == 0.0
        np.testing.assert_allclose(own[1:], other[1:], atol=1e-5)


@pytest.mark.slow
def test_written_tokens_are_certain_in_greedy_decoding():
    result = make("llama", CHAIN, "processed")(PROMPTS)
    assert {value for row in result.logprobs for value in row} == {0.0}


@pytest.mark.slow
@pytest.mark.parametrize("shape", [CHAIN, TREE], ids=["chain", "tree"])
def test_a_guided_target_has_the_logprobs_of_its_guided_logits(shape):
    compare(make("llama", shape, generation={"guidance_scale": 1.5}), PROMPTS)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 4])
def test_texts_of_several_drafters_have_logprobs(rows):
    arms = {"neural": CHAIN, "copies": {"drafter": "prompt_lookup", "length": 2}}
    arms = {name: specjax.strategy(**fields) for name, fields in arms.items()}
    loaded_models = dict(make_models("llama"))
    target = loaded_models.pop("target")
    strategy = make_selected(arms, ByChance())
    fields = {"max_new_tokens": LIMIT, "logprobs": True}
    compare(specjax.Generator(target, loaded_models, strategy, **fields), PROMPTS[:rows])


@pytest.mark.slow
def test_a_language_that_the_target_detects_is_not_written():
    target = specjax.load(GOLDEN / "whisper")
    audio = list(np.random.default_rng(0).normal(size=(3, 6, 100)).astype(np.float32))
    assert target.model.info.prefix != target.model.info.first_prefix
    strategy = specjax.strategy(drafter="prompt_lookup", length=2)
    made = specjax.Generator(target, {}, strategy, max_new_tokens=8, logprobs=True)
    compare(made, audio)


@pytest.mark.slow
def test_a_stop_string_ends_texts_and_their_logprobs(pair):
    target, drafter = specjax.load(pair / "target"), specjax.load(pair / "drafter")
    drafting = specjax.speculative(length=3)
    settings = {"max_new_tokens": 12, "logprobs": True, "bucket": 64}
    whole = specjax.Generator(target, {"drafter": drafter}, drafting, **settings)
    texts = [each.source for each in corpus()[:3]]
    before = whole(texts)
    word = next(word for text in before.texts for word in text.split()[1:2])
    settings["generation"] = {"stop_strings": [word]}
    stopped = specjax.Generator(target, {"drafter": drafter}, drafting, **settings)
    after = compare(stopped, texts)
    assert after.statistics.tokens < before.statistics.tokens
    for row, other in zip(after.logprobs, before.logprobs, strict=True):
        np.testing.assert_allclose(row, other[: len(row)], atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 32])
def test_several_batches_have_the_logprobs_of_one(size):
    """Of 32 slots two are refilled at a time, of 33 rows at least once only one."""
    generator = make("llama", CHAIN)
    prompts = (PROMPTS * 33)[: max(len(PROMPTS), size + 1)]
    apart, together = generator(prompts, batch_size=size), generator(prompts)
    assert apart.tokens == together.tokens
    for row, other in zip(apart.logprobs, together.logprobs, strict=True):
        np.testing.assert_allclose(row, other, atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "logprobs", "said"),
    [
        ({"reader": "calm", "threshold": 0.5}, True, "logprobs is 'raw'; it must be False under C"),
        (
            {"drafter": "bild", "fallback": 0.3, "rollback": 3.0},
            "processed",
            "logprobs is 'processed'; it must be False with drafter 'bild', which ends texts",
        ),
        (CHAIN, "Raw", "logprobs is 'Raw'; it must be one of False, True, 'raw', 'processed'"),
        (CHAIN, 1, "logprobs is 1; it must be one of False, True, 'raw', 'processed'"),
    ],
)
def test_logprobs_that_no_target_reads_are_refused(fields, logprobs, said):
    with pytest.raises(specjax.UserError, match=said):
        make("llama", fields, logprobs)
