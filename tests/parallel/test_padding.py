"""Heads of zeros change nothing but how the heads divide."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sessions import model_plans

from specjax.experiments.config.defaults import decode_config, train_config
from specjax.experiments.config.placement import whole_words
from specjax.experiments.train.planning import show_plan
from specjax.models.base import LanguageModel
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.models.t5 import T5, T5Config
from specjax.parallel.padding import pad_model, pad_params
from specjax.parallel.sharding import find_undivided

SIX = T5(
    T5Config(
        vocab_size=64, d_model=24, d_kv=4, d_ff=48, num_heads=6, num_layers=1, num_decoder_layers=2
    )
)
QWEN = Causal(
    CausalConfig(
        family="qwen3", vocab_size=64, d_model=24, d_ff=48, num_layers=2, num_heads=6,
        num_kv_heads=3, d_head=4, max_positions=64, rope=Rope(4), qkv_bias=True, qk_norm=True,
    )
)  # fmt: skip
GPT2 = Causal(
    CausalConfig(
        family="gpt2", vocab_size=64, d_model=24, d_ff=48, num_layers=1, num_heads=6,
        num_kv_heads=6, d_head=4, max_positions=64, gated=False, rms_norm=False, qkv_bias=True,
        out_bias=True, ff_bias=True, tied=True,
    )
)  # fmt: skip


def heads(model: LanguageModel) -> tuple[int, int]:
    config = model.config
    return config.num_heads, getattr(config, "num_kv_heads", config.num_heads)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "ways", "expected"),
    [(SIX, 4, (8, 8)), (SIX, 8, (8, 8)), (QWEN, 4, (8, 4)), (GPT2, 4, (8, 8))],
)
def test_a_padded_model_computes_the_same(
    model: LanguageModel, ways: int, expected: tuple[int, int]
) -> None:
    draws = iter(jax.random.split(jax.random.key(1), 100))
    params = jax.tree.map(
        lambda x: jax.random.normal(next(draws), x.shape), model.init(jax.random.key(0))
    )
    wide = pad_model(model, ways)
    assert heads(wide) == expected and {"heads", "kv_heads"}.isdisjoint(find_undivided(wide, ways))
    tokens, length = jnp.arange(12).reshape(2, 6) + 2, jnp.array([6, 4])
    found = []
    for each, tree in ((model, params), (wide, pad_params(params, wide))):
        cache, _ = each.start(tree, tokens, length, 10)
        found.append(each.extend(tree, tokens[:, :3], cache)[0].logits)
    assert np.abs(found[0]).max() > 0.1
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "ways"),
    [
        ({}, 2),  # they divide
        ({"num_heads": 8, "num_kv_heads": 2}, 4),  # query heads do, and would become twice as many
        ({"num_heads": 6, "num_kv_heads": 1}, 4),  # each device would have as many as now
        ({"num_heads": 6, "num_kv_heads": 3, "wide_qk_norm": True}, 4),  # a norm is over all heads
    ],
)
def test_nothing_is_padded_where_nothing_is_gained(changes: dict, ways: int) -> None:
    same = {"num_heads": 8, "num_kv_heads": 8} | changes
    model = Causal(dataclasses.replace(QWEN.config, **same))
    assert pad_model(model, ways) is model


def test_a_line_says_what_does_not_divide() -> None:
    assert whole_words("drafter", SIX, 2) == ""
    assert whole_words("drafter", SIX, 8, remedy=True) == (
        "drafter: 6 heads do not divide by 8, each device has them whole; config.pad_heads=True"
        " makes the heads 8"
    )
    assert whole_words("model", QWEN, 5) == (
        "model: 64 ids of the vocabulary, 6 query heads, 3 key and value heads and 48 units of the"
        " feed-forward do not divide by 5, each device has them whole"
    )


@pytest.mark.slow
def test_a_plan_says_what_does_not_divide_or_pads_it(capsys) -> None:
    """Flan-T5-small has six heads."""
    config = decode_config(
        target="google/flan-t5-small", drafter="google/t5-v1_1-small", mesh={"data": 1, "model": 8},
        max_prompt_tokens=16, max_new_tokens=8, task="wmt14_ende",
        strategies={"any": {"drafter": "neural", "length": 2}},
    )  # fmt: skip
    before = model_plans(config)["target"]
    said = capsys.readouterr().out
    assert "target: 6 heads do not divide by 8, each device has them whole; config.pad" in said
    assert "\ndrafter:" not in said, "it is whole everywhere"
    config.pad_heads = True
    after = model_plans(config)["target"]
    assert "do not divide" not in capsys.readouterr().out
    assert after.parameter_bytes < 0.6 * before.parameter_bytes
    assert after.cache_bytes < 0.2 * before.cache_bytes


def test_a_plan_of_training_says_what_cannot_be_fully_sharded(capsys) -> None:
    config = train_config(
        model={"checkpoint": "google/t5-v1_1-small"}, mesh={"data": 4, "model": 2}
    )
    whole = show_plan(config)
    assert "whole" not in capsys.readouterr().out
    config.fully_sharded = False
    assert 3.9 < show_plan(config)["parameters"] / whole["parameters"] < 4
    capsys.readouterr()
    config.update(fully_sharded=True, mesh={"data": 5, "model": 3})
    show_plan(config)
    said = capsys.readouterr().out
    assert "1,024 units of the feed-forward do not divide by 3, each device has them whole" in said
    assert "config.mesh.data 5 divides, and are whole over it" in said
