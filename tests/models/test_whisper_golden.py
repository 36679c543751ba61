"""Whisper against logits and texts that PyTorch computed once (tests/golden/make_whisper.py)."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import texts
from safetensors.numpy import load_file

import specjax
from specjax.decoding.loop import generate
from specjax.hf import huggingface
from specjax.hf.shared_encoder import with_encoder_of
from specjax.loading import LoadedModel, load
from specjax.models.whisper import Whisper

FOLDER = Path(__file__).parents[1] / "golden" / "whisper"
TOLERANCE = 1e-4
NEW_TOKENS = 16
EXPECTED = load_file(FOLDER / "expected.safetensors")


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    return load(FOLDER)


@pytest.fixture(scope="module")
def drafter(target: LoadedModel) -> LoadedModel:
    """As Distil-Whisper is made: the target's encoder, and the first of its decoder layers."""
    config = dataclasses.replace(target.model.config, num_decoder_layers=1)
    dropped = ("decoder_1", "decoder_2")
    params = {name: part for name, part in target.params.items() if name not in dropped}
    return LoadedModel(Whisper(config), jax.tree.map(jnp.array, params))


def frames() -> np.ndarray:
    """What is heard, [B, P, M] as the contract has it."""
    return EXPECTED["heard"].swapaxes(1, 2)


def same(found: jax.Array, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=TOLERANCE)


def cut_at_end(rows: np.ndarray, eos: int) -> list[list[int]]:
    """Texts up to and with their EOS."""
    return [[*row[: row.index(eos)], eos] if eos in row else row for row in rows.tolist()]


def test_teacher_forced_logits_equal_pytorch(target: LoadedModel) -> None:
    heard = frames()
    length = np.full(len(heard), heard.shape[1], np.int32)
    batch = {"prompt": heard, "prompt_length": length, "inputs": EXPECTED["target"]}
    same(target.model.teach(target.params, batch)[0], EXPECTED["logits"])


@pytest.mark.slow
def test_logits_through_the_cache_equal_pytorch(target: LoadedModel) -> None:
    """Two calls of several tokens, the first of which leaves wrong ones behind in the cache."""
    model, params, heard = target.model, target.params, frames()
    length = np.full(len(heard), heard.shape[1], np.int32)
    start = jax.jit(functools.partial(model.start, capacity=16))
    cache, reading = start(params, heard, length)
    assert reading.encoded.shape == (len(heard), heard.shape[1] // 2, model.config.d_model)
    extend, fed = jax.jit(model.extend), EXPECTED["target"]
    output, cache = extend(params, np.concatenate([fed[:, :4], fed[:, :2]], axis=1), cache)
    same(output.logits[:, :4], EXPECTED["logits"][:, :4])
    output, _ = extend(params, fed[:, 4:], cache.replace(length=cache.length - 2))
    same(output.logits, EXPECTED["logits"][:, 4:])


def ready(target: LoadedModel, drafter: LoadedModel | None = None) -> tuple[Any, Any]:
    """A generator of greedy texts, and a batch of what is heard."""
    given = {"drafter": drafter} if drafter else {}
    strategy = specjax.speculative(length=3) if drafter else None
    generator = specjax.Generator(target, given, strategy, max_new_tokens=NEW_TOKENS)
    heard = generator.encode(list(EXPECTED["heard"]))
    return generator, generator.batch(heard, len(heard))


def decode_golden(target: LoadedModel, drafter: LoadedModel | None = None) -> Any:
    generator, batch = ready(target, drafter)
    return generator.run(batch, generator.keys(batch, 0))


@pytest.mark.slow
def test_a_language_is_detected_as_by_generate(target: LoadedModel) -> None:
    out = decode_golden(target)
    heads = np.asarray(out.tokens)[:, :4]
    np.testing.assert_array_equal(heads[:, 1], EXPECTED["languages"])
    speech = dict(target.model.config.speech.tasks)
    assert set(heads[:, 2]) == {speech["transcribe"]}
    assert texts(out) == cut_at_end(EXPECTED["detected"], target.model.info.eos[0])


@pytest.mark.slow
def test_a_translation_from_a_language_that_is_told_equals_that_of_generate(
    target: LoadedModel, drafter: LoadedModel
) -> None:
    """And a drafter that borrows the encoder changes no token."""
    adapted = specjax.in_language(target, "german", "translate")
    assert adapted.model.info.forced == (83, 85, 90)
    out = decode_golden(adapted, drafter)
    assert texts(out) == cut_at_end(EXPECTED["german"], target.model.info.eos[0])
    drafted = np.asarray(out.trace.accepted).sum()
    assert 0 < drafted < np.asarray(out.trace.committed).sum()  # some stood


@pytest.mark.slow
def test_timestamps_are_those_of_generate(target: LoadedModel, drafter: LoadedModel) -> None:
    timed = specjax.in_language(target, "fr", timestamps=True)
    assert timed.model.info.forced == (84, 86) and timed.settings == {"return_timestamps": True}
    out = decode_golden(timed, drafter)
    expected = cut_at_end(EXPECTED["timed"], target.model.info.eos[0])
    assert texts(out) == expected
    first = timed.model.config.speech.no_timestamps + 1
    assert all(first <= row[0] <= first + 2 for row in expected)  # as late as it may be
    with pytest.raises(specjax.UserError, match="which in_language.* leaves out"):
        specjax.Generator(target, generation={"return_timestamps": True})


def convolutions(generator: Any, batch: Any) -> int:
    """How often a decode computes the two convolutions of an encoder."""
    arguments = generator.arguments(batch, generator.keys(batch, 0))
    traced = jax.make_jaxpr(generate, static_argnums=0)(*arguments)
    return str(traced).count("conv_general_dilated[") // 2


@pytest.mark.slow
def test_an_encoder_that_both_have_runs_once(target: LoadedModel, drafter: LoadedModel) -> None:
    generator, batch = ready(target, drafter)
    assert generator.decoder.models[1][1].info.borrows_encoder
    assert not any(name.startswith("encoder") for name in generator.params["drafter"])
    assert convolutions(generator, batch) == 1
    own = jax.tree.map(jnp.array, drafter.params)
    own["encoder_norm"]["bias"] = own["encoder_norm"]["bias"].at[3].add(1e-3)
    other = dataclasses.replace(drafter, params=own)
    assert with_encoder_of(target, other) is other
    generator, batch = ready(target, other)
    assert convolutions(generator, batch) == 2


def test_an_exported_model_loads_unchanged(target: LoadedModel, tmp_path: Path) -> None:
    adapted = specjax.in_language(target, "fr")
    for number, model in enumerate((target.model, adapted.model)):
        huggingface.save(tmp_path / str(number), model, target.params)
        again = huggingface.load(tmp_path / str(number))
        assert again.model == model
        jax.tree.map(np.testing.assert_array_equal, again.params, target.params)


def test_what_a_model_does_not_know_is_refused(target: LoadedModel) -> None:
    with pytest.raises(specjax.UserError, match="'klingon'; the model knows en, de, fr"):
        specjax.in_language(target, "klingon")
    with pytest.raises(specjax.UserError, match="'sing'; the model knows translate, transcribe"):
        specjax.in_language(target, "de", "sing")
    generator = specjax.Generator(target, max_new_tokens=30)
    with pytest.raises(specjax.UserError, match="max_new_tokens is 30; after the 4 .* for 29"):
        generator.encode(list(EXPECTED["heard"]))
    with pytest.raises(specjax.UserError, match="list of audio files or waveforms"):
        generator.encode(3)
