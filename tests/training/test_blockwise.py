"""The objective of parallel heads, and heads that it has trained."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import run, texts
from parallel_heads import random_heads

from specjax.data.pipeline import pad_batch
from specjax.decoding.strategy import Strategy
from specjax.drafting.medusa import Medusa
from specjax.models.causal import Causal, CausalConfig
from specjax.models.heads import Heads, LoadedHeads
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config
from specjax.training.objective import TRUNK, FrozenModel
from specjax.training.objectives import blockwise
from specjax.training.objectives.cross_entropy import CrossEntropy
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, sums, train_step

V, D, HEADS = 11, 12, 3
MODELS = {
    "t5": T5(
        T5Config(
            vocab_size=V, d_model=D, d_kv=6, d_ff=24, num_heads=2, num_layers=1,
            num_decoder_layers=1, tied=True, scale_outputs=True,
        )
    ),
    "llama": Causal(
        CausalConfig(
            "llama", V, d_model=D, d_ff=16, num_layers=1, num_heads=2, num_kv_heads=1, d_head=6,
            max_positions=64, rope=Rope(6), eos=(1,),
        )
    ),
}  # fmt: skip
# Outputs of 1 to 5 tokens: shorter ones have no label for the later heads.
ROWS = [([a, 3, 1], [*range(2, 2 + n), 1]) for a, n in ((2, 0), (3, 4), (4, 2), (5, 3))]
LOADED = random_heads(HEADS, D, seed=0)


@functools.cache
def trunk_params(kind: str):
    return jax.jit(MODELS[kind].init)(jax.random.key(0))


def make_batch(kind: str, bucket: int = 4):
    return pad_batch(ROWS, bucket, MODELS[kind].info.start_token, 0)


def objective(trained: bool, shape: Heads = LOADED.heads) -> blockwise.Blockwise:
    return blockwise.Blockwise(shape.count, shape.width, "trained" if trained else "frozen")


def frozen(kind: str, trunk) -> dict[str, FrozenModel]:
    return {TRUNK: FrozenModel(trunk, MODELS[kind])}


def loss_and_gradient(kind: str, trained: bool, batch, accumulate: int = 1):
    setup = Setup(MODELS[kind], objective(trained), Optimizer(1, 1e-3), accumulate)
    trunk = trunk_params(kind)
    params = {"trunk": trunk, "heads": LOADED.params} if trained else LOADED.params
    call = jax.jit(lambda p, frozen: sums(setup, p, frozen, batch, jax.random.key(2)))
    return call(params, {} if trained else frozen(kind, trunk))


def float64(tree):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), tree)


def read_out(kind: str, trunk, x: np.ndarray) -> np.ndarray:
    """Log-laws of residual states: the final norm and output matrix of each family, once more."""
    norm = trunk["decoder_norm" if kind == "t5" else "final_norm"]["scale"]
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * norm
    logits = x @ (trunk["embedding"].T * D**-0.5 if kind == "t5" else trunk["head"]["kernel"])
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def direct_loss(kind: str) -> tuple[float, int]:
    """The objective as loops over rows, positions and heads, in float64."""
    batch, trunk = make_batch(kind), float64(trunk_params(kind))
    states = float64(jax.jit(MODELS[kind].states)(trunk_params(kind), batch))
    total, count = 0.0, 0
    for row, (_, output) in enumerate(ROWS):
        first = int(np.argmax(batch["mask"][row]))
        for place in range(len(output)):
            for head in range(1, HEADS + 1):
                if place + head > len(output):
                    continue
                tree = float64(LOADED.params[f"head_{head}"])
                h = states[row, first + place]
                inner = np.maximum(h @ tree["up"]["kernel"] + tree["up"]["bias"], 0)
                h = h + inner @ tree["down"]["kernel"] + tree["down"]["bias"]
                total -= read_out(kind, trunk, h)[output[place + head - 1]]
                count += 1
    return total, count


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "trained"), [("t5", True), ("llama", False)])
def test_the_loss_is_each_heads_cross_entropy_at_its_own_offset(kind, trained):
    trunk, made = trunk_params(kind), objective(trained)
    params = {"trunk": trunk, "heads": LOADED.params} if trained else LOADED.params
    total, count = jax.jit(
        lambda p: made.sums(MODELS[kind], p, frozen(kind, trunk), make_batch(kind), None)
    )(params)
    expected, pairs = direct_loss(kind)
    assert int(count) == pairs
    np.testing.assert_allclose(total, expected, rtol=1e-5)


@pytest.mark.slow
def test_padding_contributes_nothing_and_micro_batches_add_up_with_a_trained_trunk():
    whole = loss_and_gradient("llama", True, make_batch("llama"))
    for other in (
        loss_and_gradient("llama", True, make_batch("llama", bucket=16)),
        loss_and_gradient("llama", True, make_batch("llama"), accumulate=4),
    ):
        assert int(other[1]) == int(whole[1])
        np.testing.assert_allclose(other[0], whole[0], rtol=2e-5)
        close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=2e-5)
        jax.tree.map(close, other[2], whole[2])


@pytest.mark.slow
def test_no_gradient_reaches_a_frozen_trunk():
    made, batch = objective(False), make_batch("t5")

    def loss(params, trunk):
        return made.sums(MODELS["t5"], params, frozen("t5", trunk), batch, None)[0]

    grad = jax.jit(jax.grad(loss, argnums=(0, 1)))
    heads, trunk = grad(LOADED.params, trunk_params("t5"))
    assert all(np.any(leaf) for leaf in jax.tree.leaves(heads))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(trunk))


COUNTING = [([a, 1], [*range(a, V), 1]) for a in range(2, V)]
"""A row counts up from its prompt to the last id, then ends."""


def train_heads(model: T5, made, params, frozen, steps: int):
    setup = Setup(model, made, Optimizer(steps, 1e-2, warmup=20))
    state = setup.start(jax.tree.map(jnp.array, params))
    batch = pad_batch(COUNTING, 4, model.info.start_token, 0)
    for _ in range(steps):
        state, report = train_step(setup, state, frozen, batch)
    return state.params, float(report["loss"])


@pytest.mark.slow
@pytest.mark.parametrize("joint", [False, True])
def test_heads_learn_a_text_that_is_certain(joint):
    """Drafts are accepted in full, and decoding takes a fraction of the target's calls."""
    model, shape = MODELS["t5"], Heads(HEADS, D, 24)
    target, loss = train_heads(model, CrossEntropy(), trunk_params("t5"), {}, 200)
    assert loss < 0.1
    heads, made = jax.jit(shape.init)(jax.random.key(1)), objective(joint, shape)
    if joint:
        start = {"trunk": trunk_params("t5"), "heads": heads}
        params, loss = train_heads(model, made, start, {}, 400)
        trunk, heads = params["trunk"], params["heads"]
    else:
        trunk = target
        heads, loss = train_heads(model, made, heads, frozen("t5", trunk), 300)
    assert loss < 0.2
    params = {"target": target, "drafter": trunk, "heads": LoadedHeads(shape, heads)}
    models = (("target", model), ("drafter", model))
    strategy = Strategy(Medusa(HEADS))
    out = run(models, params, strategy, [prompt for prompt, _ in COUNTING], 12)
    assert texts(out) == [output for _, output in COUNTING]
    assert np.sum(out.trace.accepted) > 0.95 * np.sum(out.trace.drafted)
    rounds = [-(-len(output) // (HEADS + 1)) for _, output in COUNTING]
    assert np.asarray(out.trace.calls["target"]).sum() < 1.2 * sum(rounds)
    np.testing.assert_array_equal(out.trace.calls["drafter"], out.trace.calls["target"])
