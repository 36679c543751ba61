"""Speech drafters of another vocabulary: prefixes of their own, timestamps, the target's text."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

import specjax
from specjax.contracts.decoder_prefix import prefill
from specjax.contracts.env import Bound
from specjax.hf import huggingface
from specjax.hf.extractor import load_extractor
from specjax.hf.shared_encoder import with_encoder_of
from specjax.hf.shared_tokens import in_vocabulary_of, shared_tokens
from specjax.hf.speech import limit_draft_ids, own_prefix
from specjax.loading import LoadedModel
from specjax.models.vocabularies import list_draft_tokens, restrict_vocabulary
from specjax.models.whisper import SpeechTokens, Whisper
from specjax.training.surgery import take

GOLDEN = Path(__file__).parents[1] / "golden" / "whisper"
TEXT = 80
END, START = 80, 81
SPECIAL = ("<|end|>", "<|start|>", "<|en|>", "<|de|>", "<|fr|>", "<|translate|>", "<|transcribe|>")
TIMES = 5
ORDER = np.random.default_rng(3).permutation(TEXT)
"""The drafter's id of each of the target's text tokens."""


def tokenizer(order: np.ndarray, special: tuple[str, ...]) -> PreTrainedTokenizerFast:
    words = {f"w{token}": int(own) for token, own in enumerate(order)}
    made = Tokenizer(WordLevel(words, "w0"))
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(name, special=True) for name in special])
    return PreTrainedTokenizerFast(tokenizer_object=made, eos_token=special[0])


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    """The golden model, multilingual: ids 0 to 79 are words, 91 to 95 times."""
    loaded = huggingface.load(GOLDEN)
    names = (*SPECIAL, "<|a|>", "<|b|>", "<|c|>", "<|notimestamps|>")
    extractor = load_extractor(GOLDEN, loaded.model.info.input)
    return LoadedModel(
        loaded.model, loaded.params, tokenizer(np.arange(TEXT), names), extractor=extractor
    )


@pytest.fixture(scope="module")
def drafter(target) -> LoadedModel:
    """One of English only: its words have other ids, 82 says no times, 83 to 87 are times."""
    config = dataclasses.replace(
        target.model.config,
        vocab_size=START + 2 + TIMES,
        forced=(START + 1,),
        speech=SpeechTokens(no_timestamps=START + 1),
        num_decoder_layers=2,
    )
    model = Whisper(config)
    params = jax.tree.map(lambda x: x * 1.5, model.init(jax.random.key(5)))
    words = tokenizer(ORDER, (*SPECIAL[:2], "<|notimestamps|>"))
    extractor = load_extractor(GOLDEN, model.info.input)
    return LoadedModel(model, params, words, extractor=extractor)


def audio(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(6, 100)).astype(np.float32)


@pytest.mark.slow
def test_tokens_of_one_text_or_one_time_are_the_same(target, drafter):
    places = shared_tokens(drafter, target).places
    assert places[:TEXT].tolist() == ORDER.tolist()
    assert places[END] == END and places[START] == START and places[90] == START + 1
    assert places[91:].tolist() == [START + 2 + time for time in range(TIMES)]
    assert (places[82:87] == drafter.model.info.vocab_size).all()  # languages and tasks


@pytest.mark.slow
def test_a_drafter_of_english_only_has_a_prefix_without_a_language(target, drafter):
    assert own_prefix(drafter.model, target.model) == (START, START + 1)
    assert own_prefix(target.model, drafter.model) == (START, 82, 86, 90)
    assert own_prefix(target.model, target.model) == ()
    timed = specjax.in_language(target, "english", timestamps=True)
    # A first call feeds two tokens.
    assert own_prefix(drafter.model, timed.model) == (START, START)
    tokens = dataclasses.replace(drafter.model.config.speech, previous=7)
    named = Whisper(dataclasses.replace(drafter.model.config, speech=tokens))
    assert own_prefix(named, timed.model) == (7, START)


def alone(
    loaded: LoadedModel, prefix: tuple[int, ...], given: np.ndarray, count: int, known: np.ndarray
) -> list[int]:
    """What a model writes greedily after a prefix, of `known` tokens, without any settings."""
    model, params = loaded.model, loaded.params
    allowed = np.isin(np.arange(model.info.vocab_size), known)
    frames = given.T[None]
    cache, _ = model.start(params, frames, jnp.array([frames.shape[1]]), 32)
    tokens = list(prefix)
    output, cache = model.extend(params, jnp.array([tokens]), cache)
    for _ in range(count):
        tokens.append(int(jnp.argmax(jnp.where(allowed, output.logits[0, -1], -jnp.inf))))
        output, cache = model.extend(params, jnp.array([tokens[-1:]]), cache)
    return tokens[len(prefix) :]


def first_draft(target: LoadedModel, drafter: LoadedModel, count: int) -> list[int]:
    """The tokens that the first round drafts, in the target's ids."""
    generator = specjax.Generator(
        target, {"drafter": drafter}, specjax.speculative(length=count), max_new_tokens=count + 1,
        generation={"return_timestamps": None},
    )  # fmt: skip
    batch = generator.batch(generator.encode([audio()]), 1)
    made = generator.run(batch, generator.keys(batch, 0))
    return np.asarray(made.trace.drafts)[0, 0, 0, :count].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("timestamps", [False, True])
