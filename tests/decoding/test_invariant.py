"""One width for all calls of the target: the same greedy tokens to the bit in bfloat16 too."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, inputs, texts
from exits import MODELS, PARAMS, V

from specjax.decoding.loop import generate
from specjax.decoding.state import Decoder
from specjax.decoding.strategy import (
    Strategy,
    autoregressive,
    bild,
    calm,
    early_exit,
    fitting_widths,
    speculative,
)
from specjax.drafting.copying import PromptLookup
from specjax.drafting.ngram import NGram

LIMIT, WIDTH, ROWS = 24, 7, 6


def halved(kind: str):
    """One of the small models in bfloat16, with parameters."""
    model, params = MODELS[kind], PARAMS[kind]
    config = dataclasses.replace(model.config, dtype=jnp.bfloat16)
    return type(model)(config), jax.tree.map(lambda x: x.astype(jnp.bfloat16), params)


def prompts(rows: int = 2 * ROWS) -> list[list[int]]:
    rng = np.random.default_rng(3)
    return [rng.integers(2, V, 8).tolist() for _ in range(rows)]


def decode(kind: str, strategy: Strategy, rows: list[list[int]], width: int = WIDTH):
    """Generated tokens of rows, in batches of `ROWS` filled up with rows that decode nothing."""
    target, params = halved(kind)
    trees = {"target": params, "drafter": jax.tree.map(lambda x: x * 1.1, params)}
    trees["ngram"] = {"best": jnp.arange(V) % 5 + 2}
    models = (("target", target), ("drafter", target))
    made = dataclasses.replace(decoder(models, strategy, LIMIT), invariant=width)
    found = []
    for first in range(0, len(rows), ROWS):
        own = rows[first : first + ROWS]
        prompt, length, keys, limit = inputs([*own, *[[2] * 8] * (ROWS - len(own))], LIMIT)
        limit = jnp.where(jnp.arange(ROWS) < len(own), limit, 0)
        kept = {name: trees[name] for name in made.inputs}
        made_here = generate(made, kept, prompt, length, keys, limit, strategy.options())
        found += texts(made_here)[: len(own)]
    return found


STRATEGIES = {
    "speculative": speculative(4),
    "fitting": dataclasses.replace(speculative(4), widths=fitting_widths(speculative(4).drafter)),
    "bigram": Strategy(NGram(2)),
    "prompt_lookup": Strategy(PromptLookup(6)),
    "early_exit": early_exit(1, 3),
    "bild": bild(0.3, 0.0, length=5, verify_eos=True),  # what is not the target's argmax is dropped
}


@pytest.fixture(scope="module")
def alone():
    """What the target decodes alone, by family, at one width."""
    return {kind: decode(kind, autoregressive(), prompts()) for kind in MODELS}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("llama", name) for name in STRATEGIES),
        *(pytest.param("t5", name, marks=pytest.mark.slow) for name in STRATEGIES),
    ],
)
def test_greedy_lossless_strategies_decode_the_baseline_s_tokens(alone, kind, name):
    assert decode(kind, STRATEGIES[name], prompts()) == alone[kind]


@pytest.mark.parametrize("kind", MODELS)
def test_without_one_width_a_call_s_width_changes_tokens(alone, kind):
    """Else the other tests would show nothing."""
    assert decode(kind, autoregressive(), prompts(), width=0) != alone[kind]


@pytest.mark.parametrize("kind", MODELS)
def test_a_row_alone_in_a_filled_batch_keeps_its_tokens(alone, kind):
    for index in (1, ROWS + 2):
        assert decode(kind, autoregressive(), prompts()[index : index + 1]) == [alone[kind][index]]


def made(strategy: Strategy, **more) -> Decoder:
    models = (("target", MODELS["llama"]), ("drafter", MODELS["llama"]))
    return Decoder(models, strategy.drafter, strategy.rule, LIMIT, calm=strategy.calm, **more)


def test_a_width_that_cannot_hold_a_draft_is_refused():
    with pytest.raises(ValueError, match="invariant is 4; it must be 0 .off. or at least 5"):
        made(speculative(4), invariant=4)
    assert made(speculative(4), invariant=5).buffer(8) == made(
        autoregressive(), invariant=5
    ).buffer(8)


def test_calm_is_refused():
    with pytest.raises(ValueError, match="invariant is 4; it must be 0 .off. under CALM"):
        made(calm(0.5), invariant=4)
