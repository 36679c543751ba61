"""Golden encoder-decoder checkpoints and what PyTorch computed of them (tests/golden/make_*.py)."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from specjax.hf.huggingface import load
from specjax.models.base import Cache, LanguageModel, Output, Params, PromptReading

GOLDEN = Path(__file__).parents[1] / "golden"
TOLERANCE = 1e-4
CHUNK = 5


@dataclasses.dataclass(frozen=True)
class Golden:
    """A golden checkpoint, its expected outputs and the compiled calls that the tests share."""

    model: LanguageModel
    params: Params
    source: np.ndarray  # [B, S]
    source_length: np.ndarray  # [B]
    target: np.ndarray  # [B, T]
    logits: np.ndarray  # [B, T, V]
    greedy: np.ndarray  # [B, T]
    extend: Callable[..., tuple[Output, Cache]]
    capacity: int

    @functools.cached_property
    def _begin(self) -> Callable[..., tuple[Cache, PromptReading]]:
        return jax.jit(functools.partial(self.model.start, capacity=self.capacity))

    def start(self) -> Cache:
        """The cache before the first decoder token."""
        return self._begin(self.params, self.source, self.source_length)[0]

    def pad_source(self, count: int) -> np.ndarray:
        """The source with `count` more columns of nonsense behind every row's end."""
        return np.pad(self.source, ((0, 0), (0, count)), constant_values=7)


def read_golden(name: str) -> Golden:
    """A golden checkpoint by the name of its folder."""
    checkpoint, expected = load(GOLDEN / name), load_file(GOLDEN / name / "expected.safetensors")
    extend = jax.jit(checkpoint.model.extend)
    capacity = expected["target"].shape[1] + CHUNK
    return Golden(checkpoint.model, checkpoint.params, **expected, extend=extend, capacity=capacity)


def same(found: jax.Array, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=TOLERANCE)


def teacher_forced(golden: Golden, source: np.ndarray) -> jax.Array:
    batch = {"prompt": source, "prompt_length": golden.source_length, "inputs": golden.target}
    return golden.model.teach(golden.params, batch)[0]


def chunk_at(golden: Golden, begin: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """The next CHUNK tokens of every row, those beyond `keep` replaced by wrong ones."""
    width = ((0, 0), (0, CHUNK))
    step = np.arange(CHUNK)
    right = np.pad(golden.target, width)[np.arange(len(begin))[:, None], begin[:, None] + step]
    wrong = (right + 1 + step) % golden.model.info.vocab_size
    return np.where(step < keep[:, None], right, wrong).astype(np.int32)


def check_ragged_chunks(golden: Golden) -> None:
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
