"""T5 and its relatives against logits that PyTorch computed once, on every call path.

tests/golden/make_t5.py and make_t5gemma.py made them.
"""

from __future__ import annotations

import numpy as np
import pytest
from decodes import run, texts
from golden_models import Golden, check_ragged_chunks, read_golden, same, teacher_forced

from specjax.decoding.strategy import autoregressive

FAST = ("t5_v1_0", "t5_v1_1", "mt5", "umt5", "t5gemma")
SLOW = ("longt5", "switch_transformers", "t5gemma_unequal", "t5gemma2")


def shapes(*fast: str) -> list:
    """All of them; those that are not named are slow tests."""
    slow = pytest.mark.slow
    return [pytest.param(n, marks=() if n in fast else slow) for n in FAST + SLOW]


def some(*fast: str) -> pytest.MarkDecorator:
    """Other fast ones than most tests have."""
    return pytest.mark.parametrize("golden", shapes(*fast), indirect=True)


@pytest.fixture(scope="module", params=shapes(*FAST))
def golden(request: pytest.FixtureRequest) -> Golden:
    return read_golden(request.param)


def test_teacher_forced_logits_equal_pytorch(golden: Golden) -> None:
    same(teacher_forced(golden, golden.source), golden.logits)


@pytest.mark.slow
@some("t5_v1_1", "umt5")
def test_one_call_over_all_tokens_equals_pytorch(golden: Golden) -> None:
    output, cache = golden.extend(golden.params, golden.target, golden.start())
    same(output.logits, golden.logits)
    assert cache.length.tolist() == [golden.target.shape[1]] * len(golden.target)


@some("t5_v1_1", "t5gemma")
def test_one_call_per_token_equals_pytorch(golden: Golden) -> None:
    cache = golden.start()
    for step in range(golden.target.shape[1]):
        output, cache = golden.extend(golden.params, golden.target[:, step : step + 1], cache)
        same(output.logits[:, 0], golden.logits[:, step])


@some("t5_v1_1", "umt5")
def test_ragged_chunks_over_stale_slots_equal_pytorch(golden: Golden) -> None:
    check_ragged_chunks(golden)


@some("t5_v1_1")
def test_at_picks_the_fed_positions_asked_for(golden: Golden) -> None:
    at = np.array([[0, 11, 23], [5, 5, 2]], np.int32)
    output, cache = golden.extend(golden.params, golden.target, golden.start(), at=at)
    same(output.logits, np.take_along_axis(golden.logits, at[..., None], axis=1))
    assert cache.length.tolist() == [golden.target.shape[1]] * len(golden.target)


@pytest.mark.slow
@pytest.mark.parametrize("golden", ["t5_v1_1", "t5gemma", "longt5"], indirect=True)
def test_padding_the_source_further_changes_nothing(golden: Golden) -> None:
    longer = golden.pad_source(13)
    same(teacher_forced(golden, longer), golden.logits)
    read = longer, golden.source_length, golden.capacity
    cache, _ = golden.model.start(golden.params, *read)
    same(golden.extend(golden.params, golden.target, cache)[0].logits, golden.logits)


@some("t5_v1_0", "mt5")
def test_greedy_decoding_continues_as_pytorch(golden: Golden) -> None:
    prompts = [row[:n].tolist() for row, n in zip(golden.source, golden.source_length, strict=True)]
    models, params = (("target", golden.model),), {"target": golden.params}
    generation = run(models, params, autoregressive(), prompts, golden.greedy.shape[1])
    assert texts(generation) == golden.greedy.tolist()
