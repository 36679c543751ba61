"""Linear recurrences in blocks and over trees give what one token after another gives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models.recurrence import BLOCK, Inputs, Updates, run_chain, run_tree
from specjax.models.short_convolution import convolve_chain, convolve_tree

B, G, H, E, F = 2, 2, 4, 5, 7
TOLERANCE = 1e-5
CORRECTED = pytest.mark.parametrize(
    "corrected",
    [pytest.param(True, id="delta"), pytest.param(False, id="plain", marks=pytest.mark.slow)],
)


def draw(tokens: int, corrected: bool, seed: int = 0) -> Inputs:
    """Inputs of heads that forget slowly and of heads that forget at once."""
    rng = np.random.default_rng(seed)

    def normal(heads: int, width: int) -> np.ndarray:
        return rng.normal(size=(B, heads, tokens, width))

    def normalize(x: np.ndarray) -> np.ndarray:
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    speeds = np.array([0.01, 0.3, 3.0, 60.0])[:, None]
    made = Inputs(
        normalize(normal(G, E)),
        normalize(normal(G, E)),
        normal(H, F),
        -speeds * rng.uniform(size=(B, H, tokens)),
        rng.uniform(size=(B, H, tokens)) if corrected else None,
    )
    return jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), made)


def draw_state(seed: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(B, H, E, F)).astype(np.float32)


def walk(inputs: Inputs, state: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs, u and the last state of the recurrence as it is defined, in float64."""
    q, k, v, a, b = (None if x is None else np.asarray(x, np.float64) for x in inputs)
    q, k, state = np.repeat(q, H // G, 1), np.repeat(k, H // G, 1), state.astype(np.float64)
    outputs, updates = [], []
    for t in range(v.shape[2]):
        state = state * np.exp(a[:, :, t, None, None])
        known = np.einsum("bhef,bhe->bhf", state, k[:, :, t])
        u = v[:, :, t] if b is None else b[:, :, t, None] * (v[:, :, t] - known)
        state = state + k[:, :, t, :, None] * u[:, :, None]
        outputs.append(np.einsum("bhef,bhe->bhf", state, q[:, :, t]))
        updates.append(u)
    return np.stack(outputs, 2), np.stack(updates, 2), state


def close(found: jax.Array, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=TOLERANCE, atol=TOLERANCE)


def take(inputs: Inputs, tokens: list[int]) -> Inputs:
    return jax.tree.map(lambda x: x[:, :, np.array(tokens, int)], inputs)


@CORRECTED
def test_blocks_of_a_chain_give_what_single_tokens_give(corrected: bool) -> None:
    inputs, state = draw(2 * BLOCK + 9, corrected), draw_state()
    outputs, updates = jax.jit(run_chain)(inputs, state)
    expected = walk(inputs, state)
    close(outputs, expected[0])
    close(updates.values, expected[1])


PARENTS = [-1, 0, 0, 1, 2, 2, 3, 5, 4]
"""Of each node; the first four are fed in an earlier call."""


def find_path(node: int) -> list[int]:
    return [] if node < 0 else [*find_path(PARENTS[node]), node]


@CORRECTED
def test_nodes_of_a_tree_give_what_their_paths_give(corrected: bool) -> None:
    """Also of a tree whose first nodes were fed before, and whatever other branches hold."""
    count, before = len(PARENTS), 4
    inputs, state = draw(count, corrected), draw_state()
    paths = [find_path(node) for node in range(count)]
    visible = np.array([[slot in path for slot in range(count)] for path in paths])

    def read(vectors: jax.Array) -> jax.Array:
        return jnp.einsum("bhef,bhme->bhmf", state, jnp.repeat(vectors, H // G, axis=1))

    nothing = jax.tree.map(
        lambda x: x[:, :, :0], Updates(inputs.keys, inputs.values, inputs.decays)
    )
    first = take(inputs, list(range(before)))
    outputs, values = run_tree(first, nothing, visible[None, :before, :before], read)
    earlier = Updates(first.keys, values, first.decays)
    rest = take(inputs, list(range(before, count)))
    more, last = run_tree(rest, earlier, visible[None, before:], read)
    outputs, values = (jnp.concatenate(x, axis=2) for x in ((outputs, more), (values, last)))
    for node, path in enumerate(paths):
        expected = walk(take(inputs, path), state)
        close(outputs[:, :, node], expected[0][:, :, -1])
        close(values[:, :, node], expected[1][:, :, -1])


@pytest.mark.slow
def test_a_convolution_follows_the_paths_of_a_tree() -> None:
    rng = np.random.default_rng(0)
    before, nodes = rng.normal(size=(B, 3, 6)), rng.normal(size=(B, len(PARENTS), 6))
    taps = rng.normal(size=(6, 4))
    paths = [find_path(node) for node in range(len(PARENTS))]
    visible = np.array([[slot in path for slot in range(len(PARENTS))] for path in paths])
    shown = jnp.broadcast_to(visible[4:], (B, *visible[4:].shape))
    found = convolve_tree(*map(jnp.asarray, (before, nodes, taps)), shown)
    for node, path in list(enumerate(paths))[4:]:
        expected = convolve_chain(*map(jnp.asarray, (before, nodes[:, path], taps)))
        close(found[:, node - 4], np.asarray(expected[:, -1]))
