"""Published drafters in the layouts of other exporters against PyTorch, logits by logits."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drafter_files import READ, draw_tensors, layer_words, write_checkpoint
from published import GOLDEN as FOLDER
from published import block_logits, logits

torch = pytest.importorskip("torch")

from transformers import LlamaConfig  # noqa: E402
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS  # noqa: E402

from specjax.hf.huggingface import load  # noqa: E402
from specjax.models.target_shapes import complete_params  # noqa: E402

pytestmark = pytest.mark.slow

EAGLE3 = runpy.run_path(str(FOLDER / "make_eagle3.py"))
DFLASH = runpy.run_path(str(FOLDER / "make_dflash.py"))
TOLERANCE, LENGTH = 1e-4, 41  # logits have a deviation of about 1.5

DRAFTERS = (
    "nebius/EAGLE3-gpt-oss-20b",  # YaRN, and a plain name
    "nvidia/gpt-oss-120b-Eagle3-long-context",  # Model Optimizer's layers.0, and its YaRN
    "nvidia/Llama-3.3-70B-Instruct-Eagle3",
    "yuhuili/EAGLE3-Vicuna1.3-13B",  # all ids, and the target's number of layers
    "RedHatAI/gemma-4-31B-it-speculator.eagle3",  # EAGLE 3.1, saved by transformers 5
    "AngelSlim/Qwen3-1.7B_eagle3",  # which says that its output layer is tied
)
BLOCKS = ("nvidia/Kimi-K2.5-DFlash", "AngelSlim Qwen3-4B DFlash")


class Turned:
    """Rotations by YaRN, in transformers' numbers."""

    def stretch(self) -> tuple[Any, float]:
        words = self.layer
        if (words.get("rope_scaling") or {}).get("rope_type") != "yarn":
            return super().waves(), 1.0
        read = ("hidden_size", "num_attention_heads", "head_dim", "max_position_embeddings")
        rope = {"rope_theta": words["rope_theta"]} | words["rope_scaling"]
        config = LlamaConfig(**{name: words[name] for name in read}, rope_parameters=rope)
        return ROPE_INIT_FUNCTIONS["yarn"](config, torch.device("cpu"))

    def waves(self) -> Any:
        return self.stretch()[0].double()

    def heads(self, x: Any, name: str, turned: bool, *place: Any) -> Any:
        made = super().heads(x, name, turned, *place)
        return made * self.stretch()[1] if turned else made


class Drafter(Turned, EAGLE3["Drafter"]):
    """The published layer."""


class Block(Turned, DFLASH["Drafter"]):
    """The published block."""


def entry_of(name: str) -> dict[str, Any]:
    return next(entry for entry in READ if entry["name"] == name)


def plain(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration in the older words for rotations, which the reference reads."""
    layer = dict(layer_words(config))
    rope = layer.pop("rope_parameters", None) or {}
    layer = {name: rope[name] for name in rope if name == "rope_theta"} | layer
    if (layer.get("rope_scaling") or {}).get("rope_type") == "default":
        layer["rope_scaling"] = None
    if "transformer_layer_config" in config:
        return config | {"transformer_layer_config": layer}
    return {"num_key_value_heads": layer["num_attention_heads"]} | layer


def as_torch(tensors: dict[str, np.ndarray], block: str) -> dict[str, Any]:
    """Tensors under the names that the reference has for the layer."""
    return {
        name.replace("midlayer.", f"{block}.").replace("layers.0.", f"{block}."): torch.tensor(one)
        for name, one in tensors.items()
    }


@pytest.mark.parametrize("name", DRAFTERS)
def test_logits_of_a_drafter_equal_pytorch(name: str, tmp_path: Path) -> None:
    entry = entry_of(name)
    config, tensors = plain(entry["config"]), draw_tensors(entry)
    layer = layer_words(config)
    embedding = tensors.get(
        "embed_tokens.weight",
        np.random.default_rng(5).normal(0, 1, (layer["vocab_size"], layer["hidden_size"])),
    ).astype(np.float32)
    given = EAGLE3["text"](config, seed=12, length=LENGTH)
    shared = {"embed_tokens.weight": embedding}
    reference = Drafter(config, {})
    reference.tensors = as_torch(tensors | shared, reference.block)
    first, later, _ = reference.draft(**given)
    found = load(write_checkpoint(tmp_path / "it", entry))
    params = complete_params(found.model.config, found.params, {"embedding": embedding})
    made = logits(found.model, params, *given.values(), 7)
    for ours, theirs in zip(made, (first, later), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("name", BLOCKS)
def test_logits_of_a_block_equal_pytorch(name: str, tmp_path: Path) -> None:
    entry = entry_of(name)
    config = plain(entry["config"])
    tables, given = DFLASH["tables"](config, 12), DFLASH["text"](config, 13, LENGTH)
    tensors = {name: torch.tensor(one) for name, one in draw_tensors(entry).items()}
    wanted = Block(config, tensors, **tables).block_logits(**given, size=config["block_size"])
    found = load(write_checkpoint(tmp_path / "it", entry))
    embedding, head = (tables[table].numpy() for table in ("embedding", "head"))
    target = {"embedding": embedding, "head": {"kernel": head.T}}
    params = complete_params(found.model.config, found.params, target)
    made = block_logits(found.model, params, *given.values(), config["block_size"], 7)
    np.testing.assert_allclose(made, wanted, rtol=0, atol=TOLERANCE)
