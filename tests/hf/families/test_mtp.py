"""Heads for multi-token prediction: every layout, what is refused, and what they draft."""

from __future__ import annotations

import dataclasses
import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jax
import numpy as np
import pytest
from mtp_heads import LAYOUTS, change_config, embed_head, write_pair

import specjax
from specjax.hf.descriptions import describe
from specjax.hf.hub import SHAPES
from specjax.hf.huggingface import parse_config
from specjax.models.target_shapes import complete_params
from specjax.runtime.errors import UserError

MIXTURE = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "n_group": 2,
    "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1,
}  # fmt: skip
LATENT = {
    "kv_lora_rank": 10, "q_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 8,
    "v_head_dim": 6, "num_key_value_heads": 4,
}  # fmt: skip
ONE_HEAD = {"num_nextn_predict_layers": 1}
DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 4,
    "linear_value_head_dim": 6, "full_attention_interval": 2, "partial_rotary_factor": 0.5,
}  # fmt: skip
QWEN_EXPERTS = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12,
    "shared_expert_intermediate_size": 12,
}  # fmt: skip
OTHER_LAYERS: dict[str, tuple[str, dict[str, int | float]]] = {
    "deepseek_v3": ("deepseek", ONE_HEAD | MIXTURE | LATENT),
    "glm4_moe": ("deepseek", ONE_HEAD | MIXTURE),
    "qwen3_5_text": ("qwen", DELTA),
    "qwen3_next": ("qwen", DELTA | QWEN_EXPERTS),
}
"""The layout and fields of targets of which the last layers have experts, or are recurrent."""
PROMPTS = [[3, 4, 5, 6], [7, 8], [9, 10, 11, 12, 13, 14, 15]]


@functools.cache
def folders() -> tuple[Path, Path]:
    return write_pair(Path(tempfile.mkdtemp()))


@functools.cache
def load_pair() -> tuple[specjax.LoadedModel, specjax.LoadedModel]:
    target, head = folders()
    return specjax.load(target), specjax.load(head)


def tokens_of(
    strategy: specjax.Strategy | None = None, drafter: specjax.LoadedModel | None = None
) -> Sequence[Sequence[int]]:
    target, head = load_pair()
    drafters = {"drafter": drafter or head} if strategy else None
    generator = specjax.Generator(target, drafters, strategy, max_new_tokens=24)
    return generator(PROMPTS).tokens


