"""T5 against logits that PyTorch computed once (tests/golden/make_t5.py), on every call path."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run, texts
from safetensors.numpy import load_file

from specjax.checkpoints.huggingface import load
from specjax.decoding.strategy import autoregressive
from specjax.models.base import Cache, Output, Params
from specjax.models.t5 import T5

GOLDEN = Path(__file__).parents[1] / "golden"
SHAPES = ("t5_v1_0", "t5_v1_1", "mt5")
TOLERANCE = 1e-4
CHUNK = 5


@dataclasses.dataclass(frozen=True)
class Golden:
    """A golden checkpoint, its expected outputs and the compiled calls that the tests share."""

    model: T5
    params: Params
    source: np.ndarray  # [B, S]
    source_length: np.ndarray  # [B]
    target: np.ndarray  # [B, T]
    logits: np.ndarray  # [B, T, V]
    greedy: np.ndarray  # [B, T]
    extend: Callable[..., tuple[Output, Cache]]
    capacity: int

    def start(self) -> Cache:
        """The cache before the first decoder token."""
        begin = jax.jit(functools.partial(self.model.start, capacity=self.capacity))
        return begin(self.params, self.source, self.source_length)[0]

    def padded(self, count: int) -> np.ndarray:
        """The source with `count` more columns of nonsense behind every row's end."""
        return np.pad(self.source, ((0, 0), (0, count)), constant_values=7)


@pytest.fixture(scope="module", params=SHAPES)
def golden(request: pytest.FixtureRequest) -> Golden:
    checkpoint = load(GOLDEN / request.param)
    expected = load_file(GOLDEN / request.param / "expected.safetensors")
    extend = jax.jit(checkpoint.model.extend)
    capacity = expected["target"].shape[1] + CHUNK
    return Golden(checkpoint.model, checkpoint.params, **expected, extend=extend, capacity=capacity)


def same(found: jax.Array, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=TOLERANCE)


def teacher_forced(golden: Golden, source: np.ndarray) -> jax.Array:
    batch = {"prompt": source, "prompt_length": golden.source_length, "inputs": golden.target}
    return golden.model.teach(golden.params, batch)[0]


def test_teacher_forced_logits_equal_pytorch(golden: Golden) -> None:
    same(teacher_forced(golden, golden.source), golden.logits)


def test_one_call_over_all_tokens_equals_pytorch(golden: Golden) -> None:
    output, cache = golden.extend(golden.params, golden.target, golden.start())
    same(output.logits, golden.logits)
    assert cache.length.tolist() == [golden.target.shape[1]] * len(golden.target)


def test_one_call_per_token_equals_pytorch(golden: Golden) -> None:
    cache = golden.start()
    for step in range(golden.target.shape[1]):
        output, cache = golden.extend(golden.params, golden.target[:, step : step + 1], cache)
        same(output.logits[:, 0], golden.logits[:, step])


def chunk_at(golden: Golden, begin: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """The next CHUNK tokens of every row, those beyond `keep` replaced by wrong ones."""
    width = ((0, 0), (0, CHUNK))
    step = np.arange(CHUNK)
    right = np.pad(golden.target, width)[np.arange(len(begin))[:, None], begin[:, None] + step]
    wrong = (right + 1 + step) % golden.model.vocab_size
    return np.where(step < keep[:, None], right, wrong).astype(np.int32)


def test_ragged_chunks_over_stale_slots_equal_pytorch(golden: Golden) -> None:
    """Rows keep different shares of every chunk; what they reject stays behind as stale slots."""
    rows, size = golden.target.shape
    cache, begin = golden.start(), np.zeros(rows, np.int32)
    rng = np.random.default_rng(0)
    rounds = 0
    while np.any(begin < size):
        keep = np.minimum(rng.integers(0, CHUNK + 1, rows), size - begin)
        output, cache = golden.extend(golden.params, chunk_at(golden, begin, keep), cache)
        for row in range(rows):
            there = slice(begin[row], begin[row] + keep[row])
            same(output.logits[row, : keep[row]], golden.logits[row, there])
        begin = (begin + keep).astype(np.int32)
        cache = cache.replace(length=jnp.asarray(begin))
        rounds += 1
    assert rounds > size // CHUNK + 1  # or nothing was ever rejected


def test_at_picks_the_fed_positions_asked_for(golden: Golden) -> None:
    at = np.array([[0, 11, 23], [5, 5, 2]], np.int32)
    output, cache = golden.extend(golden.params, golden.target, golden.start(), at=at)
    same(output.logits, np.take_along_axis(golden.logits, at[..., None], axis=1))
    assert cache.length.tolist() == [golden.target.shape[1]] * len(golden.target)


@pytest.mark.parametrize("golden", ["t5_v1_1"], indirect=True)
def test_padding_the_source_further_changes_nothing(golden: Golden) -> None:
    longer = golden.padded(13)
    same(teacher_forced(golden, longer), golden.logits)
    read = longer, golden.source_length, golden.capacity
    cache, _ = golden.model.start(golden.params, *read)
    same(golden.extend(golden.params, golden.target, cache)[0].logits, golden.logits)


def test_greedy_decoding_continues_as_pytorch(golden: Golden) -> None:
    prompts = [row[:n].tolist() for row, n in zip(golden.source, golden.source_length, strict=True)]
    models, params = (("target", golden.model),), {"target": golden.params}
    generation = run(models, params, autoregressive(), prompts, golden.greedy.shape[1])
    assert texts(generation) == golden.greedy.tolist()
