"""Beam search against transformers' `generate` with PyTorch: fresh random models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_models import make_model, save, with_more_ends

torch = pytest.importorskip("torch")

import specjax  # noqa: E402

pytestmark = pytest.mark.slow

VOCABULARY, PROMPTS, NEW_TOKENS, BEAMS, RETURNED = 96, 6, 16, 4, 3

SEARCHES: list[dict[str, Any]] = [
    {},
    {"length_penalty": 0.6, "early_stopping": True},
    {"length_penalty": 0.2, "early_stopping": "never"},
    {"length_penalty": -0.5},
]

TWO_ENDS = {"eos_token_id": [1, 5]}
THOROUGH: dict[str, tuple[int, dict[str, Any]]] = {
    "t5_v1_1": (21, {"num_decoder_layers": 2}),  # no deeper than the encoder
    "llama": (4, TWO_ENDS),
    "gemma3_text": (4, TWO_ENDS),
    "qwen3_moe": (4, TWO_ENDS),
    "bart": (4, {"eos_token_id": [2, 5], "tie_word_embeddings": False}),
    "t5gemma_unequal": (8, {}),
    "t5gemma2": (8, {}),
}
"""Seed and changes of the families that every search is tried on."""

BRIEF: dict[str, tuple[int, dict[str, Any]]] = {
    "t5_v1_0": (5, {}),
    "mt5": (5, {}),
    "longt5": (5, {}),
    "switch_transformers": (4, {"expert_capacity": 2}),
    "umt5": (5, {"num_decoder_layers": 2}),
    "mbart": (5, {}),
    "marian_two": (2, {"tie_word_embeddings": False}),
    "led": (1, {}),
    "pegasus_x": (4, {}),
    "pegasus": (3, {"tie_word_embeddings": False}),
    "marian": (9, {"tie_word_embeddings": False}),
    "m2m_100": (5, {"tie_word_embeddings": False, "decoder_layers": 2}),
    "gpt2": (5, TWO_ENDS),
    "gpt2_scaled": (5, TWO_ENDS),
    "mistral": (5, TWO_ENDS),
    "qwen2": (5, TWO_ENDS),
    "qwen3": (5, TWO_ENDS),
    "gemma": (5, TWO_ENDS),
    "gemma2": (5, TWO_ENDS),
    "phi3": (5, TWO_ENDS),
    "phi4": (5, TWO_ENDS),
    "olmo2": (5, TWO_ENDS),
    "smollm3": (5, TWO_ENDS),
    "cwm": (5, TWO_ENDS),
    "mixtral": (5, TWO_ENDS),
    "qwen2_moe": (5, TWO_ENDS),
    "glm4_moe": (5, TWO_ENDS),
    "gpt_oss": (5, TWO_ENDS),
    "deepseek_v2": (5, TWO_ENDS),
    "deepseek_v3": (5, TWO_ENDS),
    "qwen3_5_text": (5, TWO_ENDS),
    "qwen3_next": (5, TWO_ENDS),
    "bamba": (5, TWO_ENDS),
    "granitemoehybrid": (5, TWO_ENDS),
    "nemotron_h": (5, TWO_ENDS),
    "mistral4": (5, TWO_ENDS),
    "phimoe": (5, TWO_ENDS),
    "llama4_text": (5, TWO_ENDS),
    "olmo": (5, TWO_ENDS),
    "olmo3": (5, TWO_ENDS),
    "exaone4": (5, TWO_ENDS),
    "granite": (5, TWO_ENDS),
    "granitemoe": (5, TWO_ENDS),
    "granitemoeshared": (5, TWO_ENDS),
    "glm": (5, TWO_ENDS),
    "glm4": (5, TWO_ENDS),
    "cohere": (5, TWO_ENDS),
    "cohere2": (5, TWO_ENDS),
    "starcoder2": (7, TWO_ENDS),
    "stablelm": (8, TWO_ENDS),
    "phi": (5, TWO_ENDS),
    "gemma4_text": (5, TWO_ENDS),
    "gemma4_small": (5, TWO_ENDS),
    "gemma3n_text": (5, TWO_ENDS),
    "falcon": (7, TWO_ENDS),
    "falcon_7b": (7, TWO_ENDS),
    "ministral": (5, TWO_ENDS),
    "ministral3": (5, TWO_ENDS),
    "recurrent_gemma": (5, TWO_ENDS),
    "qwen3_5_moe_text": (5, TWO_ENDS),
    "bloom": (5, TWO_ENDS),
    "mpt": (5, TWO_ENDS),
    "gpt_neox": (9, TWO_ENDS),
    "opt": (5, TWO_ENDS | {"tie_word_embeddings": False}),
    "opt_350m": (8, TWO_ENDS | {"tie_word_embeddings": False}),
}
"""The same of those that differ from them in layers only: one plain search, one under settings.

