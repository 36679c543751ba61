"""One set of block drafter's tensors in four layouts: the same distributions, bit for bit.

The layouts say with other fields which place a distribution is of, which places see each other, and
after which layers the target's states are read. None of it is in the tensors.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drafter_files import SHAPES, TARGET, Tensors, random_tensors, target_params
from safetensors.numpy import save_file

from specjax.hf.huggingface import load
from specjax.models.base import Params
from specjax.models.correction import BlockLogits
from specjax.models.target_shapes import complete_params

TEXT = np.asarray([[2, 3, 40, 5, 77, 60, 8, 33]])

TABLES = {"embed_tokens.weight": "embedding", "lm_head.weight": "head"}
"""Tensors that two of the layouts copy from the target."""

LAYER = {
    "head_dim": 8, "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 64,
    "layer_types": ["sliding_attention", "full_attention"], "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "sliding_window": 32,
    "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}, "use_sliding_window": True,
    "vocab_size": 96, "model_type": "qwen3",
}  # fmt: skip
FROM_0 = {"mask_token_id": 93, "target_layer_ids": [1, 4, 6]}
FROM_1 = {"mask_token_id": 93, "aux_hidden_state_layer_ids": [2, 5, 7], "block_size": 5}
MARKOV = {"markov_rank": 8, "markov_head_type": "gated"}
CONFIDENCE = {"enable_confidence_head": True, "confidence_head_with_markov": True}
SELECTOR = {"conv_kernel_size": 2, "conv_group_size": 16, "selector_rank": 8, "selector_top_k": 4}

Fields = dict[str, Any]


def z_lab(kind: str) -> Fields:
    """Fields of a drafter in z-lab's layout; the place of a token is a field of Domino's."""
    nested: dict[str, Fields] = {
        "dflash": {},
        "anchor": {"shift_label": True},
        "dspark": {"shift_label": True, **MARKOV, **CONFIDENCE},
        "dflash2": SELECTOR,
    }
    name = "DFlash2DraftModel" if kind == "dflash2" else "DFlashDraftModel"
    causal = {"is_causal": False} if kind == "dflash2" else {}
    fields = {"architectures": [name], "block_size": 5, "num_target_layers": 9, **LAYER, **causal}
    return fields | {"dflash_config": FROM_0 | nested[kind]}


def specforge(kind: str) -> Fields:
    fields = z_lab(kind)
    if kind in ("anchor", "dspark"):
        own = {"projector_type": "dspark", "markov_rank": 0, **fields["dflash_config"]}
        del own["shift_label"]
        return fields | {"architectures": ["DSparkDraftModel"], "dflash_config": own}
    return fields | {"dflash_config": fields["dflash_config"] | {"projector_type": "dflash"}}


def deepspec(kind: str) -> Fields:
    own = {**MARKOV, **CONFIDENCE} if kind == "dspark" else {"markov_rank": 0}
    fields = {"architectures": ["Qwen3DSparkModel"], "block_size": 5, "num_target_layers": 9}
    return {**fields, **LAYER, **FROM_0, **own, "num_anchors": 512}


def speculators(kind: str) -> Fields:
    own: dict[str, Fields] = {
        "dflash": {},
        "anchor": {"sample_from_anchor": True},
        "dspark": {"sample_from_anchor": True, **MARKOV, **CONFIDENCE},
        "dflash2": SELECTOR,
    }
    type_name = "dflash" if kind == "anchor" else kind
    fields = {"speculators_model_type": type_name, "draft_vocab_size": 96, **FROM_1, **own[kind]}
    return fields | {"transformer_layer_config": LAYER}


LAYOUTS = {
    "dflash": (z_lab, specforge, speculators),
    "anchor": (z_lab, specforge, deepspec, speculators),
    "dspark": (z_lab, specforge, deepspec, speculators),
    "dflash2": (z_lab, speculators),
}
"""The layouts that have words for a kind of drafter."""


def tensors_of(kind: str) -> Tensors:
    """The tensors that all layouts of a kind share."""
    layout = "dflash" if kind == "anchor" else kind
    tensors = random_tensors(SHAPES[layout](z_lab(kind)), 7)
    if kind == "dspark":
        width = 32 + MARKOV["markov_rank"]
        gate = {"weight": (MARKOV["markov_rank"], width), "bias": (MARKOV["markov_rank"],)}
        shapes = {f"markov_head.gate_proj.{name}": shape for name, shape in gate.items()}
        tensors |= random_tensors(shapes, 8)
    return tensors


def copies() -> Tensors:
    params = target_params()
    made = {"embedding": params["embedding"], "head": params["head"]["kernel"].T}
    return {name: np.array(made[key]) for name, key in TABLES.items()}


@functools.cache
def states_by_layer() -> tuple[jax.Array, ...]:
    """The target's states [1, T, E] at the text, after each of its layers."""

    def read(params: Params) -> tuple[jax.Array, ...]:
        cache, _ = TARGET.start(params, TEXT[:, :1], jnp.ones(1, jnp.int32), TEXT.shape[1])
        layers = tuple(range(1, TARGET.info.depth + 1))
        return tuple(TARGET.extend(params, TEXT, cache, features=layers)[0].features)

    return jax.jit(read)(target_params())


