"""Operation counts of strategies: against XLA's count of a call, and call by call."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from parallel_heads import heads_on_target, random_heads

from specjax.drafting.copying import PromptLookup
from specjax.drafting.early_exit import EarlyExit
from specjax.drafting.hydra import Hydra
from specjax.drafting.medusa import Medusa
from specjax.drafting.neural import Neural
from specjax.drafting.nothing import Nothing
from specjax.measuring.roofline import copy_bandwidth, roofline, step_bytes
from specjax.metrics.operations import operations, part_shape, transformer_shape
from specjax.metrics.traces import Rounds
from specjax.models.base import Resume
from specjax.models.causal import Causal, CausalConfig
from specjax.models.guided import GuidedModel
from specjax.models.positions import Rope
from specjax.models.shapes import get_parameter_shapes
from specjax.models.t5 import T5, T5Config
from specjax.theory.operations import decoder_call, output_layer, start
from specjax.verification.calm import SATURATION, SOFTMAX, Calm
from specjax.verification.whole import ResumedReader, WholeReader

MODELS = {
    "t5": T5(
        T5Config(
            vocab_size=500, d_model=128, d_kv=32, d_ff=192, num_heads=3, num_layers=1,
            num_decoder_layers=2,
        )
    ),
    "t5, two matrices": T5(
        T5Config(
            vocab_size=500, d_model=128, d_kv=32, d_ff=192, num_heads=3, num_layers=1,
            num_decoder_layers=2, gated=False, activation="relu", tied=True,
        )
    ),
    "llama": Causal(
        CausalConfig(
            "llama", 500, d_model=128, d_ff=192, num_layers=2, num_heads=4, num_kv_heads=2,
            d_head=32, max_positions=64, rope=Rope(32),
        )
    ),
}  # fmt: skip
PROMPT, CAPACITY, FED = 24, 32, 5
# XLA also counts norms, softmaxes, rotations, gates and masks: at width 128 a few percent.
ELEMENTWISE = 0.04


def cost(compiled) -> dict[str, float]:
    found = compiled.cost_analysis()
    return found[0] if isinstance(found, list) else found


@pytest.mark.slow
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("logits", [1, FED])
def test_a_compiled_verification_has_the_counted_flops(kind, logits):
    model = MODELS[kind]
    params = get_parameter_shapes(model)
    text, size = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((1, PROMPT), (1,)))
    start = functools.partial(model.start, capacity=CAPACITY)
    cache, _ = jax.eval_shape(start, params, text, size)
    fed = jax.ShapeDtypeStruct((1, FED), jnp.int32)
    at = None if logits == FED else jax.ShapeDtypeStruct((1, logits), jnp.int32)
    compiled = jax.jit(model.extend).lower(params, fed, cache, at=at).compile()
    shape = transformer_shape(model)
    # The program looks at all slots from every token: on average as the middle one would.
    counted = decoder_call(shape, FED, CAPACITY - (FED + 1) // 2, PROMPT * shape.cross, logits)
    assert cost(compiled)["flops"] == pytest.approx(counted.flops, rel=ELEMENTWISE)


SIX = T5(
    T5Config(
        vocab_size=8000, d_model=384, d_kv=64, d_ff=1024, num_heads=6, num_layers=6,
        num_decoder_layers=6, tied=True,
    )
)  # fmt: skip


def compiled_flops(model, fed: int, resume_from: int) -> float:
    """XLA's count of feeding tokens, or their states after some layers."""
    params = get_parameter_shapes(model)
    text, size = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((1, PROMPT), (1,)))
    start = functools.partial(model.start, capacity=CAPACITY)
    cache, _ = jax.eval_shape(start, params, text, size)
    tokens = jax.ShapeDtypeStruct((1, fed), jnp.int32)
    states = jax.ShapeDtypeStruct((1, fed, model.config.d_model), jnp.float32)
    how = {"resume": Resume(states, resume_from)} if resume_from else {}
    return cost(jax.jit(model.extend).lower(params, tokens, cache, **how).compile())["flops"]


