"""Beam search against transformers' `generate` with PyTorch: fresh random models."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import specjax  # noqa: E402
from specjax.checkpoints.huggingface import load  # noqa: E402

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden"
T5 = runpy.run_path(str(GOLDEN / "make_t5.py"))
BART = runpy.run_path(str(GOLDEN / "make_bart.py"))
GEMMA = runpy.run_path(str(GOLDEN / "make_t5gemma.py"))
CAUSAL = runpy.run_path(str(GOLDEN / "make_causal.py"))
VOCABULARY, PROMPTS, NEW_TOKENS, BEAMS, RETURNED = 96, 6, 16, 4, 3

SEARCHES: list[dict[str, Any]] = [
    {},
    {"length_penalty": 0.6, "early_stopping": True},
    {"length_penalty": 0.2, "early_stopping": "never"},
    {"length_penalty": -0.5},
]


def t5(folder: Path) -> Any:
    model = T5["build"]("t5_v1_1", seed=21, num_decoder_layers=2)  # no deeper than the encoder
    with_more_ends(model)
    T5["save"](model, folder, tied=False)
    return model


def llama(folder: Path) -> Any:
    return decoder_only(folder, "llama")


def gemma3(folder: Path) -> Any:
    return decoder_only(folder, "gemma3_text", sliding_window=6, tie_word_embeddings=False)


def decoder_only(folder: Path, family: str, **own: Any) -> Any:
    shape = {
        "vocab_size": VOCABULARY, "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 128, "eos_token_id": [1, 5],
    }  # fmt: skip
    model = CAUSAL["build"](family, shape | own, seed=4)
    with_more_ends(model)
    model.save_pretrained(folder)
    return model


def mixture(folder: Path) -> Any:
    own = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 12}
    return decoder_only(folder, "qwen3_moe", **own)


def bart(folder: Path) -> Any:
    model = BART["build"]("bart", seed=4, eos_token_id=[2, 5], tie_word_embeddings=False)
    with_more_ends(model, 2)
    BART["save"](model, folder)
    return model


def t5gemma(folder: Path) -> Any:
    model = GEMMA["build"](GEMMA["SHAPES"]["t5gemma_unequal"], seed=8)
    with_more_ends(model)
    GEMMA["save"](model, folder)
    return model


def t5gemma2(folder: Path) -> Any:
    model = GEMMA["build"](GEMMA["SHAPES"]["t5gemma2"], seed=8)
    with_more_ends(model)  # of the input embedding too
    GEMMA["save"](model, folder)
    return model


def with_more_ends(model: Any, end: int = 1) -> None:
    """Makes logits of the end vary more, so that texts end early, late and not at all."""
    weight = model.get_output_embeddings().weight
    weight.data *= 0.5
    weight.data[end] *= 3.0


MAKERS = (t5, llama, gemma3, mixture, bart, t5gemma, t5gemma2)


@pytest.fixture(scope="module", params=MAKERS, ids=[maker.__name__ for maker in MAKERS])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random PyTorch model and the same one loaded here."""
    folder = tmp_path_factory.mktemp("beams")
    theirs = request.param(folder)
    found = load(folder)
    return theirs, specjax.LoadedModel(found.model, found.params)


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(7)
    return [rng.integers(2, VOCABULARY, size).tolist() for size in rng.integers(3, 20, PROMPTS)]


def theirs_of(model: Any, prompt: list[int], search: dict[str, Any]) -> tuple[list, list[float]]:
    """Texts up to their end, and scores, one prompt at a time."""
    given = torch.tensor([prompt])
    made = model.generate(
        given, attention_mask=torch.ones_like(given), do_sample=False, num_beams=BEAMS,
        num_return_sequences=RETURNED, max_new_tokens=NEW_TOKENS, return_dict_in_generate=True,
        output_scores=True, **search,
    )  # fmt: skip
    head = 1 if model.config.is_encoder_decoder else len(prompt)
    ends = np.ravel(model.config.eos_token_id).tolist()
    texts = [ended(row, ends) for row in made.sequences[:, head:].tolist()]
    return texts, made.sequences_scores.tolist()


def ended(text: list[int], ends: list[int]) -> list[int]:
    return next((text[: at + 1] for at, token in enumerate(text) if token in ends), text)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_n_best_texts_and_scores_equal_pytorch(pair: Any, search: dict[str, Any]) -> None:
    theirs, ours = pair
    strategy = specjax.beam_search(beams=BEAMS, sequences=RETURNED, **search)
    generator = specjax.BeamGenerator(ours, strategy=strategy, max_new_tokens=NEW_TOKENS, bucket=32)
    result = generator(prompts())
    lengths = set()
    for prompt, found in zip(prompts(), result.hypotheses, strict=True):
        texts, scores = theirs_of(theirs, prompt, search)
        assert [one.tokens for one in found] == texts
        np.testing.assert_allclose([one.score for one in found], scores, rtol=1e-4, atol=1e-5)
        lengths |= set(map(len, texts))
    assert len(lengths) > 2  # some end before the others


def test_speculation_gives_the_same_as_pytorch(pair: Any) -> None:
    theirs, ours = pair
    strategy = specjax.beam_search(drafter="neural", beams=BEAMS, sequences=RETURNED, length=2)
    generator = specjax.BeamGenerator(
        ours, {"drafter": ours}, strategy, max_new_tokens=NEW_TOKENS, bucket=32
    )
    result = generator(prompts(), batch_size=4)
    assert result.statistics.steps_per_round > 2.0
    for prompt, found in zip(prompts(), result.hypotheses, strict=True):
        assert [one.tokens for one in found] == theirs_of(theirs, prompt, {})[0]


SETTINGS = {
    "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "min_length": 8,
    "forced_bos_token_id": 9, "forced_eos_token_id": 1, "bad_words_ids": [[11], [12, 13]],
    "suppress_tokens": [20, 21], "begin_suppress_tokens": [22], "encoder_no_repeat_ngram_size": 2,
}  # fmt: skip


@pytest.mark.parametrize("drafter", ["none", "neural"])
def test_searches_under_settings_equal_pytorch(pair: Any, drafter: str) -> None:
    theirs, ours = pair
    drafted = {"drafter": drafter, "length": 2} if drafter != "none" else {}
    strategy = specjax.beam_search(beams=BEAMS, sequences=RETURNED, **drafted)
    generator = specjax.BeamGenerator(
        ours, {"drafter": ours}, strategy, max_new_tokens=NEW_TOKENS, bucket=32,
        generation=SETTINGS,
    )  # fmt: skip
    result = generator(prompts())
    for prompt, found in zip(prompts(), result.hypotheses, strict=True):
        texts, scores = theirs_of(theirs, prompt, SETTINGS)
        assert [one.tokens for one in found] == texts
        np.testing.assert_allclose([one.score for one in found], scores, rtol=1e-4, atol=1e-5)
    if drafted:
        assert result.statistics.steps_per_round > 1.5