def distributions(folder: Path, fields: Fields, tensors: Tensors) -> BlockLogits:
    """What the drafter of these files gives behind a text, as a user's target meets it."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(fields), "utf-8")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    found = load(folder)
    drafter = found.model.adapt_to(TARGET)
    params = complete_params(drafter.config, found.params, target_params())
    read = [states_by_layer()[layer - 1] for layer in drafter.config.features]
    states, anchors = jnp.concatenate(read, axis=-1), jnp.asarray([[3]])
    made = drafter.compute_block_logits(params, TEXT, states, None, anchors, 5)
    return made.replace(logits=jax.nn.softmax(made.logits))


@pytest.mark.slow
@pytest.mark.parametrize("kind", LAYOUTS)
def test_all_layouts_give_the_same_distributions(kind: str, tmp_path: Path) -> None:
    tensors, made = tensors_of(kind), []
    for layout in LAYOUTS[kind]:
        own = copies() if layout in (deepspec, speculators) else {}
        made.append(distributions(tmp_path / layout.__name__, layout(kind), tensors | own))
    for other in made[1:]:
        jax.tree.map(np.testing.assert_array_equal, other, made[0])
    assert made[0].logits.shape == (1, 1, 4 if kind in ("dflash", "dflash2") else 5, 96)


@pytest.mark.slow
def test_tables_that_a_file_leaves_out_are_the_targets(tmp_path: Path) -> None:
    tensors, fields = tensors_of("dflash"), speculators("dflash")
    left = distributions(tmp_path / "left", fields, tensors)
    own = distributions(tmp_path / "own", fields, tensors | copies())
    np.testing.assert_array_equal(left.logits, own.logits)


WRONG = {
    "anchor_first": (("dflash", z_lab, {"dflash_config": {**FROM_0, "shift_label": True}}),
                     ("dflash", speculators, {"sample_from_anchor": True}),
                     ("dspark", speculators, {"sample_from_anchor": False})),
    "is_causal": (("dflash", z_lab, {"is_causal": False}),
                  ("dspark", deepspec, {"is_causal": True}),
                  ("dspark", speculators, {"sliding_window_non_causal": True})),
    "ids": (("dflash", z_lab, {"dflash_config": {**FROM_0, "target_layer_ids": [2, 5, 7]}}),
            ("dspark", deepspec, {"target_layer_ids": [0, 3, 5]}),
            ("dspark", speculators, {"aux_hidden_state_layer_ids": [1, 4, 6]})),
}  # fmt: skip
"""A wrong reading of each convention, in layouts that say it with other fields."""


@pytest.mark.slow
@pytest.mark.parametrize("convention", WRONG)
def test_a_wrong_convention_changes_the_distributions(convention: str, tmp_path: Path) -> None:
    for number, (kind, layout, fields) in enumerate(WRONG[convention]):
        right, wrong = (
            distributions(tmp_path / f"{number}{name}", layout(kind) | changed, tensors_of(kind))
            for name, changed in (("right", {}), ("wrong", fields))
        )
        both = min(right.logits.shape[2], wrong.logits.shape[2])
        apart = jnp.abs(right.logits[:, :, :both] - wrong.logits[:, :, :both]).sum(axis=-1) / 2
        # The last place of a block sees all others in a causal layer too.
        places = apart[..., :-1] if convention == "is_causal" else apart
        assert float(places.min()) > 0.01, (kind, layout.__name__)