def test_its_first_draft_is_what_it_writes_after_its_own_prefix(target, drafter, timestamps):
    target = specjax.in_language(target, "german", timestamps=timestamps)
    ready = in_vocabulary_of(target, drafter)
    places = np.asarray(ready.params["places"])
    own = alone(drafter, ready.model.prefix, audio(), 3, places)
    expected = [int(np.flatnonzero(places == token)[0]) for token in own]
    assert first_draft(target, drafter, 3) == expected


@pytest.mark.slow
def test_a_multilingual_drafter_has_a_longer_prefix_than_an_english_target(target, drafter):
    ready = in_vocabulary_of(drafter, target)
    places = np.asarray(ready.params["places"])
    own = alone(target, (START, 82, 86, 90), audio(), 3, places)
    assert first_draft(drafter, target, 3) == [int(np.flatnonzero(places == t)[0]) for t in own]


@pytest.mark.slow
def test_a_prompt_before_the_prefix_is_read_token_by_token(target, drafter):
    ready = in_vocabulary_of(target, drafter)
    rows = [[5, 6, START, 82, 86, 90], [START, 82, 86, 90, 0, 0]]
    length = jnp.array([6, 4])
    frames = jnp.stack([audio(1).T, audio(2).T])
    bound, frames_length = Bound(ready.model, ready.params), jnp.array([100, 100])
    cache = bound.start(frames, frames_length, 16)[0]
    cache = prefill(bound, cache, jnp.array(rows), length)
    assert cache.length.tolist() == [5, 3]
    fed = jnp.array([[90, 7], [90, 7]])
    logits = np.asarray(bound.extend(fed, cache)[0].logits)
    for row, before in enumerate([[ORDER[5], ORDER[6]], []]):
        own = [*before, START, START + 1, ORDER[7]]
        plain = drafter.model.start(drafter.params, frames[row : row + 1], jnp.array([100]), 16)[0]
        baseline = drafter.model.extend(drafter.params, jnp.array([own]), plain)[0].logits[0, -2:]
        np.testing.assert_allclose(logits[row][:, :TEXT], baseline[:, ORDER], atol=1e-5)


PROMPTS = [audio(1), audio(2), audio(3)]


@pytest.fixture(scope="module")
def alone_texts(target) -> list[list[int]]:
    """What the target writes of the prompts."""
    return specjax.Generator(target, max_new_tokens=12)(PROMPTS).tokens


@pytest.mark.slow
@pytest.mark.parametrize(
    "drafting", [{"drafter": "neural", "length": 3}, {"drafter": "neural", "widths": (2, 1)}]
)
def test_the_text_is_the_targets_own(target, drafter, drafting, alone_texts):
    made = specjax.Generator(
        target, {"drafter": drafter}, specjax.strategy(**drafting), max_new_tokens=12
    )
    assert made(PROMPTS).tokens == alone_texts


# Draft vocabularies


@pytest.mark.slow
def test_a_draft_vocabulary_masks_the_other_tokens_and_changes_no_logit(target):
    model, params = target.model, target.params
    made, weights = restrict_vocabulary(model, params, 20)
    tokens = list_draft_tokens(model, 20)
    assert tokens.tolist() == [*range(20), *range(END, 96)]
    frames, length = audio().T[None], jnp.array([100])
    fed = jnp.array([[START, 82, 86, 90, 3]])
    for at in (None, jnp.array([[4, 1]])):
        logits = [
            np.asarray(one.extend(p, fed, one.start(p, frames, length, 8)[0], at=at)[0].logits)
            for one, p in ((model, params), (made, weights))
        ]
        np.testing.assert_allclose(logits[1][..., tokens], logits[0][..., tokens], atol=1e-5)
        assert (np.delete(logits[1], tokens, axis=-1) < -1e8).all()


@pytest.mark.slow
@pytest.mark.parametrize("own", ["english", "borrowing"])
def test_drafters_of_few_tokens_leave_the_targets_text(target, drafter, own, alone_texts):
    if own == "borrowing":
        layers, params = take(target.model, target.params, (0, 2))
        drafter = dataclasses.replace(target, model=layers, params=params)
    ready = in_vocabulary_of(target, drafter) if own == "english" else drafter
    few = limit_draft_ids(with_encoder_of(target, ready), 40)
    assert few.model.info.borrows_encoder == (own == "borrowing")
    made = specjax.Generator(
        target, {"drafter": few}, specjax.speculative(length=3), max_new_tokens=12
    )
    assert made(PROMPTS).tokens == alone_texts
    with pytest.raises(specjax.UserError, match="count is 0"):
        limit_draft_ids(ready, 0)
