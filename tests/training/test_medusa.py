"""The objectives of heads on the target: labels at their places, one head's logits at a time."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parallel_heads import heads_on_target

from specjax.data.pipeline import pad_batch
from specjax.models.t5 import T5, T5Config
from specjax.training.loss import FROM_TARGET, from_target, one_by_one
from specjax.training.objective import TRUNK, FrozenModel
from specjax.training.objectives.hydra import Hydra
from specjax.training.objectives.medusa import Medusa
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, sums

V, D, HEADS = 11, 12, 3
MODEL = T5(
    T5Config(
        vocab_size=V, d_model=D, d_kv=6, d_ff=24, num_heads=2, num_layers=1, num_decoder_layers=1,
        tied=True, scale_outputs=True,
    )
)  # fmt: skip
# Outputs of 1 to 5 tokens: shorter ones have no place for the later heads.
ROWS = [([a, 3, 1], [*range(2, 2 + n), 1]) for a, n in ((2, 0), (3, 4), (4, 2), (5, 3))]
OBJECTIVES = {False: Medusa, True: Hydra}


@functools.cache
def target():
    return jax.jit(MODEL.init)(jax.random.key(0))


def frozen():
    return {TRUNK: FrozenModel(target(), MODEL)}


def float64(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def log_distribution(x: np.ndarray) -> np.ndarray:
    """The final norm and the output matrix, once more."""
    weights = float64(target())
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weights["decoder_norm"]["scale"]
    logits = x @ (weights["embedding"].T * D**-0.5)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def distance(divergence: str, p: np.ndarray, q: np.ndarray, label: int) -> float:
    """Of two log laws."""
    accepted = np.minimum(np.exp(p), np.exp(q)).sum()
    share = np.exp(-3 * accepted)
    kept = np.argsort(-p)[:10]
    if divergence == "cross_entropy":
        return -q[p.argmax()]
    if divergence == "total_variation":
        return np.abs(np.exp(p) - np.exp(q)).sum() / 2
    kl = (np.exp(p) * (p - q)).sum()
    return {
        "forward_kl": kl,
        "lk_alpha": -np.log(accepted),
        "lk_lambda": share * kl + (1 - share) * (1 - accepted),
        "tv_ce": -0.1 * q[label] + 0.9 * np.abs(np.exp(p) - np.exp(q)).sum(),
        "top_k": -(np.exp(p[kept]) * q[kept]).sum(),
    }[divergence]


def directly(sequential: bool, heads, made: Medusa) -> tuple[float, int, dict[int, list[bool]]]:
    """Loss, positions and hits by head, as loops over rows, drafts and their tokens, in float64."""
    decay = made.decay
    batch, weights = pad_batch(ROWS, 4, 0, 0), float64(target())
    hidden = float64(jax.jit(MODEL.states)(target(), batch))
    total, count, hits = 0.0, 0, {head: [] for head in range(1, HEADS + 1)}
    unit = lambda x: x / np.sqrt((x * x).mean() + 1e-6)  # noqa: E731
    for row, (_, output) in enumerate(ROWS):
        text = [0, *output]
        for pending in range(len(output)):
            state = hidden[row, pending - 1] if pending else np.zeros(D)
            for head in range(1, HEADS + 1):
                if pending + head > len(output):
                    continue
                tree = float64(heads[f"head_{head}"])
                read = [state, *(weights["embedding"][t] for t in text[pending : pending + head])]
                read = np.concatenate([unit(x) for x in (read if sequential else read[:1])])
                inner = read @ tree["up"]["kernel"] + tree["up"]["bias"]
                inner = inner / (1 + np.exp(-inner))
                drafted = unit(state) + inner @ tree["down"]["kernel"] + tree["down"]["bias"]
                p, q = log_distribution(hidden[row, pending + head - 1]), log_distribution(drafted)
                label = output[pending + head - 1]
                total += decay ** (head - 1) * distance(made.divergence, p, q, label)
                hits[head].append(q.argmax() == p.argmax())
            count += 1
    return total / sum(decay**head for head in range(HEADS)), count, hits


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sequential", "divergence"), list(itertools.product((False, True), FROM_TARGET))
)
def test_the_loss_and_the_figures_are_each_heads_at_its_own_place(sequential, divergence):
    made = OBJECTIVES[sequential](HEADS, D + 2, divergence=divergence)
    heads = heads_on_target(HEADS, D, sequential)
    assert made.heads_on(MODEL) == heads.heads
    batch = pad_batch(ROWS, 4, 0, 0)
    given = heads.params, frozen()
    total, count = jax.jit(lambda *given: made.sums(MODEL, *given, batch, None))(*given)
    expected, positions, hits = directly(sequential, heads.params, made)
    assert int(count) == positions
    np.testing.assert_allclose(total, expected, rtol=1e-5)
    found = jax.jit(lambda *given: made.measure(MODEL, *given, batch))(*given)
    assert set(found) == set(made.figures(MODEL))
    for head, of_head in hits.items():
        hit, tested = found[f"acceptance_0_at_{head}"]
        assert (int(hit), int(tested)) == (sum(of_head), len(of_head))
    tokens, rounds = found["tokens_0"]
    assert int(rounds) == positions and positions <= int(tokens) <= positions + sum(hits[1]) * HEADS


def test_losses_one_by_one_are_what_autodiff_says():
    p = jax.nn.softmax(jax.random.normal(jax.random.key(0), (2, 3, V)))
    states = jax.random.normal(jax.random.key(1), (4, 2, 3, V))
    weights = jnp.arange(4.0)

    def loss(state, weight):
        return weight * jnp.sum(from_target("forward_kl", p, jnp.tanh(state)))

    def plainly(states):
        return sum(loss(state, weight) for state, weight in zip(states, weights, strict=True))

    found, expected = (
        jax.jit(jax.value_and_grad(lambda x, f=f: 3.0 * f(2.0 * x)))(states)
        for f in (lambda x: one_by_one(loss, x, weights), plainly)
    )
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)  # gradients: O(0.1)
    jax.tree.map(close, found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("sequential", [False, True], ids=["medusa", "hydra"])
def test_more_heads_take_no_more_logits(sequential):
    """Of eight heads as of two: what a step keeps grows by states, not by distributions."""
    wide = T5(T5Config(
        vocab_size=4096, d_model=8, d_kv=4, d_ff=8, num_heads=2, num_layers=1,
        num_decoder_layers=1, tied=True,
    ))  # fmt: skip
    params = jax.jit(wide.init)(jax.random.key(0))
    batch = pad_batch([([3, 1], [4] * 15)] * 8, 16, 0, 0)

    def temporaries(count: int) -> int:
        made = OBJECTIVES[sequential](count)
        heads = made.heads_on(wide).init(jax.random.key(0))
        step = jax.jit(functools.partial(sums, Setup(wide, made, Optimizer(1, 1e-3))))
        frozen = {TRUNK: FrozenModel(params, wide)}
        compiled = step.lower(heads, frozen, batch, jax.random.key(0)).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    logits = 8 * 16 * 4096 * 4
    assert temporaries(8) < temporaries(2) + 1.5 * logits
