"""Moonshine against logits and texts of PyTorch (tests/golden/make_moonshine.py)."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from ml_collections import ConfigDict
from safetensors.numpy import load_file

import specjax
from specjax.experiments.train.with_input import make_input_parts
from specjax.loading import LoadedModel, load
from specjax.training.surgery import take

FOLDER = Path(__file__).parents[1] / "golden" / "moonshine"
EXPECTED = load_file(FOLDER / "expected.safetensors")
NEW_TOKENS = EXPECTED["texts"].shape[1]
AUDIO = np.split(EXPECTED["heard"], np.cumsum(EXPECTED["samples"])[:-1])
EOS = 2
TEXTS = [row[: row.index(EOS) + 1] if EOS in row else row for row in EXPECTED["texts"].tolist()]


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    return load(FOLDER)


def generator(target: LoadedModel, *drafting: object) -> specjax.Generator:
    return specjax.Generator(target, *drafting, max_new_tokens=NEW_TOKENS)


def test_padded_audio_has_the_logits_of_each_alone_in_pytorch(target):
    made = generator(target)
    batch = made.batch(made.encode(AUDIO), len(AUDIO))
    assert batch.length.tolist() == [14, 46, 78, 111] and batch.tokens.shape[1] == 112
    given = {"prompt": batch.tokens, "prompt_length": batch.length, "inputs": EXPECTED["target"]}
    found = np.asarray(target.model.teach(target.params, given)[0])
    np.testing.assert_allclose(found, EXPECTED["logits"], rtol=0, atol=1e-4)


def test_texts_are_those_of_generate(target):
    assert generator(target)(AUDIO).tokens == TEXTS


@pytest.mark.slow
def test_a_smaller_drafter_with_an_encoder_of_its_own_changes_no_text(target):
    """Also in slots, for which more audio waits."""
    model, params = take(target.model, target.params, (0, 2), (1,))
    drafter = dataclasses.replace(target, model=model, params=params)
    drafted = generator(target, {"drafter": drafter}, specjax.speculative(length=3))
    assert drafted(AUDIO).tokens == TEXTS
    assert drafted(AUDIO * 2, batch_size=3).tokens == TEXTS * 2


@pytest.mark.slow
def test_the_encoder_reads_no_more_than_the_longest_audio_of_a_group(target):
    """Its programs are as narrow as with tokens: a half, a quarter and an eighth of the widest."""
    from specjax.batching.rows import find_width, list_bounds

    made = generator(target)
    assert find_width(made.prompts) == 7504 and find_width(made.prompts, made.encode(AUDIO)) == 112
    assert list_bounds(made.prompts, 112, 14, 60) == [16, 32, 56, None]
    frames = made.encode(AUDIO)[0][None]
    wide = np.pad(frames, ((0, 0), (0, 98), (0, 0)))
    length = jnp.array([len(frames[0])])
    start = target.model.start
    caches = [
        start(target.params, wide, length, 8, longest=longest)[0].data for longest in (None, 16)
    ]
    for one, other in zip(*(data["cross"] for data in caches), strict=True):
        np.testing.assert_allclose(one[0][:, :, :1], other[0][:, :, :1], rtol=1e-5, atol=1e-5)


@pytest.mark.slow
def test_copies_search_the_output_only(target):
    copying = specjax.strategy(drafter="prompt_lookup", length=3)
    assert generator(target, {}, copying)(AUDIO).tokens == TEXTS


@pytest.mark.slow
def test_an_export_keeps_the_model_and_its_extractor(target, tmp_path):
    folder = tmp_path / "in"
    shutil.copytree(FOLDER, folder)
    extractor = {"feature_extractor_type": "Wav2Vec2FeatureExtractor", "do_normalize": True}
    (folder / "preprocessor_config.json").write_text(json.dumps(extractor), "utf-8")
    load(folder).save(tmp_path / "out")
    again = load(tmp_path / "out")
    assert again.model == target.model and again.extractor.processor.do_normalize
    heard = again.extractor("audio", AUDIO[1] + 0.5).ravel()[:2943]
    assert abs(heard.mean()) < 1e-3 and abs(heard.std() - 1) < 1e-3
    assert not target.extractor.processor.do_normalize


@pytest.mark.slow
@pytest.mark.parametrize(
    ("audio", "words"),
    [
        (np.zeros(894), "has 894 samples; it must have 895 to 480,000 of one channel, 30 seconds"),
        (np.zeros((2, 5000)), "has 2 x 5000 samples; .* of one channel"),
        (np.zeros(480_001), "has 480001 samples"),
        (np.zeros(5000, int), "must be an audio file, a waveform"),
    ],
)
def test_audio_that_the_model_cannot_read_is_refused(target, audio, words):
    with pytest.raises(specjax.UserError, match=words):
        target.extractor("prompt 0", audio)


def test_training_with_its_encoder_and_languages_are_refused(target, tmp_path):
    """Only Whisper's and Canary's texts begin with a language."""
    sides = dict.fromkeys(("train", "validation"), {"prefix": ""})
    config = ConfigDict({"model": {"shape": {"model_type": "moonshine"}}, **sides})
    with pytest.raises(specjax.UserError, match="audio in .* 64 samples, of any length; with"):
        make_input_parts(config, None, target, None, tmp_path)
    with pytest.raises(specjax.UserError, match="language is 'en'; only a Whisper or a Canary has"):
        specjax.in_language(target, "en")


@pytest.mark.slow
def test_long_audio_needs_times_which_it_does_not_write(target):
    with pytest.raises(specjax.UserError, match="whose model writes no times"):
        specjax.transcribe(generator(target), AUDIO[:1])