@pytest.fixture(scope="module")
def recomputing() -> float:
    return compiled_flops(SIX, FED, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("exit", "expected"), [(1, 0.134), (2, 0.269)])
def test_verifying_on_states_spares_the_layers_that_drafted(exit, expected, recomputing):
    """Each of six layers has 2.06M weights that a call uses, the output layer 3.07M."""
    whole = decoder_call(transformer_shape(SIX), FED, 20, PROMPT)
    part = part_shape(SIX, ResumedReader(exit).make_call("target", FED - 1))
    saved = 1 - decoder_call(part, FED, 20, PROMPT).flops / whole.flops
    assert saved == pytest.approx(expected, abs=0.002)
    measured = 1 - compiled_flops(SIX, FED, exit) / recomputing
    assert measured == pytest.approx(saved, rel=0.05)


def rounds(calls: list[int]) -> Rounds:
    """Two rows at K = 3; the first has rounds of 4 and 2 tokens, the second one of 1."""
    return Rounds(
        begin=np.array([1, 1]),
        width=np.array([[3, 3], [3, 0]]),
        drafted=np.array([[3, 3], [3, 0]]),
        accepted=np.array([[3, 1], [0, 0]]),
        committed=np.array([[4, 2], [1, 0]]),
        reviewed=np.array([[True, True], [True, False]]),
        overlap=np.zeros((2, 2)),
        calls={"target": np.array([2, 1]), "drafter": np.array(calls)},
        runs={"target": 3, "drafter": sum(calls)},
        turns=3,
        stops={},
    )


PROMPTS = np.array([7, 5])
PAIR = {"target": MODELS["t5"], "drafter": MODELS["t5, two matrices"]}


def test_a_round_without_review_costs_the_target_nothing():
    ended = dataclasses.replace(rounds([6, 3]), reviewed=np.array([[True, False], [True, False]]))
    found = operations(ended, PROMPTS, Neural(3), PAIR, {}, "target", WholeReader())
    calls = decoder_call(transformer_shape(PAIR["target"]), 4, np.array([0, 0]), np.array([7, 5]))
    assert found["target"]["flops"] == pytest.approx(calls.flops.sum() / 7)


def test_the_target_pays_for_rejected_tokens_and_reads_its_weights_once_a_call():
    found = operations(rounds([6, 3]), PROMPTS, Neural(3), PAIR, {}, "target", WholeReader())
    shape = transformer_shape(PAIR["target"])
    calls = decoder_call(shape, 4, np.array([0, 4, 0]), np.array([7, 7, 5]))
    assert found["target"]["flops"] == pytest.approx(calls.flops.sum() / 7)
    assert found["target"]["memory_operations"] == pytest.approx(calls.memory.sum() / 7)


def test_a_neural_drafter_feeds_two_tokens_and_then_one_at_a_time():
    found = operations(rounds([6, 3]), PROMPTS, Neural(3), PAIR, {}, "target", WholeReader())
    shape = transformer_shape(PAIR["drafter"])
    opening = decoder_call(shape, 2, np.array([0, 3, 0]), np.array([7, 7, 5]), 1)
    later = decoder_call(shape, 1, np.array([1, 2, 5, 6, 1, 2]), np.array([7] * 4 + [5] * 2))
    total = opening.total() + later.total()
    # Later calls are counted at their row's mean length, rounded: half a cached key per call.
    assert found["drafter"]["flops"] == pytest.approx(total.flops / 7, rel=1e-3)
    assert found["drafter"]["memory_operations"] == pytest.approx(total.memory / 7, rel=1e-3)
    whole = found["total"]
    parts = found["target"]["flops"] + found["drafter"]["flops"]
    assert whole["flops"] == pytest.approx(parts)
    assert whole["intensity"] == pytest.approx(whole["flops"] / whole["memory_operations"])
    assert whole["with_prompt"]["flops"] > whole["flops"]


