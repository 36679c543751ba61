"""Feature drafters of every family of targets: shaped for it, trained, kept, and drafting.

The targets are the golden checkpoints; prompts are longer than their sliding windows.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import jax
import numpy as np
import pytest
from decodes import run, texts
from golden_models import GOLDEN
from ml_collections import ConfigDict

import specjax
from specjax.contracts.registry import OBJECTIVES
from specjax.data.pipeline import pad_batch
from specjax.decoding.strategy import Strategy, autoregressive
from specjax.experiments.train.feature_drafter import (
    adopt_target,
    objective_for,
    take_from_target,
)
from specjax.experiments.train.model import make_model_shape
from specjax.experiments.train.objective import make_frozen
from specjax.experiments.train.subject import make_subject
from specjax.hf import huggingface
from specjax.loading import LoadedModel
from specjax.runtime.errors import UserError
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, train_step

ROTARY = (
    "cwm", "deepseek_v2", "deepseek_v3", "gemma", "gemma2", "gemma3_text", "glm4_moe", "gpt_neox",
    "gpt_oss", "llama", "mistral", "mixtral", "olmo2", "phi3", "phi4", "qwen2", "qwen2_moe",
    "qwen3", "qwen3_moe", "smollm3",
    "cohere2", "exaone4", "falcon", "glm", "olmo", "phi",
    "qwen3_5_text", "qwen3_next", "gemma4_small", "granitemoehybrid", "bamba", "phimoe",
    "llama4_text", "nemotron_h", "mistral4", "gemma3n_text",
)  # fmt: skip
ENCODERS = (
    "bart", "led", "longt5", "m2m_100", "marian", "marian_two", "mbart", "mt5", "pegasus",
    "pegasus_x", "switch_transformers", "t5_v1_0", "t5_v1_1", "t5gemma", "t5gemma2", "umt5",
)  # fmt: skip
OTHER_POSITIONS = ("bloom", "gpt2", "mpt", "opt", "opt_350m")
LIKE_LLAMA = (
    "deepseek_v2", "deepseek_v3", "glm4_moe", "llama", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe",
    "olmo2", "phi3", "phi4", "smollm3", "cwm",
)  # fmt: skip
"""Families whose layers a head for multi-token prediction can have."""
SHAPES = {
    "eagle": {"draft_vocab_size": 60},
    "p_eagle": {"draft_vocab_size": 60},
    "dflash": {"draft_vocab_size": 60, "block_size": 3},
    "assistant": {"draft_vocab_size": 60},
    "mtp": {},
}
STRATEGIES = {
    "eagle": (
        specjax.strategy(drafter="eagle", length=3),
        specjax.strategy(drafter="eagle", widths=(3, 2)),
    ),
    "p_eagle": (
        specjax.strategy(drafter="p_eagle", length=2),
        specjax.strategy(drafter="p_eagle", widths=(3, 2)),
    ),
    "dflash": (specjax.strategy(drafter="dflash", length=2),),
    "assistant": (
        specjax.strategy(drafter="assistant", length=3),
        specjax.strategy(drafter="assistant", widths=(3, 2)),
    ),
}
STRATEGIES["mtp"] = STRATEGIES["eagle"]
PROMPTS = [[3, 40, 5, 6, 71, 8, 9, 10, 11, 12, 93, 14], [4, 9], [7, 8, 9, 2, 3]]
LIMIT, STEPS = 12, 40

KINDS = ("eagle", "p_eagle", "dflash", "assistant")
LENDS_NO_CACHE = {
    ("assistant", family)
    for family in (
        "deepseek_v2",
        "deepseek_v3",
        "gemma4_small",
        "mistral",
        "mistral4",
        "mixtral",
        "phimoe",
    )
}
"""Latent keys, windows in all layers, or heads unlike those that the target's shape gives."""
EVERY = [
    (family, f"{kind}_llama")
    for family in ROTARY
    for kind in KINDS
    if (kind, family) not in LENDS_NO_CACHE
]
EVERY += [(family, f"{kind}_t5") for family in ENCODERS for kind in KINDS]
EVERY += [(family, "mtp") for family in LIKE_LLAMA]


@functools.cache
def target(family: str) -> LoadedModel:
    loaded = huggingface.load(GOLDEN / family)
    return LoadedModel(loaded.model, loaded.params)


def decode_prompts(family: str, strategy: Strategy, drafter: LoadedModel | None = None):
    """The whole decode of the prompts."""
    models, params = [("target", target(family).model)], {"target": target(family).params}
    if drafter:
        models, params = (
            [*models, ("drafter", drafter.model)],
            {**params, "drafter": drafter.params},
        )
    return run(tuple(models), params, strategy, PROMPTS, LIMIT)


def method_of(kind: str) -> str:
    """The method of a drafter's `model_type`."""
    return kind.removesuffix("_llama").removesuffix("_t5")


def make_shape(family: str, kind: str, **shape) -> LoadedModel:
    """A drafter of the target's own shape as far as nothing else is said."""
    words = {"model_type": kind, **SHAPES[method_of(kind)], **shape}
    of_target = target(family).model
    ends = {"eos_token_id": of_target.info.eos[0], "pad_token_id": of_target.info.pad}
    model = make_model_shape(
        ConfigDict({"shape": words}), of_target.info.vocab_size, ends, of_target
    )
    model = model.adapt_to(of_target)
    return LoadedModel(model, jax.jit(model.init)(jax.random.key(0)))