Seeds are those of models whose texts differ in length and where no hypotheses are equally likely
up to rounding, by which either may be kept.
"""

PLAIN = [(name, search) for name in THOROUGH for search in SEARCHES]
PLAIN += [(name, {}) for name in BRIEF]
UNDER_SETTINGS = [(name, drafter) for name in THOROUGH for drafter in ("none", "neural")]
# One of the settings is of n-grams of prompts, whose ids may not be those of texts.
UNDER_SETTINGS += [(name, "neural") for name in BRIEF if name != "marian_two"]

UNORDERED = ("recurrent_gemma",)
"""Model types whose states transformers keeps in the order that beams had before."""


@pytest.fixture(scope="module")
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random PyTorch model and the same one loaded here."""
    family, folder = request.param, tmp_path_factory.mktemp("beams")
    seed, changes = (THOROUGH | BRIEF)[family]
    theirs = make_model(family, seed, **changes)
    with_more_ends(theirs, int(np.ravel(theirs.config.eos_token_id)[0]))
    save(family, theirs, folder)
    return theirs, specjax.load(folder)


def prompts() -> list[list[int]]:
    rng = np.random.default_rng(7)
    return [rng.integers(2, VOCABULARY, size).tolist() for size in rng.integers(3, 20, PROMPTS)]


def run_reference(
    model: Any, prompt: list[int], search: dict[str, Any]
) -> tuple[list, list[float]]:
    """Texts up to their end, and scores, one prompt at a time."""
    given = torch.tensor([prompt])
    made = model.generate(
        given, attention_mask=torch.ones_like(given), do_sample=False, num_beams=BEAMS,
        num_return_sequences=RETURNED, max_new_tokens=NEW_TOKENS, return_dict_in_generate=True,
        output_scores=True, use_cache=model.config.model_type not in UNORDERED, **search,
    )  # fmt: skip
    head = 1 if model.config.is_encoder_decoder else len(prompt)
    ends = np.ravel(model.config.eos_token_id).tolist()
    texts = [cut_at_end(row, ends) for row in made.sequences[:, head:].tolist()]
    return texts, made.sequences_scores.tolist()


def cut_at_end(text: list[int], ends: list[int]) -> list[int]:
    return next((text[: at + 1] for at, token in enumerate(text) if token in ends), text)


@pytest.mark.parametrize(("pair", "search"), PLAIN, indirect=["pair"], ids=str)
def test_n_best_texts_and_scores_equal_pytorch(pair: Any, search: dict[str, Any]) -> None:
    theirs, ours = pair
    strategy = specjax.beam_search(beams=BEAMS, sequences=RETURNED, **search)
    generator = specjax.BeamGenerator(ours, strategy=strategy, max_new_tokens=NEW_TOKENS, bucket=32)
    result = generator(prompts())
    lengths = set()
    for prompt, found in zip(prompts(), result.hypotheses, strict=True):
        texts, scores = run_reference(theirs, prompt, search)
        assert [one.tokens for one in found] == texts
        np.testing.assert_allclose([one.score for one in found], scores, rtol=1e-4, atol=1e-5)
        lengths |= set(map(len, texts))
    assert len(lengths) > 2  # some end before the others


@pytest.mark.parametrize("pair", THOROUGH, indirect=True)
def test_speculation_gives_the_same_as_pytorch(pair: Any) -> None:
    theirs, ours = pair
    strategy = specjax.beam_search(drafter="neural", beams=BEAMS, sequences=RETURNED, length=2)
    generator = specjax.BeamGenerator(
        ours, {"drafter": ours}, strategy, max_new_tokens=NEW_TOKENS, bucket=32
    )
    result = generator(prompts(), batch_size=4)
    assert result.statistics.steps_per_round > 2.0
    for prompt, found in zip(prompts(), result.hypotheses, strict=True):
        assert [one.tokens for one in found] == run_reference(theirs, prompt, {})[0]