def test_parallel_heads_cost_one_wide_call_and_their_networks():
    heads = random_heads(4, PAIR["drafter"].config.d_model, seed=0)
    block = Medusa(3)
    found = operations(
        rounds([2, 1]), PROMPTS, block, PAIR, {"heads": heads}, "target", WholeReader()
    )
    shape = transformer_shape(PAIR["drafter"])
    calls = decoder_call(shape, 4, np.array([0, 1, 0]), np.array([7, 7, 5]), 3).total()
    networks = 3 * 2 * heads.heads.d_model * heads.heads.width  # three heads of two matrices
    assert found["drafter"]["flops"] == pytest.approx((calls.flops + 3 * 2 * networks) / 7)
    assert found["drafter"]["memory_operations"] == pytest.approx((calls.memory + 3 * networks) / 7)


def test_heads_on_the_target_cost_its_output_layer_and_their_networks():
    width = PAIR["target"].config.d_model
    heads, tree = heads_on_target(2, width, sequential=True), Hydra(widths=(2, 1))
    runs = {"target": np.array([2, 1]), "target read-out": np.array([4, 2])}
    made = dataclasses.replace(rounds([0, 0]), calls=runs)
    models = {"target": PAIR["target"]}
    found = operations(made, PROMPTS, tree, models, {"heads": heads}, "target", tree.reader)
    # Of two levels: one state and two, through heads that read one token and two.
    shape = dataclasses.replace(transformer_shape(PAIR["target"]), layers=0)
    calls = [output_layer(shape, states) for states in (1, 2)]
    first, second = (heads.heads.count_weights(head) for head in (1, 2))
    flops = sum(call.flops for call in calls) + 2 * (first + 2 * second)
    memory = sum(call.memory for call in calls) + first + second
    own = found["target read-out"]
    assert own["flops"] == pytest.approx(3 * flops / 7)
    assert own["memory_operations"] == pytest.approx(3 * memory / 7)
    assert heads.heads.count_weights(2) == (3 + 1) * width * heads.heads.width


def test_decoding_alone_has_one_call_per_token():
    baseline = dataclasses.replace(
        rounds([0, 0]),
        committed=np.ones((2, 2), int),
        reviewed=np.ones((2, 2), bool),
        width=np.zeros((2, 2), int),
    )
    models = {"target": PAIR["target"]}
    found = operations(baseline, PROMPTS, Nothing(), models, {}, "target", WholeReader())
    calls = decoder_call(
        transformer_shape(PAIR["target"]), 1, np.array([0, 1, 0, 1]), np.array([7, 7, 5, 5])
    )
    assert found["target"]["flops"] == pytest.approx(calls.flops.mean())
    assert set(found) == {"target", "total"}


def test_an_early_exit_pays_for_its_layers_and_the_target_for_the_others():
    once = rounds([0, 0])
    calls = {"target": [2, 1], "target[:1]": [6, 3], "target[:1] states": [2, 0]}
    once = dataclasses.replace(once, calls={k: np.array(v) for k, v in calls.items()})
    drafter = EarlyExit(3, exit=1)
    model, lengths = PAIR["target"], np.array([7, 7, 5])
    found = operations(once, PROMPTS, drafter, {"target": model}, {}, "target", drafter.reader)
    # Of two layers one drafts and one reviews.
    one = dataclasses.replace(transformer_shape(model), layers=1)
    review = decoder_call(one, 4, np.array([0, 4, 0]), lengths)
    assert found["target"]["flops"] == pytest.approx(review.flops.sum() / 7)
    opening = decoder_call(one, 1, np.array([0, 4, 0]), lengths)
    later = decoder_call(one, 1, np.array([1, 2, 5, 6, 1, 2]), np.array([7] * 4 + [5] * 2))
    drafting = (opening.flops.sum() + later.flops.sum()) / 7
    assert found["target[:1]"]["flops"] == pytest.approx(drafting, rel=1e-3)
    last = decoder_call(one, 1, np.array([0, 4]), 7, 0)  # no output layer
    assert found["target[:1] states"]["flops"] == pytest.approx(last.flops.sum() / 7)
    parts = sum(found[name]["flops"] for name in calls)
    assert found["total"]["flops"] == pytest.approx(parts)
    # The prompt is read once, by the target.
    assert found["target[:1]"]["with_prompt"]["flops"] == found["target[:1]"]["flops"]
    assert found["target"]["with_prompt"]["flops"] > found["target"]["flops"]