@pytest.mark.slow
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_in_a_target_is_the_same_head(layout: str) -> None:
    """The target beside it is read as without one."""
    target, head = folders()
    both = embed_head(target, head, layout)
    own, found = specjax.load(head), specjax.load(f"{both}#mtp")
    assert own.model == found.model
    for one, other in zip(*map(jax.tree.leaves, (own.params, found.params)), strict=True):
        np.testing.assert_array_equal(one, other)
    read = jax.tree.leaves(specjax.load(both).params)
    for one, other in zip(read, jax.tree.leaves(load_pair()[0].params), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_an_export_of_a_head_in_a_target_is_read_back(tmp_path: Path) -> None:
    target, head = write_pair(tmp_path, model_type="qwen2")
    change_config(target, model_type="mimo")
    found = specjax.load(f"{embed_head(target, head, 'mimo')}#mtp")
    assert found.model.config.states_first  # MiMo's order, which no field says
    found.save(tmp_path / "export")
    again = specjax.load(tmp_path / "export")
    assert again.model == found.model
    for one, other in zip(*map(jax.tree.leaves, (again.params, found.params)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_mimo_is_read_as_qwen2_with_its_head(tmp_path: Path) -> None:
    target, head = write_pair(tmp_path, model_type="qwen2")
    both = embed_head(target, head, "mimo")
    change_config(both, model_type="mimo", num_nextn_predict_layers=1)
    twin, model, drafter = map(specjax.load, (target, both, f"{both}#mtp"))
    strategy = specjax.strategy(drafter="eagle", length=3)
    plain = specjax.Generator(twin, max_new_tokens=16)(PROMPTS).tokens
    drafts = specjax.Generator(model, {"drafter": drafter}, strategy, max_new_tokens=16)
    assert drafts(PROMPTS).tokens == plain


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [{"length": 3}, {"widths": [2, 2]}, {"nodes": 6, "widths": [3, 3]}],
    ids=["chain", "tree", "nodes"],
)
def test_drafts_of_a_head_change_no_greedy_token(strategy: dict) -> None:
    drafted = tokens_of(specjax.strategy(drafter="eagle", **strategy))
    for one, other in zip(drafted, tokens_of(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("family", OTHER_LAYERS)
def test_heads_of_other_layers_change_no_greedy_token(family: str, tmp_path: Path) -> None:
    """Of one checkpoint, with experts and the target's attention in the head's layer."""
    layout, fields = OTHER_LAYERS[family]
    target, head = write_pair(tmp_path, model_type=family, **fields)
    both = embed_head(target, head, layout)
    model, drafter = specjax.load(both), specjax.load(f"{both}#mtp")
    plain = specjax.Generator(model, max_new_tokens=24)(PROMPTS).tokens
    for shape in ({"length": 3}, {"widths": [2, 2]}):
        strategy = specjax.strategy(drafter="eagle", **shape)
        drafts = specjax.Generator(model, {"drafter": drafter}, strategy, max_new_tokens=24)
        for one, other in zip(drafts(PROMPTS).tokens, plain, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_the_order_of_what_is_joined_changes_what_is_drafted() -> None:
    target, head = load_pair()
    shape = head.model.adapt_to(target.model).config
    params = complete_params(shape, head.params, target.params)
    text = np.array([[3, 4, 5, 6, 7]])
    features = jax.random.normal(jax.random.key(0), (1, 5, shape.d_model))

    def draft_steps(states_first: bool) -> np.ndarray:
        model = type(head.model)(dataclasses.replace(shape, states_first=states_first))
        return model.unroll_draft(params, jax.numpy.asarray(text), features, None, 1)[0]

    assert np.abs(draft_steps(True) - draft_steps(False)).max() > 0.1


@pytest.mark.slow
def test_what_is_no_such_head_is_refused(tmp_path: Path) -> None:
    target, head = write_pair(tmp_path)
    with pytest.raises(UserError, match=r"it has no head for multi-token prediction \(MTP\)"):
        specjax.load(f"{target}#mtp")
    change_config(target, mtp_num_hidden_layers=2)
    with pytest.raises(UserError, match="mtp_num_hidden_layers is 2; it must be 1: one head"):
        specjax.load(f"{target}#mtp")
    change_config(head, num_nextn_predict_layers=3)
    with pytest.raises(UserError, match="num_nextn_predict_layers is 3; it must be 1: one head"):
        specjax.load(head)
    change_config(head, num_nextn_predict_layers=1, transformer_layer_config={"model_type": "t5"})
    with pytest.raises(UserError, match="model_type is 't5'; the target of a head must be one of"):
        specjax.load(head)


def test_a_head_reads_the_text_part_of_a_model_that_sees() -> None:
    """And is a layer with attention where most of the target's are recurrent."""
    head = describe("Qwen/Qwen3.5-27B#mtp", np.float32).config
    assert (head.layer_family, head.features, head.target_width) == ("qwen3_5_text", (64,), 5120)
    assert not head.recurrences


def test_a_head_with_embeddings_of_its_own_is_refused() -> None:
    fields = SHAPES["deepseek-ai/DeepSeek-V3"] | {"mtp_use_dedicated_embeddings": True}
    with pytest.raises(UserError, match="mtp_use_dedicated_embeddings is True; it must be false"):
        parse_config("target", fields, None, np.float32, head=True)


@pytest.mark.slow
def test_sizes_that_a_difference_leaves_out_are_those_of_the_class(tmp_path: Path) -> None:
    """Speculators writes only what differs from the defaults of transformers' class."""
    _, head = write_pair(tmp_path)
    layer = {"model_type": "qwen3", "num_hidden_layers": 5}
    change_config(head, transformer_layer_config=layer)
    config = describe(head, np.float32).config
    assert (config.d_model, config.vocab_size, config.features) == (4096, 151936, (5,))
