"""Generation settings against transformers: its logits processors, and its `generate`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from feature_drafters import on_t5, without_encoder
from parallel_heads import heads_on_target
from tiny import corpus, write_pair
from torch_models import make_model, save

import specjax

torch = pytest.importorskip("torch")

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer  # noqa: E402

pytestmark = pytest.mark.slow

NEW_TOKENS = 24
SETTINGS: dict[str, dict[str, Any]] = {
    "penalty": {"repetition_penalty": 1.8},
    "reward": {"repetition_penalty": 0.7, "suppress_tokens": [1]},
    "ngrams": {"no_repeat_ngram_size": 2, "min_length": 12},
    "tokens once": {"no_repeat_ngram_size": 1, "encoder_no_repeat_ngram_size": 1},
    "bad words": {
        "bad_words_ids": [[1], [51], [85], [80, 80], [69, 77], [9, 33], [75, 75, 75], [77, 77]],
        "min_new_tokens": 9, "min_length": 20,
    },
    "forced": {
        "forced_bos_token_id": 6, "forced_eos_token_id": 1, "begin_suppress_tokens": [7, 6, 40],
        "suppress_tokens": list(range(30, 50)),
    },
    "biases": {
        "sequence_bias": [
            [[80], -6.0], [[9], 1.5], [[51], -2.0], [[75, 77], 4.0], [[80, 80, 80], 9.0],
        ],
        "encoder_repetition_penalty": 1.6,
    },
    "away from the prompt": {"encoder_repetition_penalty": 0.4, "bad_words_ids": [[80]]},
    "decay": {"exponential_decay_length_penalty": [3, 1.4], "min_new_tokens": 6},
    "all": {
        "sequence_bias": [[[9, 40], 3.0], [[17], 1.0]], "encoder_repetition_penalty": 1.3,
        "exponential_decay_length_penalty": [9, 1.2], "repetition_penalty": 1.2,
        "no_repeat_ngram_size": 3, "encoder_no_repeat_ngram_size": 2,
        "bad_words_ids": [[11], [12, 13]], "min_new_tokens": 8, "forced_bos_token_id": 9,
        "forced_eos_token_id": [1], "suppress_tokens": [3, 4], "begin_suppress_tokens": [5, 6],
    },
}  # fmt: skip
"""Small vocabularies and repetitive models: every setting changes what is said."""

PROMPTS = [[17, 40, 17, 40, 8, 1], [5, 9], [30, 31, 32, 33, 34, 30, 31], [90, 2, 90]]


FAMILIES: dict[str, tuple[int, dict[str, Any]]] = {
    "t5_v1_1": (102, {}),
    "llama": (5, {}),
    "bart": (4, {"eos_token_id": [2, 5], "tie_word_embeddings": False}),
    "m2m_100": (11, {"tie_word_embeddings": False}),  # its languages are forced first tokens
    "pegasus": (11, {}),  # whose files force its last token
    "gemma3_text": (4, {"eos_token_id": [1, 5, 60]}),
}
"""Seeds and changes to the shape, several ends among them."""


@pytest.fixture(scope="module", params=FAMILIES)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A random PyTorch model, the same one loaded here, and a random one to draft for it."""
    family, folder = request.param, tmp_path_factory.mktemp(request.param)
    seed, changes = FAMILIES[family]
    theirs = make_model(family, seed, **changes)
    save(family, theirs, folder)
    save(family, make_model(family, seed + 1, **changes), folder / "drafter")
    return theirs, specjax.load(folder), specjax.load(folder / "drafter")


def their_tokens(model: Any, prompt: list[int], settings: dict[str, Any]) -> list[int]:
    tokens = torch.tensor([prompt])
    made = model.generate(
        tokens, attention_mask=torch.ones_like(tokens), do_sample=False, num_beams=1,
        max_new_tokens=NEW_TOKENS, use_cache=False, **settings,
    )  # fmt: skip
    return made[0, 1 if model.config.is_encoder_decoder else len(prompt) :].tolist()


CHAIN = {"drafter": "neural", "length": 3}
DRAFTED = {
    "tree": {"drafter": "neural", "widths": (2, 2)},
    "copies": {"drafter": "prompt_lookup", "length": 3},
    "cascade": {"drafter": "cascade", "drafters": ("drafter",), "matrix": ((2,),)},
}


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [*(("chain", name) for name in SETTINGS), *((name, "all") for name in DRAFTED)],
)
def test_greedy_tokens_are_those_of_transformers(pair: Any, strategy: str, settings: str) -> None:
    theirs, target, drafter = pair
    settings = SETTINGS[settings]
    expected = [their_tokens(theirs, prompt, settings) for prompt in PROMPTS]
    generator = specjax.Generator(
        target, {"drafter": drafter}, specjax.strategy(**DRAFTED.get(strategy, CHAIN)),
        max_new_tokens=NEW_TOKENS, generation=settings,
    )  # fmt: skip
    assert generator(PROMPTS).tokens == expected


