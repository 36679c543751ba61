"""Rules of timestamps along drafts, against the same written out token by token."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from decodes import decoder, inputs, texts
from scripted import PrefixModel, chi_square, count_outputs, prefix_params, sequence_distribution

from specjax.decoding.loop import generate
from specjax.decoding.strategy import strategy
from specjax.logits.timestamps import Timestamps

V, EOS, FIRST = 8, 3, 5  # words 0 to 2, no times 4, times 5 to 7
RULES = Timestamps(True, first=FIRST, latest=FIRST + 1, eos=EOS)
MODEL = PrefixModel(V, eos=(EOS,))
MODELS = (("target", MODEL), ("drafter", MODEL))
PARAMS = {"target": prefix_params(V, seed=4), "drafter": prefix_params(V, seed=5, scale=0.7)}
PROMPTS = [[3, 2, 4, 2], [2, 2], [4, 3, 2], [0], [5, 1], [7, 7, 1]]


def apply_rules(logits: np.ndarray, text: tuple[int, ...]) -> np.ndarray:
    """Logits [V] behind what was written, by transformers' rules one after another."""
    made = np.array(logits, np.float64)
    made[FIRST - 1] = -np.inf
    timed = bool(text) and text[-1] >= FIRST
    closed = len(text) < 2 or text[-2] >= FIRST
    if timed and closed:
        made[FIRST:] = -np.inf
    elif timed:
        made[:EOS] = -np.inf
    times = [token for token in text if token >= FIRST]
    if times:
        made[FIRST : times[-1] + (0 if timed and not closed else 1)] = -np.inf
    if not text:
        made[:FIRST] = -np.inf
        made[RULES.latest + 1 :] = -np.inf
    weights = np.exp(made - made.max())
    if np.log(max(weights[FIRST:].sum(), 1e-300)) > np.log(max(weights[:FIRST].max(), 1e-300)):
        made[:FIRST] = -np.inf
    return made


@dataclasses.dataclass(frozen=True)
class Ruled:
    """A `PrefixModel` whose law is that under the rules, for `sequence_law`."""

    eos: tuple[int, ...] = (EOS,)

    def logits(self, params, source, prefix) -> np.ndarray:
        return apply_rules(MODEL.logits(params, source, prefix), tuple(prefix[1:]))


def decode(prompts, limit: int, **fields) -> list[list[int]]:
    chosen = strategy(drafter="neural", **fields)
    made = decoder(MODELS, chosen, limit)
    params = {model: PARAMS[model] for model in made.inputs}
    options = chosen.options().replace(processors=(RULES,))
    return texts(generate(made, params, *inputs(prompts, limit, 7), options))


def greedy(prompt: list[int], limit: int) -> list[int]:
    text: list[int] = []
    while len(text) < limit and EOS not in text:
        text.append(int(np.argmax(Ruled().logits(PARAMS["target"], prompt, (0, *text)))))
    return text


@pytest.mark.parametrize(
    "shape",
    [{"length": 2}, pytest.param({"widths": (2, 2)}, marks=pytest.mark.slow)],
    ids=["chain", "tree"],
)
def test_greedy_texts_keep_the_rules(shape):
    found = decode(PROMPTS, 12, **shape)
    assert found == [greedy(prompt, 12) for prompt in PROMPTS]
    assert all(FIRST <= text[0] <= RULES.latest for text in found)
    assert sum(token >= FIRST for text in found for token in text) > len(found)


@pytest.mark.slow
def test_sampling_keeps_the_law_under_the_rules():
    expected = sequence_distribution(Ruled(), PARAMS["target"], PROMPTS[0], (0,), 5, (1.0, 0, 1.0))
    found = decode([PROMPTS[0]] * 20_000, 5, length=2, temperature=1.0)
    assert chi_square(count_outputs(found), expected) > 1e-3


def test_a_target_that_does_not_listen_writes_no_times():
    with pytest.raises(ValueError, match="only a speech model writes timestamps"):
        Timestamps(True).bind_model(MODEL, ())
