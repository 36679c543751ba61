"""Drafts of layers that read the target's keys and values (Gemma 4 assistants)."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decodes import decoder, first_state, inputs, one_round, run, texts
from ml_collections import ConfigDict

import specjax
from specjax.decoding import state as decoding_state
from specjax.decoding.state import Decoder, State
from specjax.decoding.strategy import Strategy, autoregressive
from specjax.experiments.train.feature_drafter import check_objective
from specjax.hf import huggingface
from specjax.hf.huggingface import parse_config
from specjax.loading import LoadedModel
from specjax.models.assistant import Assistant
from specjax.models.causal import Causal, CausalConfig
from specjax.models.causal_config import Heads
from specjax.models.layer_inputs import LayerInputs
from specjax.models.positions import Rope
from specjax.models.target_shapes import complete_params
from specjax.pair import fit
from specjax.runtime.errors import UserError
from specjax.training.objectives.distillation import Distillation

pytestmark = pytest.mark.slow

V, LIMIT = 12, 60
SLIDING, FULL = "sliding_attention", "full_attention"
HEADS = {3: Heads(2, 8), 0: Heads(1, 6)}
WINDOWS = (3, 0, 3, 0, 3)
TARGET = Causal(
    CausalConfig(
        "gemma4_text", V, d_model=16, d_ff=24, num_layers=5, num_heads=4, num_kv_heads=2, d_head=8,
        max_positions=256, rope=Rope(6), ropes=tuple(Rope(HEADS[w].width) for w in WINDOWS),
        heads=tuple(HEADS[w] for w in WINDOWS), windows=WINDOWS, shared_caches=(1, 2),
        layer_inputs=LayerInputs(16, V), embedding_scale=4.0, eps=1e-3, tied=True,
    )
)  # fmt: skip
WORDS = {
    "model_type": "gemma4_assistant", "backbone_hidden_size": 16,
    "text_config": {
        "vocab_size": V, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "global_head_dim": 6,
        "num_global_key_value_heads": 1, "attention_k_eq_v": True, "sliding_window": 3,
        "layer_types": [SLIDING, SLIDING, FULL], "max_position_embeddings": 256,
        "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
    },
}  # fmt: skip
ORDERED = {
    "use_ordered_embeddings": True, "num_centroids": 4, "centroid_intermediate_top_k": 2,
}  # fmt: skip
PROMPTS = [[3, 4, 5, 6, 7, 8, 9, 2, 3, 4], [6], [7, 8, 9, 2, 3, 4], [2, 2]]
STRATEGIES = {
    "chain": specjax.strategy(drafter="assistant", length=3),
    "confident": specjax.strategy(drafter="assistant", length=4, confidence=0.2),
    "tree": specjax.strategy(drafter="assistant", widths=(3, 2, 1)),
    "nodes": specjax.strategy(drafter="assistant", widths=(4, 3, 2), nodes=9),
}


def make(**changes: Any) -> tuple[Assistant, Any]:
    """An assistant of random weights that its target does not complete yet."""
    config = parse_config("config.json", WORDS | changes, None, jnp.float32)[1]
    model = Assistant(config)
    params = jax.tree.map(lambda x: 1.5 * x, jax.jit(model.init)(jax.random.key(2)))
    if config.centroids:
        params["order"] = jax.random.permutation(jax.random.key(5), V)
    return model, params


@functools.cache
def parts(ordered: bool = False) -> tuple[Any, dict[str, Any]]:
    """The target and the assistant fitted to it, and their parameters."""
    drawn = jax.tree.map(lambda x: 1.5 * x, jax.jit(TARGET.init)(jax.random.key(1)))
    model, params = make(**(ORDERED if ordered else {}))
    model = model.adapt_to(TARGET)
    own = {name: x for name, x in params.items() if name not in ("embedding", "target_norm")}
    own = complete_params(model.config, own | {"ids": jnp.arange(V)}, drawn)
    return (("target", TARGET), ("drafter", model)), {"target": drawn, "drafter": own}


def decode_prompts(strategy: Strategy, ordered: bool = False) -> Any:
    models, params = parts(ordered)
    return run(models, params, strategy, PROMPTS, LIMIT)


@pytest.mark.parametrize("ordered", [False, True], ids=["all ids", "ids of centroids"])
@pytest.mark.parametrize("name", STRATEGIES)
def test_drafts_leave_the_tokens_of_the_target(name: str, ordered: bool) -> None:
    found = decode_prompts(STRATEGIES[name], ordered)
    assert texts(found) == texts(decode_prompts(autoregressive()))
    assert np.sum(found.trace.accepted) > 3


class OnPlainCaches(Decoder):
    """A decode without rings."""

    ahead = None


@functools.partial(jax.jit, static_argnames="made")
def first_logits(made: Decoder, params: Any, state: State) -> jax.Array:
    """Logits [B, V] of the first token of each row's draft."""
    own = state.context, state.memory.own
    return made.drafter.open(made.env(params), state.caches, own[1], own[0])[0]