GUIDED = {"guidance_scale": 1.5, "repetition_penalty": 1.2, "sequence_bias": [[[9, 40], 2.0]]}
WAYS = {
    "alone": {},
    "chain": CHAIN,
    "early exit": {"drafter": "early_exit", "length": 2, "exit": 1},
}


@pytest.mark.parametrize("pair", ["llama", "gemma3_text"], indirect=True)
@pytest.mark.parametrize("way", [*WAYS, "tree"])
def test_a_guided_target_says_the_tokens_of_transformers(pair: Any, way: str) -> None:
    """Alone, and with all kinds of drafts."""
    theirs, target, drafter = pair
    expected = [their_tokens(theirs, prompt, GUIDED) for prompt in PROMPTS]
    free = {name: value for name, value in GUIDED.items() if name != "guidance_scale"}
    assert expected != [their_tokens(theirs, prompt, free) for prompt in PROMPTS]
    generator = specjax.Generator(
        target, {"drafter": drafter}, specjax.strategy(**(WAYS | DRAFTED)[way]),
        max_new_tokens=NEW_TOKENS, generation=GUIDED,
    )  # fmt: skip
    assert generator(PROMPTS).tokens == expected


def on_states(target: Any) -> dict[str, Any]:
    """A feature drafter and heads for a target, drawn at random, as arguments of a generator."""
    config, ids = target.model.config, tuple(range(0, target.model.info.vocab_size, 2))
    if target.model.info.start_token is None:
        read = target.model.info.vocab_size, config.d_model, (1, 2), ids
        drafter = without_encoder(*read, None, target.model.info.eos)
    else:
        drafter = on_t5(config, (1, 2), ids)
    heads = heads_on_target(3, config.d_model, False)
    return {
        "drafters": {"drafter": specjax.LoadedModel(*drafter)},
        "tables": {"heads": heads},
    }


@pytest.mark.parametrize("pair", ["t5_v1_1", "llama"], indirect=True)
@pytest.mark.parametrize(
    "drafting",
    [
        {"drafter": "eagle", "length": 3},
        {"drafter": "eagle", "widths": (2, 2), "nodes": 4},
        {"drafter": "medusa", "widths": (2, 2), "model": "target"},
    ],
    ids=lambda drafting: drafting["drafter"],
)
def test_drafters_of_the_targets_states_change_none_of_them(pair: Any, drafting: Any) -> None:
    theirs, target, _ = pair
    guided = {} if target.model.info.start_token is not None else {"guidance_scale": 1.5}
    settings = SETTINGS["all"] | guided
    generator = specjax.Generator(
        target, **on_states(target), strategy=specjax.strategy(**drafting),
        max_new_tokens=NEW_TOKENS, generation=settings,
    )  # fmt: skip
    expected = [their_tokens(theirs, prompt, settings) for prompt in PROMPTS]
    assert generator(PROMPTS).tokens == expected


def test_the_settings_change_what_is_said(pair: Any) -> None:
    theirs, *_ = pair
    plain = [their_tokens(theirs, prompt, {}) for prompt in PROMPTS]
    for name, settings in SETTINGS.items():
        assert [their_tokens(theirs, prompt, settings) for prompt in PROMPTS] != plain, name


def test_a_saved_model_generates_under_the_settings_it_came_with(pair: Any, tmp_path: Path) -> None:
    """And draws as its checkpoint says, where it does."""
    theirs, target, _ = pair
    said = {**SETTINGS["all"], "do_sample": True, "top_k": 1}
    dataclasses.replace(target, generation=said).save(tmp_path)
    again = type(theirs).from_pretrained(tmp_path).eval()
    assert again.generation_config.do_sample and again.generation_config.top_k == 1
    for prompt in PROMPTS:
        assert their_tokens(again, prompt, {}) == their_tokens(theirs, prompt, SETTINGS["all"])


def test_texts_end_at_stop_strings_as_in_transformers(tmp_path: Path) -> None:
    write_pair(tmp_path)
    target, drafter = (specjax.load(tmp_path / name) for name in ("target", "drafter"))
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "target").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "target")
    prompts = [pair.source for pair in corpus()[:6]]
    given = {"max_new_tokens": NEW_TOKENS, "strategy": specjax.speculative(length=3)}
    free = specjax.Generator(target, {"drafter": drafter}, **given)(prompts)
    # Parts of some texts that begin and end inside of tokens, and one that is nowhere.
    strings = [text[at : at + 4] for at, text in zip((5, 9, 2), free.texts, strict=False)]
    settings = {"stop_strings": [*strings, "nowhere"]}
    stopped = specjax.Generator(target, {"drafter": drafter}, generation=settings, **given)(prompts)
    for prompt, tokens in zip(prompts, stopped.tokens, strict=True):
        inputs = tokenizer(prompt, return_tensors="pt")
        made = theirs.generate(
            **inputs, do_sample=False, num_beams=1, max_new_tokens=NEW_TOKENS, use_cache=False,
            tokenizer=tokenizer, **settings,
        )  # fmt: skip
        assert tokens == made[0, 1:].tolist()
    assert sum(map(len, stopped.tokens)) < sum(map(len, free.tokens))
