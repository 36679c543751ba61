"""Whisper's suppressed tokens and beams against transformers' `generate`: fresh random models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch_models import make_model, maker, save, with_more_ends

torch = pytest.importorskip("torch")

import specjax  # noqa: E402

pytestmark = pytest.mark.slow

WHISPER = maker("whisper")
EOS, NEW_TOKENS, ROWS = WHISPER["EOS"], 20, 8
FIRST_TIME = WHISPER["NO_TIMESTAMPS"] + 1
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"language": "fr"},
    {"language": "de", "task": "translate"},
    {"language": "en", "return_timestamps": True},
)
"""A head of four tokens with a language that is detected or given, and one of three with times."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a target, whose texts end early and late, and a random model to draft for it."""
    made = tmp_path_factory.mktemp("whisper")
    for name, seed in (("target", 40), ("drafter", 45)):
        save("whisper", with_more_ends(make_model("whisper", seed), EOS), made / name)
    return made


def theirs_under(folder: Path, generation: dict[str, Any]) -> Any:
    """The target of transformers, whose generation file says these things too."""
    from transformers import WhisperForConditionalGeneration

    said = json.dumps(WHISPER["GENERATION"] | generation)
    (folder / "target" / "generation_config.json").write_text(said, "utf-8")
    return WhisperForConditionalGeneration.from_pretrained(folder / "target").eval()


def run_speech(rows: Any) -> list[list[int]]:
    """Texts up to and with their EOS."""
    lists = [row.tolist() for row in rows]
    return [[*row[: row.index(EOS)], EOS] if EOS in row else row for row in lists]


def in_words(target: Any, options: dict[str, Any]) -> Any:
    said = {name.removeprefix("return_"): value for name, value in options.items()}
    return specjax.in_language(target, **said) if said else target


def choose_suppressed(plain: list[list[int]]) -> dict[str, list[int]]:
    """What texts often hold, and every first token of theirs that is not among it; no ends."""
    words, counts = np.unique(np.concatenate(plain), return_counts=True)
    often = [int(words[at]) for at in np.argsort(-counts) if words[at] not in (EOS, FIRST_TIME)][:3]
    firsts = {row[0] for row in plain} | {EOS}  # an end too, as published models say
    return {"suppress_tokens": often, "begin_suppress_tokens": sorted(firsts - set(often))}


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_suppressed_tokens_are_those_of_generate(folder: Path, options: dict[str, Any]) -> None:
    """Of the target alone, and where a random model drafts."""
    features = WHISPER["heard"](3, ROWS)
    plain = run_speech(WHISPER["greedy"](theirs_under(folder, {}), features, NEW_TOKENS, **options))
    settings = choose_suppressed(plain)
    theirs = theirs_under(folder, settings)
    expected = run_speech(WHISPER["greedy"](theirs, features, NEW_TOKENS, **options))
    assert all(one[0] != other[0] for one, other in zip(plain, expected, strict=True))
    assert any(len(row) < NEW_TOKENS for row in expected)
    # Tokens not to begin with come later: another list than that of those never to come.
    later = {token for row in expected for token in row[1:]}
    assert later & set(settings["begin_suppress_tokens"])
    target = in_words(specjax.load(folder / "target"), options)
    assert target.settings.items() >= {k: tuple(v) for k, v in settings.items()}.items()
    drafter = specjax.load(folder / "drafter")
    for strategy in (None, specjax.speculative(length=3)):
        given = {} if strategy is None else {"drafter": drafter}
        generator = specjax.Generator(target, given, strategy, max_new_tokens=NEW_TOKENS)
        assert generator(list(features)).tokens == expected


BEAMS = 4
SETTINGS = {
    "suppress_tokens": [64, 65], "begin_suppress_tokens": [EOS, 93], "no_repeat_ngram_size": 3,
    "repetition_penalty": 1.4, "min_length": 9,
}  # fmt: skip
SEARCHES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "plain": ({}, {}),
    "with a penalty of length": ({"length_penalty": -0.5}, {}),
    "under settings": ({"early_stopping": True}, SETTINGS),
}


@pytest.mark.parametrize("drafter", ["none", "neural"])
@pytest.mark.parametrize("search", SEARCHES)
def test_beams_hear_as_those_of_generate(folder: Path, search: str, drafter: str) -> None:
    """The best text only: of more, transformers' Whisper returns as many copies of it."""
    search, settings = SEARCHES[search]
    features = WHISPER["heard"](3, ROWS)
    made = theirs_under(folder, settings).generate(
        input_features=torch.tensor(features), max_new_tokens=NEW_TOKENS, num_beams=BEAMS,
        force_unique_generate_call=True, return_dict_in_generate=True, output_scores=True,
        language="fr", **search,
    )  # fmt: skip
    expected = run_speech(made.sequences[:, WHISPER["HEAD"] :])
    target = specjax.in_language(specjax.load(folder / "target"), "fr")
    drafted = {"drafter": drafter, "length": 2} if drafter != "none" else {}
    strategy = specjax.beam_search(beams=BEAMS, **drafted, **search)
    models = {"drafter": specjax.load(folder / "drafter")} if drafted else {}
    found = specjax.BeamGenerator(target, models, strategy, max_new_tokens=NEW_TOKENS)(
        list(features)
    )
    assert found.tokens == expected and len(set(map(len, expected))) > 1
    np.testing.assert_allclose(found.scores, made.sequences_scores, rtol=1e-4, atol=1e-5)
