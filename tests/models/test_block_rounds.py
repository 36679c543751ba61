"""Published block drafters over three rounds against PyTorch (tests/golden/make_blocks.py).

Of four drafted tokens no, some and all are accepted, in each row others: what a round leaves in the
cache, states of rejected tokens and the block itself, must not be seen by the next one.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from published import GOLDEN
from safetensors.numpy import load_file

from specjax.hf.huggingface import load
from specjax.models.base import Cache, Params
from specjax.models.dflash import DFlash
from specjax.models.layers import MASKED
from specjax.models.target_shapes import complete_params

pytestmark = pytest.mark.slow
TOLERANCE = 1e-4  # logits have a deviation of 2; float32 in another order of sums
DRAFTED = 4

Golden = dict[str, np.ndarray]


def list_states(wanted: Golden, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The states that a round gets [B, T, F * E], and where each row's begin [B].

    Behind the states of accepted tokens are those of rejected ones, as a target's call leaves them.
    """
    lengths, text = wanted["lengths"], wanted["features"].shape[1]
    begin = np.zeros_like(lengths[0]) if number == 0 else lengths[number - 1] - 1
    count = lengths[0][0] - 1 if number == 0 else DRAFTED + 1
    at = np.minimum(begin[:, None] + np.arange(count), text - 1)[..., None]
    accepted = at < lengths[number][:, None, None] - 1
    own, other = (np.take_along_axis(wanted[name], at, 1) for name in ("features", "rejected"))
    return np.where(accepted, own, other), begin.astype(np.int32)


def correct_places(
    model: DFlash, params: Params, cache: Cache, made: Any, before: jax.Array
) -> jax.Array:
    """Logits [B, K, V] corrected by the tokens [B, K] before each place, left to right."""
    (logits, hidden), size = made, model.config.correction.state_size
    state, corrected = jnp.zeros((len(before), 1, size)), []
    for k in range(before.shape[1]):
        place = jnp.full((len(before), 1), k)
        one = logits[:, k : k + 1], hidden[:, k : k + 1], before[:, k : k + 1], state, place
        found, state, _ = model.correct(params, cache, *one)
        corrected.append(found)
    return jnp.concatenate(corrected, axis=1)


@pytest.mark.parametrize("kind", ["windows", "jetspec", "dspark", "domino", "dflash2"])
def test_three_rounds_equal_pytorch(kind: str) -> None:
    folder = GOLDEN / "blocks" / kind
    found, wanted = load(folder), load_file(folder / "expected.safetensors")
    model = found.model
    target = {"embedding": wanted["embedding"], "head": {"kernel": wanted["head"].T}}
    params = complete_params(model.config, found.params, target)
    rows, capacity = len(wanted["tokens"]), wanted["tokens"].shape[1] + DRAFTED + 1
    prompt = jnp.asarray(wanted["tokens"][:, :1]), jnp.ones(rows, jnp.int32)
    cache, _ = model.start(params, *prompt, capacity)

    @jax.jit
    def run_round(cache: Cache, states: jax.Array, begin: jax.Array, length: jax.Array, tokens):
        cache = model.absorb(params, cache, states, begin).replace(length=length - 1)
        block = jnp.repeat(tokens[:, :1], DRAFTED + model.config.skipped_places, axis=1)
        *made, cache = model.draft_block(params, cache, block)
        if model.config.correction is None:
            return made[0], cache
        return correct_places(model, params, cache, made, tokens[:, :DRAFTED]), cache

    for number, length in enumerate(wanted["lengths"]):
        pending = np.take_along_axis(wanted["tokens"], length[:, None] - 1, axis=1)
        tokens = np.concatenate([pending, wanted["drafted"][number]], axis=1)
        states, begin = list_states(wanted, number)
        logits, cache = run_round(cache, states, begin, length, tokens)
        expected = np.maximum(wanted["logits"][number], MASKED)
        np.testing.assert_allclose(logits, expected, rtol=1e-6, atol=TOLERANCE)
