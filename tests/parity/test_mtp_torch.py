"""Heads for multi-token prediction, compared with transformers' `MtpModel` on random targets."""

from __future__ import annotations

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from mtp_heads import JOINED_NAMES
from safetensors.numpy import save_file
from torch_models import make_model, save

torch = pytest.importorskip("torch")

import specjax  # noqa: E402
from specjax.models.layers import call  # noqa: E402
from specjax.models.target_shapes import complete_params  # noqa: E402

pytestmark = pytest.mark.slow
TEXT = np.random.default_rng(5).integers(3, 90, (2, 9))
LENGTH = TEXT.shape[1]
ENDING_IN_ATTENTION = dict.fromkeys(("qwen3_5_text", "qwen3_next"), {"num_hidden_layers": 4})
"""transformers takes the class of a head's norms from the last layer."""


def random_head(target):
    """transformers' head with one layer of the target's kind, and random weights."""
    from transformers.modeling_layers import MtpModel

    target.config.num_mtp_layers = 1
    target.config.mlp_only_layers = []  # the head's layer has experts, as the target's last one
    if getattr(target.config, "layer_types", None) is not None:
        target.config.mtp_layer_types = ["full_attention"]
    head = MtpModel(target, 1).eval()
    torch.manual_seed(11)
    for parameter in head.layers.parameters():
        parameter.data = torch.randn_like(parameter) * 0.3 + (parameter.dim() == 1)
    return head


def write_head(head, folder: Path, target: Path) -> Path:
    """The head in the layout of speculators."""
    tensors = {}
    for name, tensor in head.layers[0].state_dict().items():
        module, _, kind = name.rpartition(".")
        inner = JOINED_NAMES.get(module, module.removeprefix("mtp_block."))
        if module.endswith("mlp.experts"):
            for number, one in enumerate(tensor):
                parts = one.chunk(2) if kind == "gate_up_proj" else [one]
                names = ("gate_proj", "up_proj") if kind == "gate_up_proj" else ("down_proj",)
                for word, part in zip(names, parts, strict=True):
                    tensors[f"mtp_layers.0.{inner}.{number}.{word}.weight"] = part.clone().numpy()
        else:
            tensors[f"mtp_layers.0.{inner}.{kind}"] = tensor.numpy()
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    words = json.loads((target / "config.json").read_text("utf-8"))
    config = {"speculators_model_type": "mtp", "transformer_layer_config": words}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    return folder


def torch_logits(target, head) -> list[np.ndarray]:
    """Logits of two steps: [B, T, V] behind the tokens from 1 on, and from 2 on."""
    ids, positions = torch.tensor(TEXT), torch.arange(1, LENGTH).expand(len(TEXT), -1)
    with torch.no_grad():
        states = target.model(ids).last_hidden_state[:, :-1]
        first = head.forward_layer(0, states, positions, None, input_ids=ids[:, 1:])
        second = []
        for at in range(1, LENGTH - 1):  # the last of so many pairs reads the head's own state
            own = torch.cat([states[:, :at], first[:, at - 1 : at]], dim=1)
            given = {"input_ids": ids[:, 1 : at + 2]}
            second.append(head.forward_layer(0, own, positions[:, : at + 1], None, **given)[:, -1:])
        return [target.lm_head(x).numpy() for x in (first, torch.cat(second, dim=1))]


@pytest.mark.parametrize(
    "family",
    [
        "llama",
        "qwen2",
        "qwen3",
        "qwen3_moe",
        "phi3",
        "glm4_moe",
        "deepseek_v3",
        "qwen3_5_text",
        "qwen3_next",
    ],
)
def test_two_steps_of_a_head_have_the_logits_of_transformers(family: str, tmp_path: Path) -> None:
    model = make_model(family, 3, **ENDING_IN_ATTENTION.get(family, {})).eval()
    save(family, model, tmp_path / "target")
    head = random_head(model)
    target = specjax.load(tmp_path / "target")
    drafter = specjax.load(write_head(head, tmp_path / "head", tmp_path / "target"))
    own = drafter.model.adapt_to(target.model)
    params = complete_params(own.config, drafter.params, target.params)
    text, length = jnp.asarray(TEXT), jnp.full(len(TEXT), LENGTH)
    last = (target.model.config.num_layers,)
    (states,) = call(target.model.module, "states", target.params, text, length, True, last)
    found = own.unroll_draft(params, text, states, None, 2)
    for step, expected in enumerate(torch_logits(model, head)):
        near = 1e-4 * max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(found[step][:, step + 1 :], expected, rtol=1e-4, atol=near)
