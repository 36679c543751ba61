"""Decoder-only families against logits that PyTorch computed once (tests/golden/make_causal.py)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run, texts
from safetensors.numpy import load_file
from slow_cases import some_slow

from specjax.decoding.strategy import Strategy, autoregressive, speculative
from specjax.drafting.copying import PromptLookup
from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.neural import Neural
from specjax.hf.huggingface import load, save
from specjax.models.base import Cache, Output, Params
from specjax.models.causal import Causal

GOLDEN = Path(__file__).parents[1] / "golden"
FAST = ("gpt2", "llama", "gemma3_text", "qwen3_moe")
SLOW = (
    "mistral", "qwen2", "qwen3", "gemma", "gemma2", "olmo2", "phi3", "phi4", "smollm3", "gpt_neox",
    "gpt2_scaled", "opt", "opt_350m", "mixtral", "cwm", "qwen2_moe", "qwen3_5_text", "glm4_moe",
    "gpt_oss", "deepseek_v2", "deepseek_v3",
    "olmo", "olmo3", "exaone4", "granite", "glm", "glm4", "cohere", "cohere2", "starcoder2",
    "stablelm", "phi", "falcon", "falcon_7b", "ministral", "ministral3", "gemma4_text",
    "gemma4_small",
    "qwen3_next", "qwen3_5_moe_text", "granitemoe", "granitemoeshared", "granitemoehybrid", "bamba",
    "recurrent_gemma", "phimoe", "llama4_text", "bloom", "mpt",
    "nemotron_h", "mistral4", "gemma3n_text",
)  # fmt: skip
"""Families whose own parts the fast tests see in whole texts, if at all."""
OWN_PARTS = (
    "qwen3_5_text", "gpt_oss", "deepseek_v3", "gemma4_text", "recurrent_gemma", "nemotron_h",
    "bloom", "phi", "cohere2", "opt_350m", "llama4_text", "mistral4",
)  # fmt: skip
"""Those that share least with others."""
FAMILIES = some_slow(FAST + SLOW, *FAST)
ONE_FAST = some_slow(FAST + SLOW, "llama")
TOLERANCE = 1e-4
PROMPT, CHUNK = 6, 5


@dataclasses.dataclass(frozen=True)
class Golden:
    """A golden checkpoint, its expected outputs and the compiled call that the tests share."""

    model: Causal
    params: Params
    tokens: np.ndarray  # [B, T]
    length: np.ndarray  # [B]
    logits: np.ndarray  # [B, T, V]
    greedy: np.ndarray  # [B, N]
    extend: Callable[..., tuple[Output, Cache]]
    folder: Path

    @property
    def capacity(self) -> int:
        return self.tokens.shape[1] + CHUNK

    def start(self, prompt_length: np.ndarray) -> Cache:
        """The cache after a ragged prefill of the leading tokens."""
        prompt = self.tokens[:, : prompt_length.max()]
        read = prompt, jnp.asarray(prompt_length), self.capacity
        return self.model.start(self.params, *read)[0]


@pytest.fixture(scope="module", params=FAMILIES)
def golden(request: pytest.FixtureRequest) -> Golden:
    checkpoint = load(GOLDEN / request.param)
    expected = load_file(GOLDEN / request.param / "expected.safetensors")
    extend = jax.jit(checkpoint.model.extend)
    own = {"extend": extend, "folder": GOLDEN / request.param}
    return Golden(checkpoint.model, checkpoint.params, **expected, **own)


def same(found: jax.Array, expected: np.ndarray) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=0, atol=TOLERANCE)


def inside(golden: Golden) -> np.ndarray:
    return np.arange(golden.tokens.shape[1]) < golden.length[:, None]


@pytest.mark.parametrize("golden", some_slow(FAST + SLOW, *FAST, *OWN_PARTS), indirect=True)
def test_teacher_forced_logits_equal_pytorch(golden: Golden) -> None:
    batch = {"inputs": golden.tokens, "length": golden.length}
    made = golden.model.teach(golden.params, batch)[0]
    same(made[inside(golden)], golden.logits[inside(golden)])


@pytest.mark.slow
def test_one_call_per_token_after_a_ragged_prefill_equals_pytorch(golden: Golden) -> None:
    prompt_length = np.array([4, 9], np.int32)
    cache = golden.start(prompt_length)
    assert cache.length.tolist() == (prompt_length - 1).tolist()
    for _ in range(12):
        at = np.asarray(cache.length)[:, None]
        fed = np.take_along_axis(golden.tokens, at, axis=1)
        output, cache = golden.extend(golden.params, fed, cache)
        same(output.logits[:, 0], np.take_along_axis(golden.logits, at[..., None], axis=1)[:, 0])


@pytest.mark.slow
def test_ragged_chunks_over_stale_slots_equal_pytorch(golden: Golden) -> None:
    """Rows keep different shares of every chunk; what they reject stays behind as stale slots."""
    cache = golden.start(np.array([3, 5], np.int32))
    begin, rng = np.asarray(cache.length), np.random.default_rng(0)
    step = np.arange(CHUNK)
    padded = np.pad(golden.tokens, ((0, 0), (0, CHUNK)))
    rounds = 0
    while np.any(begin < golden.length):
        keep = np.minimum(rng.integers(0, CHUNK + 1, 2), golden.length - begin)
        right = padded[np.arange(2)[:, None], begin[:, None] + step]
        wrong = (right + 1 + step) % golden.model.info.vocab_size
        fed = np.where(step < keep[:, None], right, wrong).astype(np.int32)
        output, cache = golden.extend(golden.params, fed, cache)
        for row in range(2):
            there = slice(begin[row], begin[row] + keep[row])
            same(output.logits[row, : keep[row]], golden.logits[row, there])
        begin = (begin + keep).astype(np.int32)
        cache = cache.replace(length=jnp.asarray(begin))
        rounds += 1
    assert rounds > golden.length.max() // CHUNK + 1  # or nothing was ever rejected


@pytest.mark.parametrize("golden", ONE_FAST, indirect=True)
def test_at_picks_the_fed_positions_asked_for(golden: Golden) -> None:
    at = np.array([[0, 3], [2, 2]], np.int32)
    cache = golden.start(np.array([4, 4], np.int32))
    output, _ = golden.extend(golden.params, golden.tokens[:, 3 : 3 + CHUNK], cache, at=at)
    same(output.logits, np.take_along_axis(golden.logits[:, 3:], at[..., None], axis=1))


@pytest.mark.parametrize("golden", some_slow(FAST + SLOW, *FAST, *OWN_PARTS), indirect=True)
def test_an_export_has_the_tensors_of_the_checkpoint(golden: Golden, tmp_path: Path) -> None:
    """Fused ones are put together again, and norms hold what they held."""
    save(tmp_path / "out", golden.model, golden.params)
    found = load_file(tmp_path / "out" / "model.safetensors")
    expected = load_file(golden.folder / "model.safetensors")
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_array_equal(found[name], tensor, name)
    assert load(tmp_path / "out").model == golden.model


def greedy_tokens(golden: Golden, strategy: Strategy) -> list[list[int]]:
    """The drafter is the target with other weights."""
    models = (("target", golden.model), ("drafter", golden.model))
    params = {"target": golden.params, "drafter": jax.tree.map(lambda x: x * 0.9, golden.params)}
    prompts = golden.tokens[:, :PROMPT].tolist()
    return texts(run(models, params, strategy, prompts, golden.greedy.shape[1]))


@pytest.mark.slow
def test_greedy_decoding_continues_as_pytorch(golden: Golden) -> None:
    assert greedy_tokens(golden, autoregressive()) == golden.greedy.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("golden", FAST + SLOW, indirect=True)
def test_drafts_leave_the_tokens_of_pytorch(golden: Golden) -> None:
    """Several tokens at a time; with windows, the most that a decode asks of a family."""
    assert greedy_tokens(golden, speculative(3)) == golden.greedy.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    "drafter", [EarlyExit(2, exit=1), Neural(widths=(2, 1))], ids=["exit", "tree"]
)
@pytest.mark.parametrize("golden", [*SLOW, "gemma3_text"], indirect=True)
def test_exits_and_trees_leave_the_tokens_of_pytorch(golden: Golden, drafter: Any) -> None:
    assert greedy_tokens(golden, Strategy(drafter)) == golden.greedy.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("golden", ["gpt2"], indirect=True)
def test_copies_of_the_prompt_leave_the_tokens_of_pytorch(golden: Golden) -> None:
    assert greedy_tokens(golden, Strategy(PromptLookup(3))) == golden.greedy.tolist()


@pytest.mark.parametrize("golden", ONE_FAST, indirect=True)
def test_a_row_decodes_alike_whatever_is_beside_it(golden: Golden) -> None:
    """A shorter prompt or an equal one: the same program, so that only the other row changes."""
    models, params = (("target", golden.model),), {"target": golden.params}
    long = golden.tokens[1, :13].tolist()
    short, equal = golden.tokens[0, :PROMPT].tolist(), golden.tokens[0, :13].tolist()
    first, second = (
        texts(run(models, params, autoregressive(), [other, long], 12)) for other in (short, equal)
    )
    assert first[0] == golden.greedy[0, :12].tolist()
    assert first[0] != second[0] and first[1] == second[1]
