"""Published feature drafters: golden ones changed, and fed as in a decode, without one around."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file, save_file

from specjax.models.base import Cache, Output, Params
from specjax.models.dflash import DFlash
from specjax.models.eagle import Eagle

GOLDEN = Path(__file__).parents[1] / "golden"
SINGLE = "model.safetensors"
Tensors = dict[str, np.ndarray]


def words(layout: str) -> dict[str, Any]:
    """A golden drafter's `config.json`."""
    return json.loads((GOLDEN / layout / "config.json").read_text("utf-8"))


def edit_drafter(
    folder: Path, layout: str, change: Callable[[Tensors], Tensors] | None = None, **fields: Any
) -> Path:
    """A golden drafter with other fields, and tensors that went through `change`."""
    shutil.copytree(GOLDEN / layout, folder)
    (folder / "config.json").write_text(json.dumps(words(layout) | fields), "utf-8")
    if change:
        save_file(change(load_file(folder / SINGLE)), folder / SINGLE)
    return folder


def without(*names: str) -> Callable[[Tensors], Tensors]:
    return lambda tensors: {n: tensor for n, tensor in tensors.items() if n not in names}


def logits(
    model: Eagle,
    params: Params,
    tokens: np.ndarray,
    features: np.ndarray,
    drafted: np.ndarray,
    part: int,
    tree: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Logits [B, T - 1, U] behind tokens 1 .. T - 1, then [B, K, U] behind K drafted ones.

    Texts are read so many tokens at a time, drafted tokens one by one on the drafter's own states,
    as a `tree` of one path if that is asked for.
    """
    rows, length = tokens.shape
    ids, capacity = np.asarray(params["ids"]), length + drafted.shape[1]
    extend = jax.jit(model.extend)

    @jax.jit
    def start_cache(params: Params) -> Cache:
        return model.start(params, jnp.asarray(tokens[:, :1]), jnp.ones(rows, jnp.int32), capacity)[
            0
        ]

    @jax.jit
    def read(
        params: Params, cache: Cache, tokens: jax.Array, before: jax.Array
    ) -> tuple[Output, Cache]:
        cache = model.absorb(params, cache, before, cache.length - 1)
        return model.extend(params, tokens, cache)

    cache, made = start_cache(params), []
    before = np.pad(features, ((0, 0), (1, 0), (0, 0)))
    for begin in range(0, length, part):
        end = min(begin + part, length)
        output, cache = read(params, cache, tokens[:, begin:end], before[:, begin:end])
        made.append(np.asarray(output.logits)[..., ids])
    first, later = np.concatenate(made, axis=1)[:, 1:], []
    for step in range(drafted.shape[1]):
        place = {
            "position": jnp.broadcast_to(length + jnp.arange(step + 1), (rows, step + 1)),
            "visible": jnp.ones((rows, 1, step + 1), bool),
        }
        fed = drafted[:, step : step + 1]
        output, cache = extend(params, fed, cache, **place if tree else {})
        later.append(np.asarray(output.logits)[:, 0, ids])
    return first, np.stack(later, axis=1)


def block_logits(
    model: DFlash, params: Params, tokens: np.ndarray, features: np.ndarray, size: int, part: int
) -> np.ndarray:
    """Logits [B, N - 1, V] of the masks of a block of N tokens behind a text [B, T].

    The states [B, T - 1, F * E] at all tokens but the last come so many at a time.
    """
    rows, read = features.shape[:2]
    absorb = jax.jit(model.absorb)
    cache, _ = model.start(
        params, jnp.asarray(tokens[:, :1]), jnp.ones(rows, jnp.int32), read + size
    )
    for begin in range(0, read, part):
        slot = jnp.full(rows, begin, jnp.int32)
        cache = absorb(params, cache, features[:, begin : begin + part], slot)
    block = np.repeat(tokens[:, -1:], size, axis=1)
    cache = cache.replace(length=jnp.full(rows, read, jnp.int32))
    return np.asarray(jax.jit(model.extend)(params, block, cache)[0].logits)[:, 1:]
