"""Canary against frames, prompts, logits and texts of PyTorch (tests/golden/make_canary.py)."""

from __future__ import annotations

import dataclasses
import json
import shutil
import wave
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import first_state, one_round
from ml_collections import ConfigDict
from safetensors.numpy import load_file

import specjax
from specjax.experiments.train.feature_drafter import adopt_target
from specjax.experiments.train.model import make_model_shape
from specjax.hf.shared_encoder import with_encoder_of
from specjax.loading import LoadedModel, load
from specjax.models.canary import Canary
from specjax.training.ngram import fit
from specjax.training.surgery import take

FOLDER = Path(__file__).parents[1] / "golden" / "canary"
EXPECTED = load_file(FOLDER / "expected.safetensors")
NEW_TOKENS = EXPECTED["texts"].shape[1]
AUDIO = np.split(EXPECTED["heard"], np.cumsum(EXPECTED["samples"])[:-1])
EOS = 3


def cut_at_end(name: str) -> list[list[int]]:
    """Texts up to and with their EOS."""
    rows = EXPECTED[name].tolist()
    return [row[: row.index(EOS) + 1] if EOS in row else row for row in rows]


TEXTS = cut_at_end("texts")


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    return load(FOLDER)


@pytest.fixture(scope="module")
def drafter(target: LoadedModel) -> LoadedModel:
    """The target's encoder, and two of its decoder layers."""
    model, params = take(target.model, target.params, (0, 2))
    return dataclasses.replace(target, model=model, params=params)


def generator(target: LoadedModel, *drafting: object) -> specjax.Generator:
    return specjax.Generator(target, *drafting, max_new_tokens=NEW_TOKENS)


def test_padded_audio_has_the_logits_of_pytorch(target):
    made = generator(target)
    batch = made.batch(made.encode(AUDIO), len(AUDIO))
    assert batch.length.tolist() == EXPECTED["lengths"].tolist() == [2, 18, 31, 44]
    given = {"prompt": batch.tokens, "prompt_length": batch.length, "inputs": EXPECTED["target"]}
    found = np.asarray(target.model.teach(target.params, given)[0])
    np.testing.assert_allclose(found, EXPECTED["logits"], rtol=0, atol=1e-4)


@pytest.mark.slow
def test_frames_are_those_of_transformers_extractor(target, tmp_path):
    for waveform, frames, count in zip(AUDIO, EXPECTED["frames"], EXPECTED["lengths"], strict=True):
        found = target.extractor("audio", waveform)
        np.testing.assert_allclose(found, frames[:count], rtol=0, atol=1e-4)
    file = tmp_path / "speech.wav"
    with wave.open(str(file), "wb") as out:
        out.setparams((1, 2, 16_000, 0, "NONE", ""))
        out.writeframes((AUDIO[3] / 4 * 2**15).astype("<i2").tobytes())
    read = target.extractor("audio", str(file))
    np.testing.assert_allclose(read, EXPECTED["frames"][3][:44], rtol=0, atol=0.05)


@pytest.mark.slow
def test_texts_and_translations_are_those_of_generate(target):
    """After the prompt of the processor, which is not generated."""
    assert target.model.info.prefix == tuple(EXPECTED["prompt"])
    assert generator(target)(AUDIO).tokens == TEXTS
    other = load(FOLDER, source_language="german", target_language="fr")
    assert other.model.info.prefix == tuple(EXPECTED["german"])
    assert generator(other)(AUDIO).tokens == cut_at_end("translations")


@pytest.mark.slow
def test_a_language_and_a_task_set_the_prompt(target):
    known = target.tokenizer.get_vocab()
    for request, languages in (
        (("de",), "de de"),
        (("German", "translate"), "de en"),
        (("", "transcribe"), "en en"),
        (("fr", "transcribe"), "fr fr"),
    ):
        found = specjax.in_language(target, *request).model.info.prefix
        expected = [known[f"<|{code}|>"] for code in languages.split()]
        assert list(found[3:5]) == expected and len(found) == 9
    described = dataclasses.replace(target, params=None, tokenizer=None)
    assert specjax.in_language(described, "de").model == target.model


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [4, 3])
def test_a_drafter_borrows_the_encoder_and_changes_no_text(target, drafter, batch_size):
    """Also in slots, for which more audio waits."""
    drafted = generator(target, {"drafter": drafter}, specjax.speculative(length=3))
    assert drafted.decoder.models[1][1].info.borrows_encoder
    assert drafted(AUDIO * 2, batch_size=batch_size).tokens == TEXTS * 2
    own = jax.tree.map(jnp.array, drafter.params)
    norm = own["encoder_0"]["convolution"]["norm"]
    norm["mean"] = norm["mean"].at[3].add(1e-3)
    other = LoadedModel(Canary(drafter.model.config), own)
    assert with_encoder_of(target, other) is other


