"""Whisper against transformers' PyTorch classes on fresh random models."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from odd_shapes import speech_shapes

torch = pytest.importorskip("torch")

import specjax  # noqa: E402
from specjax.hf import huggingface  # noqa: E402
from specjax.loading import load  # noqa: E402

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
GOLDEN = runpy.run_path(str(ROOT / "tests" / "golden" / "make_whisper.py"))
ROWS = 8
SHAPES: dict[str, dict[str, Any]] = {
    "even": {},
    "deep encoder": {"encoder_layers": 4, "decoder_layers": 1, "num_mel_bins": 6},
    "other activation": {"activation_function": "relu", "scale_embedding": True},
    "wide": {"d_model": 24, "encoder_attention_heads": 2, "decoder_attention_heads": 6},
    **speech_shapes(5),
}


OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"language": "fr"},
    {"language": "de", "task": "translate"},
    {"language": "en", "return_timestamps": True},
)


@pytest.fixture(scope="module", params=SHAPES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random PyTorch model and the same one loaded here."""
    theirs = GOLDEN["build"](list(SHAPES).index(request.param) + 40, **SHAPES[request.param])
    folder = tmp_path_factory.mktemp("whisper")
    GOLDEN["save"](theirs, folder)
    return theirs, load(folder)


def audio(model: Any, seed: int, rows: int) -> np.ndarray:
    """What a model of this shape hears."""
    shape = model.config
    return GOLDEN["heard"](seed, rows, shape.num_mel_bins, 2 * shape.max_source_positions)


def test_logits_of_random_models_equal_pytorch(pair: Any) -> None:
    theirs, ours = pair
    features = audio(theirs, 1, ROWS)
    target = np.random.default_rng(2).integers(0, ours.model.info.vocab_size, (ROWS, 30))
    expected = GOLDEN["logits"](theirs, features, target)
    heard = features.swapaxes(1, 2)
    length = np.full(ROWS, heard.shape[1], np.int32)
    cache, _ = ours.model.start(ours.params, heard, length, 30)
    found = np.asarray(ours.model.extend(ours.params, target.astype(np.int32), cache)[0].logits)
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("options", OPTIONS)
def test_texts_equal_those_of_generate(pair: Any, options: dict[str, Any]) -> None:
    theirs, ours = pair
    features = audio(theirs, 3, ROWS)
    expected = GOLDEN["greedy"](theirs, features, 20, **options).tolist()
    said = {name.removeprefix("return_"): value for name, value in options.items()}
    generator = specjax.Generator(specjax.in_language(ours, **said), max_new_tokens=20)
    found = generator(list(features)).tokens
    eos = GOLDEN["EOS"]
    assert found == [[*row[: row.index(eos)], eos] if eos in row else row for row in expected]
    assert sum(map(len, found)) > 20 * ROWS // 3  # not all ended at once


def test_an_exported_model_loads_in_transformers_unchanged(pair: Any, tmp_path: Path) -> None:
    from transformers import WhisperForConditionalGeneration

    theirs, ours = pair
    huggingface.save(
        tmp_path / "out", ours.model, ours.params, original_config=ours.original_config
    )
    again = WhisperForConditionalGeneration.from_pretrained(tmp_path / "out", dtype=torch.float32)
    features, target = audio(theirs, 4, 2), np.ones((2, 9), np.int64)
    expected = GOLDEN["logits"](theirs, features, target)
    np.testing.assert_array_equal(GOLDEN["logits"](again.eval(), features, target), expected)