def test_a_guided_target_pays_for_the_text_without_its_prompt_too():
    model = MODELS["llama"]
    behind = dataclasses.replace(rounds([0, 0]), begin=PROMPTS)  # as in decoder-only rows
    given = behind, PROMPTS, PromptLookup(3)
    own = operations(*given, {"target": model}, {}, "target", WholeReader())["target"]
    both = operations(*given, {"target": GuidedModel(model, 1.5)}, {}, "target", WholeReader())[
        "target"
    ]
    shape = transformer_shape(model)
    free = decoder_call(shape, 4, np.array([0, 4, 0])).total()
    assert both["flops"] == pytest.approx(own["flops"] + free.flops / 7)
    assert both["memory_operations"] == pytest.approx(own["memory_operations"] + free.memory / 7)
    read = both["with_prompt"]["flops"] - own["with_prompt"]["flops"] - free.flops / 7
    assert read == pytest.approx(2 * start(shape, 1).total().flops / 7)


@pytest.mark.parametrize("measure", [SATURATION, SOFTMAX])
def test_calm_pays_for_the_layers_that_ran_and_for_what_the_others_remember(measure):
    baseline = dataclasses.replace(
        rounds([0, 0]),
        committed=np.array([[1, 1], [1, 0]]),
        width=np.zeros((2, 2), int),
        layers=np.array([[1, 2], [2, 0]]),
    )
    model = PAIR["target"]
    calm = Calm(measure=measure)
    found = operations(baseline, PROMPTS, Nothing(), {"target": model}, {}, "target", calm)
    shape = transformer_shape(model)
    short = decoder_call(dataclasses.replace(shape, layers=1), 1, 0, 7)
    whole = decoder_call(shape, 1, np.array([1, 0]), np.array([7, 5])).total()
    remembered = 2 * 128 * 2 * 96  # keys and values of one state in the second layer
    looks = 3 * 2 * 128 * 500 if measure == SOFTMAX else 0  # the output layer after layer one
    expected = short.flops + whole.flops + remembered + looks
    assert found["target"]["flops"] == pytest.approx(expected / 3)


@pytest.mark.parametrize("kind", MODELS)
def test_a_step_reads_the_decoder_and_its_caches_and_nothing_else(kind):
    """All parameters but the encoder, what made cross keys and values, and a lookup table."""
    model = MODELS[kind]
    tree = get_parameter_shapes(model)
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    used = 0
    for path, leaf in leaves:
        where = "/".join(entry.key for entry in path)
        made_before = "cross_attention" in where and ("/k/" in where or "/v/" in where)
        looked_up = where == "embedding" and "head" in tree
        if leaf.ndim == 2 and not (
            where.startswith("encoder") or made_before or looked_up or "bias" in where
        ):
            used += leaf.size
    assert step_bytes(model, 1, 0, 0) == 4 * used
    c = model.config
    cached = step_bytes(model, 2, 10, 20) - step_bytes(model, 1, 0, 0)
    if kind == "llama":
        assert cached == 4 * 2 * c.num_layers * 2 * c.num_kv_heads * c.d_head * 10
    else:
        assert cached == 4 * 2 * c.num_decoder_layers * 2 * c.num_heads * c.d_kv * 30


def test_bandwidth_is_that_of_a_machine_and_the_bound_follows():
    bandwidth = copy_bandwidth(2**24, runs=3)
    assert 1e8 < bandwidth < 1e14  # slower than a disk or faster than any memory is an error
    found = roofline(2e9, 1e12, 4.0)
    assert found["bound_ms"] == pytest.approx(2.0) and found["percent"] == pytest.approx(50.0)
