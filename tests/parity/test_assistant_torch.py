"""Gemma 4 assistants against transformers: the logits of whole drafts, and changed fields."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from mutations import GONE, Mutation, apply_fault, check_alike, each, inside

torch = pytest.importorskip("torch")

from transformers import Gemma4AssistantConfig, Gemma4AssistantForCausalLM  # noqa: E402

import specjax  # noqa: E402
from specjax.loading import LoadedModel  # noqa: E402
from specjax.pair import fit  # noqa: E402
from specjax.runtime.errors import UserError  # noqa: E402

pytestmark = pytest.mark.slow

MAKER = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_causal.py"))
GOLDEN = Path(__file__).parents[1] / "golden" / "gemma4_small"
SLIDING, FULL = "sliding_attention", "full_attention"
TEXT = MAKER["GEMMA4"] | {
    "model_type": "gemma4_text", "vocab_size": MAKER["VOCABULARY"], "hidden_size": 16,
    "attention_k_eq_v": False, "num_hidden_layers": 3, "layer_types": [SLIDING, SLIDING, FULL],
    "sliding_window": 7, "vocab_size_per_layer_input": 0, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
SHAPES = {
    "all ids": {},
    "ids of centroids": {
        "use_ordered_embeddings": True, "num_centroids": 12, "centroid_intermediate_top_k": 3,
    },
}  # fmt: skip
ROWS = np.random.default_rng(5).integers(2, MAKER["VOCABULARY"], (3, 30))
LENGTHS = (3, 12, 30)  # shorter and longer than the window
STEPS = 4


def write_assistant(folder: Path, **shape: Any) -> Any:
    """A random assistant of the golden target."""
    width = json.loads((GOLDEN / "config.json").read_text("utf-8"))["hidden_size"]
    config = Gemma4AssistantConfig(text_config=TEXT, backbone_hidden_size=width, **shape)
    model, generator = Gemma4AssistantForCausalLM(config).eval(), torch.Generator().manual_seed(3)
    MAKER["randomize"](model, generator)
    if model.masked_embedding is not None:
        order = torch.randperm(MAKER["VOCABULARY"], generator=generator)
        model.masked_embedding.token_ordering.copy_(order)
    model.save_pretrained(folder)
    return model


@torch.no_grad()
def their_draft(target: Any, assistant: Any, text: np.ndarray) -> list[np.ndarray]:
    """Logits [V] of each step after a text [T], as transformers' candidate generator calls it."""
    tokens, made = torch.tensor(text[None]), []
    read = {"output_hidden_states": True, "return_shared_kv_states": True, "use_cache": False}
    found = target(tokens[:, :-1], **read)
    state, last = found.hidden_states[-1][:, -1:], tokens[:, -1:]
    for _ in range(STEPS):
        output = assistant(
            inputs_embeds=torch.cat([target.get_input_embeddings()(last), state], dim=-1),
            position_ids=torch.tensor([[len(text) - 1]]),
            shared_kv_states=dict(found.shared_kv_states),
        )
        last, state = output.logits.argmax(-1), output.last_hidden_state
        made.append(output.logits[0, 0].numpy())
    return made


def our_drafts(folder: Path, ahead: int | None = None) -> np.ndarray:
    """Logits [B, STEPS, V] after rows of `LENGTHS`."""
    target = specjax.load(GOLDEN)
    drafter = fit(target, {"drafter": specjax.load(folder)}).members["drafter"]
    rows, length = jnp.asarray(ROWS), jnp.array(LENGTHS)
    read = {"features": drafter.model.config.features, "ahead": ahead}
    cache, reading = target.model.start(target.params, rows, length, 64, **read)
    own, _ = drafter.model.start(drafter.params, rows, length, 64)
    own = drafter.model.read(drafter.params, own, rows, reading.features[0])
    own = drafter.model.borrow(own, cache, length)
    last, made = jnp.take_along_axis(rows, length[:, None] - 1, axis=1), []
    for _ in range(STEPS):
        output, own = drafter.model.extend(drafter.params, last, own)
        last = jnp.argmax(output.logits, axis=-1)
        made.append(output.logits[:, 0])
    return np.stack(made, axis=1)


