"""P-EAGLE drafters against PyTorch: random weights, drafts and training's slots, both layouts."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from specjax.hf.huggingface import load  # noqa: E402
from specjax.models.p_eagle import MASK  # noqa: E402
from specjax.models.target_shapes import complete_params  # noqa: E402

pytestmark = pytest.mark.slow

GOLDEN = runpy.run_path(str(Path(__file__).parents[1] / "golden" / "make_eagle3.py"))
MASK_TOKEN, LAYERS, SLOTS, LENGTH = 93, 3, 5, 37
TOLERANCE = 1e-4  # logits have a deviation of about 1.5

QWEN = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "rope_theta": 1e6}
DEEP = {"num_hidden_layers": LAYERS}
SPECFORGE = {"architectures": ["PEagleDraftModel"], "mask_token_id": MASK_TOKEN, **DEEP}
SPECULATORS = {
    "architectures": ["PEagleSpeculator"],
    "speculators_model_type": "peagle",
    "mask_token_id": MASK_TOKEN,
}
SHAPES: dict[str, dict[str, Any]] = {
    "specforge": GOLDEN["make_config"](
        rope_theta=500_000.0, rope_scaling=GOLDEN["STRETCHED"], **SPECFORGE
    ),
    "all_ids": GOLDEN["make_config"](draft_vocab_size=GOLDEN["VOCABULARY"], **SPECFORGE),
    "normed_residual": GOLDEN["make_config"](**QWEN, norm_before_residual=True, **SPECFORGE),
    "wider_target": GOLDEN["make_config"](**QWEN, target_hidden_size=40, **SPECFORGE),
    "speculators_llama": GOLDEN["speculators"](
        {"rope_theta": 500_000.0, "rope_scaling": GOLDEN["STRETCHED"], **DEEP}, **SPECULATORS
    ),
    "speculators_qwen3": GOLDEN["speculators"](
        {"model_type": "qwen3", **QWEN, **DEEP}, norm_before_fc=True, **SPECULATORS
    ),
    "speculators_norms": GOLDEN["speculators"](
        {**QWEN, **DEEP}, norm_before_residual=True, fc_norm=True, norm_output=True, **SPECULATORS
    ),
}


class Parallel(GOLDEN["Drafter"]):
    """The published forward pass on whole rows: text, then masks, all layers causal."""

    def __init__(self, config: dict[str, Any], tensors: dict[str, Any]) -> None:
        super().__init__(config, tensors)
        self.block = "layers.0"

    def norms_heads(self) -> bool:
        return self.layer is not self.config and self.layer["model_type"] == "qwen3"

    def attend(self, x: Any, residual: Any) -> Any:
        q, k, v = (self.heads(x, name, name != "v") for name in "qkv")
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.fed_forward(residual + self.attended(q, k, v, later))

    @torch.no_grad()
    def slots(self, tokens: np.ndarray, features: np.ndarray) -> np.ndarray:
        """Logits [B, K, U] of all slots after a text [B, T] with the target's states at it."""
        rows, masks = len(tokens), SLOTS - 1
        read = torch.tensor(tokens, dtype=torch.long)[:, 1:]
        read = torch.cat([read, torch.full((rows, masks), MASK_TOKEN)], dim=1)
        hidden = self.tensors["mask_hidden"].expand(rows, masks, -1)
        before = self.fused(torch.cat([torch.tensor(features)[:, :-1], hidden], dim=1))
        embedded = self.tensors["embed_tokens.weight"][read]
        normed = self.norm(before, "layers.0.hidden_norm")
        x = torch.cat([self.norm(embedded, "layers.0.input_layernorm"), normed], dim=-1)
        states = self.attend(x, normed if self.config.get("norm_before_residual") else before)
        for number in range(1, LAYERS):
            self.block = f"layers.{number}"
            states = self.attend(self.norm(states, f"{self.block}.input_layernorm"), states)
        self.block = "layers.0"
        made = self.linear(self.norm(states, "norm"), "lm_head")
        return made[:, -SLOTS:].numpy()


def weights(config: dict[str, Any], seed: int) -> dict[str, Any]:
    """Random tensors of all layers, and of the mask."""
    made = GOLDEN["weights"](config, seed)
    tensors = {name.replace("midlayer.", "layers.0."): x for name, x in made.items()}
    width = GOLDEN["WIDTH"]
    for number in range(1, LAYERS):
        drawn = GOLDEN["weights"](config, seed + number)
        for name, x in drawn.items():
            bare = name.replace("midlayer.", "layers.0.")
            if not bare.startswith("layers.0.") or "hidden_norm" in bare:
                continue
            one = x[:, :width] if any(f".{w}_proj" in bare for w in "qkv") else x
            tensors[bare.replace("layers.0.", f"layers.{number}.")] = one.contiguous()
    target = config.get("target_hidden_size") or width
    generator = torch.Generator().manual_seed(seed)
    tensors["mask_hidden"] = torch.randn(1, 1, 3 * target, generator=generator)
    return tensors


@pytest.mark.parametrize("name", SHAPES)
def test_logits_of_all_slots_equal_pytorch(name: str, tmp_path: Path) -> None:
    config = SHAPES[name]
    tensors = weights(config, seed=21)
    given = GOLDEN["text"](config, seed=22, length=LENGTH)
    tokens, features = jnp.asarray(given["tokens"]), jnp.asarray(given["features"])
    theirs = Parallel(config, tensors)
    GOLDEN["save"](tmp_path / "it", config, tensors)
    found = load(tmp_path / "it")
    model, params = found.model, complete_params(found.model.config, found.params, {})

    rows, begin = len(tokens), jnp.zeros(len(tokens), jnp.int32)
    cache, _ = model.start(params, tokens[:, :1], begin + 1, LENGTH + SLOTS)
    cache = jax.jit(model.read)(params, cache, tokens, features)
    cache = model.absorb(params, cache, features, begin).replace(length=begin + LENGTH - 1)
    fed = jnp.pad(tokens[:, -1:], ((0, 0), (0, SLOTS - 1)), constant_values=MASK)
    output, _ = jax.jit(model.extend)(params, fed, cache)
    ours = np.asarray(output.logits)[..., np.asarray(params["ids"])]
    expected = theirs.slots(given["tokens"], given["features"])
    np.testing.assert_allclose(ours, expected, rtol=0, atol=TOLERANCE)

    anchors = jnp.broadcast_to(jnp.array([LENGTH - 1, 12, 30, 5]), (rows, 4))
    kept = [anchors, anchors, anchors[:, :3], anchors[:, :2]]
    trained = jax.jit(model.compute_rollouts)(params, tokens, features, None, kept)
    for place, anchor in enumerate(np.asarray(anchors[0])):
        text = (given[part][:, : anchor + 1] for part in ("tokens", "features"))
        expected = theirs.slots(*text)
        np.testing.assert_allclose(trained[0][:, anchor], expected[:, 0], atol=TOLERANCE)
        for slot in range(1, SLOTS):
            if place < kept[slot - 1].shape[1]:
                one = trained[slot][:, place]
                np.testing.assert_allclose(one, expected[:, slot], atol=TOLERANCE)
