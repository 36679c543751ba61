"""Published feature drafters as a decode feeds them, without the decode around."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from specjax.models.base import Cache, Output, Params
from specjax.models.eagle import Eagle


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
    def started(params: Params) -> Cache:
        return model.start(params, tokens[:, :1], jnp.ones(rows, jnp.int32), capacity)[0]

    @jax.jit
    def read(
        params: Params, cache: Cache, tokens: jax.Array, before: jax.Array
    ) -> tuple[Output, Cache]:
        cache = model.absorb(params, cache, before, cache.length - 1)
        return model.extend(params, tokens, cache)

    cache, made = started(params), []
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