@pytest.mark.slow
@pytest.mark.parametrize("name", ["prompt_lookup", "suffix", "bigram"])
def test_copies_and_bigrams_change_no_text(target, name):
    tables = {"ngram": fit(TEXTS, target.model.info.vocab_size, start_token=7)}
    made = specjax.Generator(
        target, {}, specjax.strategy(drafter=name, length=3), tables=tables,
        max_new_tokens=NEW_TOKENS,
    )  # fmt: skip
    found = made(AUDIO)
    assert found.tokens == TEXTS and found.statistics.accepted


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["eagle", "dflash"])
def test_drafters_on_its_states_change_no_text(target, kind):
    words = {"model_type": f"{kind}_t5", "draft_vocab_size": 50, "num_decoder_layers": 1}
    ends, info = {"eos_token_id": EOS, "pad_token_id": 2}, target.model.info
    shape = ConfigDict({"shape": words})
    model = make_model_shape(shape, info.vocab_size, ends, target.model).adapt_to(target.model)
    drawn = LoadedModel(model, jax.jit(model.init)(jax.random.key(0)))
    drafter = adopt_target(drawn, target, map(np.array, TEXTS))
    strategy = specjax.strategy(drafter=kind, length=2)
    assert generator(target, {"drafter": drafter}, strategy)(AUDIO).tokens == TEXTS


@pytest.mark.slow
def test_after_every_round_caches_are_those_of_the_tokens(target, drafter):
    """Up to their pointers; a stale one would cost acceptance only."""
    made = generator(target, {"drafter": drafter}, specjax.speculative(length=3))
    batch = made.batch(made.encode(AUDIO), len(AUDIO))
    decoder, *arguments = made.arguments(batch, made.keys(batch, 0))
    state, rounds = first_state(decoder, *arguments), 0
    models = dict(decoder.models)
    while bool(state.context.active.any()):
        state, rounds = one_round(decoder, made.params, state), rounds + 1
        tokens = state.context.tokens
        cache, reading = models["target"].start(
            made.params["target"], batch.tokens, batch.length, tokens.shape[1]
        )
        caches = {"target": cache}
        caches["drafter"], _ = models["drafter"].start(
            made.params["drafter"], batch.tokens, batch.length, tokens.shape[1],
            encoded=reading.encoded,
        )  # fmt: skip
        for name, begun in caches.items():
            fresh = models[name].extend(made.params[name], tokens, begun)[1]
            below = np.arange(tokens.shape[1]) < np.asarray(state.caches[name].length)[:, None]
            pairs = (state.caches[name].data["own"], fresh.data["own"])
            for one, other in zip(*map(jax.tree.leaves, pairs), strict=True):
                wrong = np.abs(np.asarray(one) - np.asarray(other)).max(axis=(1, 3)) > 1e-4
                assert not (wrong & below).any()
    assert rounds > 4


@pytest.mark.slow
def test_an_export_keeps_the_model_its_extractor_and_its_prompt(target, tmp_path):
    folder = tmp_path / "in"
    shutil.copytree(FOLDER, folder)
    file = folder / "processor_config.json"
    fields = json.loads(file.read_text("utf-8"))
    fields["feature_extractor"] |= {"hop_length": 200, "n_fft": 401, "preemphasis": None}
    file.write_text(json.dumps(fields), "utf-8")
    load(folder).save(tmp_path / "out")
    again = load(tmp_path / "out")
    assert again.model == target.model and again.model.info.forced
    found = again.extractor("audio", AUDIO[3])
    assert len(found) == 35
    np.testing.assert_array_equal(found, load(folder).extractor("audio", AUDIO[3]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("audio", "words"),
    [
        (np.zeros(319), "has 319 samples; it must have 320 to 128,000 of one channel, 8 seconds"),
        (np.zeros((2, 5000)), "has 2 x 5000 samples; .* of one channel"),
        (np.zeros(128_160), "has 128160 samples"),
        (np.zeros(5000, int), "must be an audio file, a waveform"),
    ],
)
def test_audio_that_the_model_cannot_read_is_refused(target, audio, words):
    with pytest.raises(specjax.UserError, match=words):
        target.extractor("prompt 0", audio)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"feature_size": 80}, "gives 80 numbers of each frame; the model reads 20"),
        ({"sampling_rate": 8000}, "sampling_rate is 8000; it must be 16000"),
        ({"win_length": 600}, "has win_length 600; it must be at most n_fft, 512"),
        ({"preemphasis": "much"}, "preemphasis is 'much'; it must be a number, or null"),
        ({"padding_side": "left"}, "padding_side is 'left'; it must be one of right"),
    ],
)
def test_an_extractor_that_does_not_fit_is_refused(change, words, tmp_path):
    shutil.copytree(FOLDER, tmp_path / "in")
    file = tmp_path / "in" / "processor_config.json"
    fields = json.loads(file.read_text("utf-8"))
    fields["feature_extractor"] |= change
    file.write_text(json.dumps(fields), "utf-8")
    with pytest.raises(specjax.UserError, match=words):
        load(tmp_path / "in")


@pytest.mark.slow
def test_languages_and_times_that_it_does_not_have_are_refused(target):
    for request, words in (
        ({"language": "Klingon"}, "language is 'Klingon'; the tokenizer knows de, en, fr"),
        ({"language": "it"}, "language is 'it'; the tokenizer knows de, en, fr"),
        ({"task": "sing"}, "task is 'sing'; the model knows transcribe, translate"),
        ({"timestamps": True}, "timestamps is True; the model has no tokens for times"),
    ):
        with pytest.raises(specjax.UserError, match=words):
            specjax.in_language(target, **request)
    mute = dataclasses.replace(target, tokenizer=None)
    with pytest.raises(specjax.UserError, match="language is 'de'; the checkpoint has no chat"):
        specjax.in_language(mute, "de")
    with pytest.raises(specjax.UserError, match="writes no times; it reads audio in one piece"):
        specjax.transcribe(generator(target), AUDIO[:1])