@pytest.mark.parametrize("rings", [False, True], ids=["plain", "rings"])
@pytest.mark.parametrize("name", ["chain", "tree"])
def test_in_every_round_a_draft_begins_as_after_the_same_text_as_a_prompt(
    name: str, rings: bool
) -> None:
    """What the target rejected is in its caches, and seen by nobody.

    Norms of small numbers magnify rounding to 6e-4.
    """
    (models, params), strategy = parts(), STRATEGIES[name]
    made = decoder(models, strategy, LIMIT)
    if not rings:
        fields = {each.name: getattr(made, each.name) for each in dataclasses.fields(made)}
        made = OnPlainCaches(**fields)
    prompt, length, keys, limits = inputs(PROMPTS, LIMIT)
    limits -= jnp.array([0, 25, 5, 1])  # rows end at different rounds
    begin = functools.partial(first_state, made, params)
    state, rounds = begin(prompt, length, keys, limits, strategy.options()), 0
    while bool(state.context.active.any()):
        text, active = state.context, np.asarray(state.context.active)
        same = begin(text.tokens, text.length, keys, limits, strategy.options())
        expected = first_logits(made, params, same)[active]
        np.testing.assert_allclose(
            first_logits(made, params, state)[active], expected, rtol=1e-3, atol=1e-3
        )
        assert all(
            keys.shape[2] == 1 for keys, _ in state.caches["drafter"].data["memory"].values()
        )
        state, rounds = one_round(made, params, state), rounds + 1
    assert rounds > 5 and state.caches["drafter"].data["own"] == []


@pytest.mark.parametrize("name", ["chain", "tree"])
def test_refilled_rows_have_the_tokens_of_one_batch(name: str) -> None:
    models, params = parts()
    target, drafter = (LoadedModel(m, params[key], None, key) for key, m in models)
    generator = specjax.Generator(target, {"drafter": drafter}, STRATEGIES[name], max_new_tokens=20)
    draw = np.random.default_rng(3)
    prompts = [draw.integers(2, V, n).tolist() for n in draw.permutation(np.arange(1, 80, 7))]
    found = generator(prompts, batch_size=3).tokens
    plain = specjax.Generator(target, {}, autoregressive(), max_new_tokens=20)
    assert found == generator(prompts).tokens == plain(prompts).tokens


@pytest.mark.parametrize("changes", [{}, ORDERED], ids=["all ids", "ids of centroids"])
def test_an_export_is_read_as_it_was(changes: dict[str, Any], tmp_path: Path) -> None:
    model, params = make(**changes)
    huggingface.save(tmp_path, model, params)
    loaded = huggingface.load(tmp_path)
    assert loaded.model == model
    lent = {"embedding", "target_norm", "ids"}
    assert loaded.params.keys() == params.keys() - lent
    for name, tree in loaded.params.items():
        jax.tree.map(np.testing.assert_array_equal, tree, params[name])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"vocab_size": 13}, "made for a target of 12 ids; this one has 13"),
        ({"windows": (4, 0, 4, 0, 4)}, "width 8 and window 3 .* has 2 and 8 and 4"),
        ({"windows": (), "heads": (), "ropes": ()}, "window 3 .* has none"),
        ({"heads": (Heads(1, 8),) * 5, "ropes": ()}, "2 key heads of width 8 .* has 1 and 8"),
        ({"d_model": 24}, "made for a target of width 16; this one has 24"),
    ],
)
def test_another_target_is_refused(changes: dict[str, Any], words: str) -> None:
    target = Causal(dataclasses.replace(TARGET.config, **changes))
    with pytest.raises(UserError, match=words):
        drafter = LoadedModel(make()[0], None, None, "drafter")
        fitted = fit(LoadedModel(target, None, None, "target"), {"drafter": drafter})
        drafter = fitted.members["drafter"].model
        env = STRATEGIES["chain"].decoder((("target", target), ("drafter", drafter)), 4)
        decoding_state.check_resources(env, {"target": None, "drafter": None})


def test_no_other_objective_trains_an_assistant() -> None:
    words = "it must be 'assistant', as the model is .* of family 'gemma4_assistant'"
    with pytest.raises(UserError, match=words):
        given = ConfigDict({"objective": {"name": "distillation"}})
        check_objective(given, Distillation(), make()[0])
