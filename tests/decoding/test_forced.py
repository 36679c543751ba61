"""Texts that begin with several tokens, and prompts that are heard and not read."""

from __future__ import annotations

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, inputs, run, texts
from scripted import (
    WIDTH,
    PrefixModel,
    chi_square,
    count_outputs,
    prefix_params,
    sequence_distribution,
)

from specjax.contracts.registry import DRAFTERS
from specjax.decoding.beams.loop import search
from specjax.decoding.beams.strategy import beam_search, scoring
from specjax.decoding.loop import generate
from specjax.decoding.strategy import Strategy, strategy
from specjax.models.base import Cache, PromptReading
from specjax.models.info import Frames
from specjax.training.ngram import fit

V, EOS = 5, 1
FORCED = (3, 4)
MODEL = PrefixModel(V, eos=(EOS,), forced=FORCED)
MODELS = (("target", MODEL), ("drafter", MODEL))
PARAMS = {
    "target": prefix_params(V, seed=1),
    "drafter": prefix_params(V, seed=2, scale=0.7),
    "ngram": fit([[2, 3, 4, 1], [3, 3, 2, 1]], V, start_token=4),
}
SPECULATIVE = strategy(drafter="neural", length=2)
PROMPTS = [[3, 2, 4, 2], [2, 2], [4, 3, 2], [3]]


def greedy(prompt: list[int], limit: int, head: tuple[int, ...] = (0, *FORCED)) -> list[int]:
    """The text behind the tokens of `head`, without a cache."""
    text: list[int] = []
    while len(text) < limit and EOS not in text:
        logits = MODEL.logits(PARAMS["target"], prompt, (*head, *text))
        text.append(int(np.argmax(logits)))
    return text


@pytest.mark.parametrize(
    "fields",
    [
        {"drafter": "none"},
        {"drafter": "neural", "length": 2},
        pytest.param({"drafter": "neural", "widths": (2, 2)}, marks=pytest.mark.slow),
    ],
    ids=["none", "chain", "tree"],
)
def test_greedy_texts_are_those_behind_the_forced_tokens(fields):
    out = run(MODELS, PARAMS, strategy(**fields), PROMPTS, 8)
    assert texts(out) == [greedy(prompt, 8) for prompt in PROMPTS]
    assert np.asarray(out.begin).tolist() == [1 + len(FORCED)] * len(PROMPTS)


@pytest.mark.slow
def test_sampling_keeps_the_law_behind_the_forced_tokens():
    expected = sequence_distribution(
        MODEL, PARAMS["target"], PROMPTS[0], (0, *FORCED), 3, (1.0, 0, 1.0)
    )
    sampled = strategy(drafter="neural", length=2, temperature=1.0)
    out = run(MODELS, PARAMS, sampled, [PROMPTS[0]] * 20_000, 3, seed=7)
    assert chi_square(count_outputs(texts(out)), expected) > 1e-3


def test_a_beam_search_begins_behind_them_too():
    made = beam_search(beams=1, early_stopping=True).decoder(MODELS, 8)
    prompt, length, _, limit = inputs(PROMPTS, 8)
    found = search(made, PARAMS, prompt, length, limit > 0, scoring(8, 1.0, "True"))
    first = np.asarray(found.tokens)[:, 1, 0].tolist()
    assert first == [greedy(prompt, 8)[0] for prompt in PROMPTS]


def test_what_is_left_open_the_target_chooses_for_each_row():
    """The likeliest of some tokens behind the start token, as Whisper detects a language."""
    options = (2, 3, 4)
    model = dataclasses.replace(MODEL, forced=(options, 4))
    out = run((("target", model), ("drafter", model)), PARAMS, SPECULATIVE, PROMPTS, 8)
    heads = np.asarray(out.tokens)[:, :3].tolist()
    for prompt, head, text in zip(PROMPTS, heads, texts(out), strict=True):
        logits = model.logits(PARAMS["target"], prompt, (0,))
        assert head == [0, max(options, key=lambda token: logits[token]), 4]  # noqa: B023
        assert text == greedy(prompt, 8, tuple(head))
    assert len({head[1] for head in heads}) > 1


@dataclasses.dataclass(frozen=True)
class Listening(PrefixModel):
    """A `PrefixModel` whose source is the sum of what it hears."""

    @property
    def info(self):
        return dataclasses.replace(super().info, input=Frames(4, WIDTH, 1))

    def start(
        self, params, prompt, prompt_length, capacity, *, features=(), ahead=None, longest=None
    ):
        tokens = jnp.full((len(prompt), capacity), -1, jnp.int32)
        source = jnp.sum(prompt, axis=1)
        cache = Cache({"tokens": tokens, "source": source}, jnp.zeros_like(prompt_length))
        return cache, PromptReading(source)


@pytest.mark.slow
def test_what_is_heard_is_no_text_to_copy_from():
    """A frame is no token: copying sees an empty prompt, and the texts stay the target's."""
    model = Listening(V, eos=(EOS,))
    models = (("target", model), ("drafter", model))
    heard = np.random.default_rng(0).normal(size=(3, 4, WIDTH)).astype(np.float32)
    given = jnp.asarray(heard), jnp.full(3, 4), *inputs(PROMPTS[:3], 12)[2:]

    def decode_forced(chosen: Strategy) -> list[list[int]]:
        made = decoder(models, chosen, 12)
        params = {name: PARAMS[name] for name in made.inputs}
        return texts(generate(made, params, *given, chosen.options()))

    baseline = decode_forced(Strategy())
    assert len({tuple(row) for row in baseline}) == 3  # it did listen
    for drafter in ("prompt_lookup", "neural"):
        chosen = strategy(drafter=drafter, **DRAFTERS[drafter].example)
        assert decode_forced(chosen) == baseline


def test_models_that_read_something_else_than_the_target_are_refused():
    listening = Listening(V, eos=(EOS,))
    models = (("target", listening), ("drafter", MODEL))
    with pytest.raises(ValueError, match="reads tokens, the target 4 frames of 6 numbers"):
        decoder(models, SPECULATIVE, 8)