@pytest.mark.parametrize("ahead", [None, 8], ids=["plain", "rings"])
@pytest.mark.parametrize("name", SHAPES)
def test_drafts_have_the_logits_of_transformers(
    name: str, ahead: int | None, tmp_path: Path
) -> None:
    """Of ids outside of the best centroids transformers has no logits either, but a filler."""
    assistant = write_assistant(tmp_path, **SHAPES[name])
    target = MAKER["AutoModelForCausalLM"].from_pretrained(GOLDEN).eval()
    found = our_drafts(tmp_path, ahead)
    for row, length in zip(range(3), LENGTHS, strict=True):
        for ours, theirs in zip(
            found[row], their_draft(target, assistant, ROWS[row, :length]), strict=True
        ):
            drafted = theirs > theirs.min() if SHAPES[name] else np.full(len(theirs), True)
            assert np.all(ours[~drafted] < -1e8)
            np.testing.assert_allclose(ours[drafted], theirs[drafted], rtol=1e-4, atol=1e-4)


MUTATIONS = [
    *inside(
        "text_config",
        each("sliding_window", 3, None, GONE)
        + each("layer_types", [SLIDING] * 3, [FULL, SLIDING, FULL], [FULL] * 3, GONE)
        + each("num_kv_shared_layers", 0, 1, 2, None)
        + each("hidden_size_per_layer_input", 8, GONE)
        + each("vocab_size_per_layer_input", 96, GONE)
        + each("use_double_wide_mlp", True)
        + each("enable_moe_block", True)
        + each("attention_k_eq_v", True)
        + each("attention_bias", True)
        + each("num_key_value_heads", 1, 4)
        + each("head_dim", 8)
        + each("per_layer_config", {}, GONE)
        + each("final_logit_softcapping", 3.0)
        + each("hidden_activation", "silu", "no_such")
        + each("rms_norm_eps", 0.1)
        + each("rope_parameters", None, GONE)
        + each("use_bidirectional_attention", "all", "vision")
        + each("tie_word_embeddings", False)
        + each("vocab_size", 48)
        + each("model_type", "gemma3_text")
        + each("no_such_field", 1),
    ),
    *each("backbone_hidden_size", 12, GONE, None, "24"),
    *each("use_ordered_embeddings", True, None),
    *each("num_centroids", 4, 0),
    *each("centroid_intermediate_top_k", 1, 0),
    *each("tie_word_embeddings", False, None),
    *each("text_config", None, GONE, []),
    *each("eos_token_id", [3, 9]),
    *each("no_such_field", 1),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("assistant")
    write_assistant(made)
    return made


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_changed_field_changes_the_draft_as_in_transformers(
    mutation: Mutation, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    words = json.loads((folder / "config.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(apply_fault(words, mutation)), "utf-8")

    def theirs() -> Any:
        target = MAKER["AutoModelForCausalLM"].from_pretrained(GOLDEN).eval()
        try:
            assistant = Gemma4AssistantForCausalLM.from_pretrained(tmp_path).eval()
        except Exception as error:  # whatever it is, transformers reads no such file
            return str(error)
        return [their_draft(target, assistant, ROWS[r, :n]) for r, n in enumerate(LENGTHS)]

    def same(expected: Any, found: Any) -> bool:
        return np.allclose(expected, found, rtol=1e-4, atol=1e-4)

    try:
        ours: Any = our_drafts(tmp_path)
    except UserError as error:
        ours = str(error)
    check_alike(mutation, ours, theirs, same)


def test_an_export_is_an_assistant_of_transformers(folder: Path, tmp_path: Path) -> None:
    loaded: LoadedModel = specjax.load(folder)
    loaded.save(tmp_path / "out")
    again = Gemma4AssistantForCausalLM.from_pretrained(tmp_path / "out").eval()
    target = MAKER["AutoModelForCausalLM"].from_pretrained(GOLDEN).eval()
    for row, length in enumerate(LENGTHS):
        expected = their_draft(target, again, ROWS[row, :length])
        np.testing.assert_allclose(our_drafts(folder)[row], expected, rtol=1e-4, atol=1e-4)
