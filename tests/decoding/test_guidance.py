"""Guided targets: their law by chi-square, their greedy texts, and what refuses them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decodes import run, texts
from feature_drafters import without_encoder
from scripted import (
    WIDTH,
    PrefixModel,
    chi_square,
    count_outputs,
    prefix_params,
    sequence_distribution,
)
from slow_cases import some_slow

import specjax
from specjax.acceptance import write
from specjax.decoding.strategy import Strategy, strategy
from specjax.models.guided import GuidedModel
from specjax.runtime.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden"
V, EOS, LENGTH, SCALE = 5, 1, 3, 1.7
SOURCE = (3, 2, 4, 2)
MODEL = PrefixModel(V, eos=(EOS,), start_token=None)
PARAMS = {"target": prefix_params(V, seed=1), "drafter": prefix_params(V, seed=2, scale=0.7)}
P_VALUE = 1e-3
DRAFTING: dict[str, dict[str, Any]] = {
    "chain": {"drafter": "neural", "length": 2},
    "tree": {"drafter": "neural", "widths": (2, 2)},
    "copies": {"drafter": "prompt_lookup", "length": 2},
    "first layers": {"drafter": "early_exit", "length": 2, "exit": 1},
    "states": {"drafter": "eagle", "length": 2},
}


@dataclasses.dataclass(frozen=True)
class UnderGuidance:
    """A `PrefixModel` whose law is guided, for `sequence_law`."""

    model: PrefixModel

    @property
    def eos(self) -> tuple[int, ...]:
        return self.model.info.eos

    def logits(self, params: Any, source: Any, prefix: Any) -> np.ndarray:
        own, free = (
            logits - np.log(np.exp(logits).sum())
            for logits in (
                self.model.logits(params, (), prefix),
                self.model.logits(params, (), prefix[len(source) - 1 :]),
            )
        )
        return free + SCALE * (own - free)

    def greedy(self, params: Any, source: Any, most: int) -> list[int]:
        text = list(source)
        while len(text) < len(source) + most and text[len(source) :][-1:] != [EOS]:
            text.append(int(np.argmax(self.logits(params, source, tuple(text)))))
        return text[len(source) :]


def decode_guided(drawn: Strategy, prompts: Any, limit: int) -> list[list[int]]:
    second = MODEL, PARAMS["drafter"]
    if drawn.drafter.spec.features:
        second = without_encoder(V, WIDTH, (1,), (1, 2, 4), None, (EOS,), kind=drawn.drafter.drives)
    models = ("target", GuidedModel(MODEL, SCALE)), ("drafter", second[0])
    return texts(run(models, PARAMS | {"drafter": second[1]}, drawn, prompts, limit, seed=7))


@pytest.mark.slow
@pytest.mark.parametrize("drafting", DRAFTING)
def test_sampling_keeps_the_guided_law(drafting: str, rows: int) -> None:
    found = count_outputs(
        decode_guided(strategy(**DRAFTING[drafting], temperature=1.0), [SOURCE] * rows, LENGTH)
    )
    plain = (1.0, 0, 1.0)
    guided, own = (
        sequence_distribution(model, PARAMS["target"], SOURCE, SOURCE, LENGTH, plain)
        for model in (UnderGuidance(MODEL), MODEL)
    )
    assert chi_square(found, guided) > P_VALUE
    assert chi_square(found, own) < 1e-6


@pytest.mark.parametrize(
    "drafting",
    some_slow(DRAFTING, "tree"),
)
def test_greedy_texts_are_those_of_the_guided_law(drafting: str) -> None:
    prompts = [[3, 2, 4, 2], [2, 2], [4], [4, 4, 2, 3]]
    under = UnderGuidance(MODEL)
    expected = [under.greedy(PARAMS["target"], prompt, 12) for prompt in prompts]
    assert decode_guided(strategy(**DRAFTING[drafting]), prompts, 12) == expected


def test_a_generator_guides_its_target_as_the_settings_say() -> None:
    target = specjax.load(GOLDEN / "llama", generation={"guidance_scale": 1.5})
    assert specjax.Generator(target).decoder.target_model == GuidedModel(target.model, 1.5)
    for scale in (None, 1, 1.0):
        free = specjax.Generator(target, generation={"guidance_scale": scale})
        assert free.decoder.target_model == target.model
    twice = dataclasses.replace(target, model=GuidedModel(target.model, 1.5))
    other = specjax.Generator(twice, generation={"guidance_scale": 2})
    assert other.decoder.target_model == GuidedModel(target.model, 2.0)


def test_what_cannot_be_guided_is_refused_in_a_sentence() -> None:
    llama, t5 = (specjax.load(GOLDEN / name) for name in ("llama", "t5_v1_1"))
    said = {"guidance_scale": 1.5}
    with pytest.raises(UserError, match="guidance_scale is 1.5; it must be None for a target with"):
        specjax.Generator(t5, generation=said)
    with pytest.raises(UserError, match="guidance_scale is 1.5; it must be None here: only decode"):
        specjax.BeamGenerator(llama, generation=said)
    with pytest.raises(UserError, match="the target is guided.* CALM"):
        specjax.Generator(llama, {}, strategy(reader="calm", threshold=0.5), generation=said)
    with pytest.raises(UserError, match="guidance_scale is 1.5; it must be None: acceptance"):
        write(dataclasses.replace(llama, generation=said), [[3, 4]])
    for value in (-0.5, "much", float("nan")):
        with pytest.raises(UserError, match="guidance_scale is .*; it must be a number of at leas"):
            specjax.Generator(llama, generation={"guidance_scale": value})
