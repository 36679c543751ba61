"""Rows in the midst of a decode, and what their texts are, for drafters that search them."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from specjax.contracts.context import Context, Options
from specjax.sampling import make_sampling


def context(sources, outputs, encoder: bool, numbers: dict[str, float] | None = None) -> Context:
    """Rows after `outputs` were generated from `sources`."""
    batch = len(sources)
    s = max(map(len, sources))
    heads = [[0] if encoder else list(row) for row in sources]
    tokens = np.full((batch, 40), 9, np.int32)  # 9: junk beyond the length
    for row, (head, out) in enumerate(zip(heads, outputs, strict=True)):
        tokens[row, : len(head) + len(out)] = [*head, *out]
    source = np.full((batch, s if encoder else 0), 8, np.int32)
    for row, ids in enumerate(sources if encoder else []):
        source[row, : len(ids)] = ids
    begin = jnp.array([len(h) for h in heads])
    length = begin + jnp.array([len(o) for o in outputs])
    return Context(
        encoder_tokens=jnp.asarray(source),
        encoder_length=jnp.array([len(r) if encoder else 0 for r in sources]),
        tokens=jnp.asarray(tokens),
        length=length,
        begin=begin,
        limit=begin + 30,
        most=jnp.full(batch, 30),
        active=jnp.ones(batch, bool),
        options=Options(
            make_sampling(0.0), {n: jnp.float32(x) for n, x in (numbers or {}).items()}
        ),
    )


def random_rows(seed: int, rows: int = 60):
    rng = np.random.default_rng(seed)
    draw = lambda low, high: rng.integers(0, 3, rng.integers(low, high)).tolist()  # noqa: E731
    return [draw(1, 12) for _ in range(rows)], [draw(0, 10) for _ in range(rows)]


def list_rows(sources, outputs, encoder: bool):
    """(text, pattern length) of every row, written out on the host."""
    for source, output in zip(sources, outputs, strict=True):
        yield [*source, *output], (len(output) if encoder else len(source) + len(output))
