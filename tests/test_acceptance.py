"""The analytic acceptance rate: text drawn under the cuts that a strategy has."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest

import specjax
from specjax.acceptance import acceptance_on, write
from specjax.loading import LoadedModel
from specjax.runtime.errors import UserError
from specjax.sampling import CUTS

GOLDEN = Path(__file__).parent / "golden"
PROMPTS = [[3, 4, 5], [7, 2]]
SHORT = {"max_new_tokens": 6, "batch_size": 2, "bucket": 8}
GREEDY_CUTS = {"min_p": 1.0, "typical_p": 1e-6, "epsilon_cutoff": 0.999, "eta_cutoff": 0.999}
"""Bounds at which few tokens stay: under all but typical sampling only the likeliest."""


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    return specjax.load(GOLDEN / "llama")


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["min_p", "epsilon_cutoff"])
def test_a_cut_that_leaves_the_likeliest_token_is_greedy(cut: str, target: LoadedModel) -> None:
    params = jax.tree.map(lambda x: x * 1.1, target.params)
    drafter = LoadedModel(target.model, params, name="drafter")
    cuts = {"temperature": 1.0, cut: GREEDY_CUTS[cut]}
    drawn, greedy = (write(target, PROMPTS, **SHORT, **each) for each in (cuts, {}))
    for (_, one), (_, other) in zip(drawn.batches, greedy.batches, strict=True):
        np.testing.assert_array_equal(one.tokens, other.tokens)
    found, expected = (acceptance_on(each, target, drafter) for each in (drawn, greedy))
    assert found == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUTS)
def test_every_cut_is_one_of_written_text(cut: str, target: LoadedModel) -> None:
    written = write(target, PROMPTS[:1], **SHORT, temperature=1.0, **{cut: GREEDY_CUTS[cut]})
    assert set(written.options.sampling.cuts) == {cut}


def test_what_is_no_field_of_drawing_is_refused(target: LoadedModel) -> None:
    with pytest.raises(UserError, match="min_q"):
        write(target, PROMPTS, temperature=1.0, min_q=0.5)