def train_drafter(family: str, start: LoadedModel, outputs: list[list[int]]) -> LoadedModel:
    """The drafter behind some steps on what the target says."""
    entry, of_target = OBJECTIVES[objective_for(start.model).strip("'")], target(family)
    objective = entry.cls(**entry.example)
    start = adopt_target(start, of_target, map(np.array, outputs))
    subject = make_subject(objective, start, 0)
    setup = Setup(start.model, objective, Optimizer(STEPS, 1e-2))
    frozen = make_frozen(objective, start, of_target)
    rows = list(zip(PROMPTS, outputs, strict=True))
    batch = pad_batch(rows, 4, of_target.model.info.start_token, of_target.model.info.pad)
    state, losses = setup.start(subject.params), []
    for _ in range(STEPS):
        state, report = train_step(setup, state, frozen, batch)
        losses.append(float(report["loss"]))
    assert losses[-1] < losses[0]
    return LoadedModel(start.model, subject.model_params(state.params))


def keep_read(drafter: LoadedModel, folder: Path, family: str) -> LoadedModel:
    """What is read of the drafter's files, and of its target's, which must be the drafter."""
    huggingface.save(folder, drafter.model, drafter.params)
    loaded = huggingface.load(folder)
    model = loaded.model.adapt_to(target(family).model)
    params = take_from_target(model, loaded.params, target(family))
    assert model.config == drafter.model.config
    jax.tree.map(np.testing.assert_array_equal, params, drafter.params)
    return LoadedModel(model, params)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kind"), EVERY)
def test_a_drafter_is_trained_kept_and_writes_the_targets_own_tokens(family, kind, tmp_path):
    baseline = texts(decode_prompts(family, autoregressive()))
    assert max(map(len, baseline)) == LIMIT
    drafter = keep_read(
        train_drafter(family, make_shape(family, kind), baseline), tmp_path / "drafter", family
    )
    for strategy in STRATEGIES[method_of(kind)]:
        found = decode_prompts(family, strategy, drafter)
        assert texts(found) == baseline
        assert np.sum(found.trace.accepted) > 3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ("eagle_llama", "dflash_llama"))
def test_a_drafter_has_biases_where_its_own_shape_says_so(kind, tmp_path):
    """Of them all are kept. Those of the target are none of the drafter's."""
    assert target("qwen2").model.config.qkv_bias
    without = make_shape("qwen2", kind)
    biased = make_shape("qwen2", kind, attention_bias=True, mlp_bias=True)
    drawn = jax.tree.map(lambda x: x + 1, biased.params)
    keep_read(LoadedModel(biased.model, drawn), tmp_path / "drafter", "qwen2")
    layers = biased.model.info.depth

    def biases(drafter: LoadedModel) -> int:
        flat = jax.tree_util.tree_leaves_with_path(drafter.params)
        return sum(path[-1].key == "bias" for path, _ in flat)

    assert (biases(without), biases(biased)) == (0, layers * len("qkvo") + layers * 3)


REFUSED = [
    *(
        (family, "eagle_llama", "for decoder-only targets; .* has an encoder")
        for family in ENCODERS
    ),
    *(
        ("whisper", f"{kind}_llama", "for decoder-only targets; .* has an encoder")
        for kind in KINDS
    ),
    *((family, "dflash_llama", "rotary; .* has others") for family in OTHER_POSITIONS),
    ("llama", "dflash_t5", "it must be 'dflash_llama' for a decoder-only target"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "kind", "words"), REFUSED)
def test_a_target_that_a_drafter_is_not_made_for_is_refused(family, kind, words):
    with pytest.raises(UserError, match=rf"config.model.shape: model_type is '{kind}'.* {words}"):
        make_shape(family, kind)


def test_an_assistant_reads_the_states_of_one_layer():
    with pytest.raises(UserError, match=r"target_layers is \[1, 2\]; it must be one layer"):
        make_shape("llama", "assistant_llama", target_layers=(1, 2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "kind", "cross", "words"),
    [
        ("t5_v1_1", "eagle_t5", 0, "target_cross_layer is 0; it must be at least 1"),
        ("llama", "dflash_llama", 2, "target_cross_layer is 2; it must be 0"),
    ],
)
def test_a_file_must_say_of_an_encoder_what_its_kind_has(family, kind, cross, words, tmp_path):
    drafter = make_shape(family, kind)
    huggingface.save(tmp_path, drafter.model, drafter.params)
    config = tmp_path / "config.json"
    config.write_text(
        json.dumps(json.loads(config.read_text("utf-8")) | {"target_cross_layer": cross})
    )
    with pytest.raises(UserError, match=words):
        huggingface.load(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["eagle_llama", "p_eagle_llama", "dflash_llama"])
def test_longrope_is_taken_by_heads_as_wide_as_the_targets_only(kind):
    """Phi-3's factors are of the waves of its heads, one by one."""
    assert make_shape("phi3", kind).model.config.rope.kind == "longrope"
    other = {"head_dim": 16, "num_attention_heads": 2, "num_key_value_heads": 2}
    rope = make_shape("phi3", kind, **other).model.config.rope
    assert rope.kind == "default" and rope.theta == target("phi3").model.config.rope.theta
