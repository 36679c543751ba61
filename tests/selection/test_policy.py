"""The policy's network, its folder, and what it refuses to be used for."""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models.shapes import get_parameter_shapes
from specjax.runtime.errors import UserError
from specjax.runtime.files import MANIFEST
from specjax.selection import policy as policies
from specjax.selection.policy import ENCODER_MEAN, Policy, check, load, logits, save
from specjax.selection.reward import Reward

MADE = Policy(("none", "small", "base"), ENCODER_MEAN, 6, Reward(align_weight=0.25), hidden=8)
PARAMS = MADE.init(jax.random.key(1))


def test_logits_are_those_of_two_tanh_layers():
    rows = np.random.default_rng(0).normal(size=(4, 6))
    tree = jax.tree.map(lambda x: np.asarray(x, np.float64), PARAMS)
    hidden = rows
    for name in ("first", "second"):
        hidden = np.tanh(hidden @ tree[name]["kernel"] + tree[name]["bias"])
    expected = hidden @ tree["out"]["kernel"] + tree["out"]["bias"]
    found = logits(PARAMS, jnp.asarray(rows, jnp.float32))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(logits(PARAMS, jnp.asarray(rows[:1])), expected[:1], atol=1e-5)


def test_the_published_shape_is_the_default():
    made = Policy(("a", "b"), ENCODER_MEAN, 384)
    shapes = get_parameter_shapes(made)
    assert [shapes[n]["kernel"].shape for n in policies.LAYERS] == [
        (384, 512), (512, 512), (512, 2),
    ]  # fmt: skip


def test_a_policy_survives_its_folder_and_replaces_an_older_one(tmp_path):
    save(tmp_path / "policy", Policy(("x", "y"), ENCODER_MEAN, 3), {"first": {"bias": jnp.ones(2)}})
    save(tmp_path / "policy", MADE, PARAMS)
    again, params = load(tmp_path / "policy")
    assert again == MADE and hash(again) == hash(MADE)
    jax.tree.map(np.testing.assert_array_equal, params, PARAMS)
    assert [each.name for each in tmp_path.iterdir()] == ["policy"]
    assert {each.name for each in (tmp_path / "policy").iterdir()} == {
        policies.SHAPE, policies.WEIGHTS, MANIFEST,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arms", "source", "width", "named"),
    [
        (("none", "small"), ENCODER_MEAN, 6, "chooses among none, small, base"),
        (("small", "none", "base"), ENCODER_MEAN, 6, "in this order"),
        (MADE.arms, "last_prompt_state", 6, "last_prompt_state of width 6; the policy reads"),
        (MADE.arms, ENCODER_MEAN, 7, "of width 7; the policy reads encoder_mean of width 6"),
    ],
)
def test_arms_and_embeddings_that_do_not_match_are_refused(arms, source, width, named):
    check(MADE, MADE.arms, ENCODER_MEAN, 6)
    with pytest.raises(UserError, match=named) as refused:
        check(MADE, arms, source, width)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"arms": ["only"]}, "arms is"),
        ({"arms": ["a", "a"]}, "arms is"),
        ({"source": "pooled"}, "source is 'pooled'"),
        ({"width": 0}, "width is 0"),
        ({"width": "six"}, "describes no policy"),
        ({"width": 5}, r"'first.kernel' of shape \(6, 8\); policy.json asks for \(5, 8\)"),
        ({"reward": {"kind": "luck"}}, "kind is 'luck'"),
        ({"reward": None}, "describes no policy"),
        ({"extra": 1}, "describes no policy"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(fields, named, tmp_path):
    save(tmp_path / "policy", MADE, PARAMS)
    file = tmp_path / "policy" / policies.SHAPE
    file.write_text(json.dumps(json.loads(file.read_text("utf-8")) | fields), "utf-8")
    with pytest.raises(UserError, match=named) as refused:
        load(tmp_path / "policy")
    assert "\n" not in str(refused.value)


def test_a_folder_without_a_policy_and_damaged_weights_are_refused(tmp_path):
    with pytest.raises(UserError, match="not a folder with policy.json"):
        load(tmp_path / "nowhere")
    save(tmp_path / "policy", MADE, PARAMS)
    file = tmp_path / "policy" / policies.WEIGHTS
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(UserError, match="not a readable safetensors file"):
        load(tmp_path / "policy")