SETTINGS = {
    "no_repeat_ngram_size": 2, "repetition_penalty": 1.3, "min_length": 8,
    "forced_bos_token_id": 9, "forced_eos_token_id": 1, "bad_words_ids": [[11], [12, 13]],
    "suppress_tokens": [20, 21], "begin_suppress_tokens": [22], "encoder_no_repeat_ngram_size": 2,
    "sequence_bias": [[[14], 1.0], [[9, 15], 2.0]], "encoder_repetition_penalty": 1.2,
    "exponential_decay_length_penalty": [4, 0.9],
}  # fmt: skip


@pytest.mark.parametrize(("pair", "drafter"), UNDER_SETTINGS, indirect=["pair"])
def test_searches_under_settings_equal_pytorch(pair: Any, drafter: str) -> None:
    equal_under(SETTINGS, pair, drafter)


RENORMALIZED: list[dict[str, Any]] = [
    {"no_repeat_ngram_size": 2},
    {"repetition_penalty": 1.3},
    {"bad_words_ids": [[11], [12, 13]], "no_repeat_ngram_size": 3, "repetition_penalty": 1.3},
]


@pytest.mark.parametrize("drafter", ["none", "neural"])
@pytest.mark.parametrize("settings", RENORMALIZED, ids=lambda settings: "-".join(settings))
@pytest.mark.parametrize("pair", ["t5_v1_1", "llama"], indirect=True)
def test_scores_are_normalized_again_where_pytorch_does(
    pair: Any, settings: dict[str, Any], drafter: str
) -> None:
    off = equal_under({**settings, "renormalize_logits": False}, pair, drafter)
    on = equal_under({**settings, "renormalize_logits": True}, pair, drafter)
    assert not np.allclose(off, on, rtol=1e-3)


def equal_under(settings: dict[str, Any], pair: Any, drafter: str) -> list[float]:
    """The scores of a search under settings, whose texts and scores are those of PyTorch."""
    theirs, ours = pair
    drafted = {"drafter": drafter, "length": 2} if drafter != "none" else {}
    strategy = specjax.beam_search(beams=BEAMS, sequences=RETURNED, **drafted)
    generator = specjax.BeamGenerator(
        ours, {"drafter": ours}, strategy, max_new_tokens=NEW_TOKENS, bucket=32,
        generation=settings,
    )  # fmt: skip
    result = generator(prompts())
    for prompt, found in zip(prompts(), result.hypotheses, strict=True):
        texts, scores = run_reference(theirs, prompt, settings)
        assert [one.tokens for one in found] == texts
        np.testing.assert_allclose([one.score for one in found], scores, rtol=1e-4, atol=1e-5)
    if drafted:
        assert result.statistics.steps_per_round > 1.5
    return result.scores


def test_a_search_that_a_checkpoint_asks_for_is_the_one_of_generate(tmp_path: Path) -> None:
    """Neither side is told of beams: both read `generation_config.json`."""
    seed, changes = THOROUGH["bart"]
    theirs = with_more_ends(make_model("bart", seed, **changes), 2)
    save("bart", theirs, tmp_path)
    own = theirs.generation_config
    own.num_beams, own.length_penalty, own.early_stopping = BEAMS, 0.4, True
    own.renormalize_logits, own.no_repeat_ngram_size = True, 2
    own.save_pretrained(tmp_path)
    generator = specjax.BeamGenerator(specjax.load(tmp_path), max_new_tokens=NEW_TOKENS, bucket=32)
    assert generator.strategy.beams == BEAMS
    made = generator(prompts()).tokens
    for prompt, found in zip(prompts(), made, strict=True):
        given = torch.tensor([prompt])
        mask = torch.ones_like(given)
        row = theirs.generate(given, attention_mask=mask, max_new_tokens=NEW_TOKENS)[0, 1:]
        assert found == cut_at_end(row.tolist(), np.ravel(theirs.config.eos_token_id).tolist())
