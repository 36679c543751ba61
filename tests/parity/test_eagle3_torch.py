"""Published EAGLE-3 drafters against PyTorch: fresh random weights, and targets of transformers."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decodes import decoder, first_state, inputs, propose
from published import logits

torch = pytest.importorskip("torch")

import specjax  # noqa: E402
from specjax.decoding.strategy import Strategy  # noqa: E402
from specjax.drafting.eagle import Eagle  # noqa: E402
from specjax.hf.huggingface import load  # noqa: E402
from specjax.models.target_shapes import complete_params  # noqa: E402
from specjax.pair import fit  # noqa: E402

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[1] / "golden"
GOLDEN = runpy.run_path(str(FOLDER / "make_eagle3.py"))
TARGETS = runpy.run_path(str(FOLDER / "make_causal.py"))
STRETCHED, LENGTH = GOLDEN["STRETCHED"], 61
TOLERANCE = 1e-4  # logits have a deviation of about 1.5

QWEN = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16, "rope_theta": 1e6}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": GOLDEN["make_config"](rope_theta=500_000.0, rope_scaling=STRETCHED),
    "llama_without_head_dim": GOLDEN["make_config"](head_dim=None, rope_theta=10_000.0),
    "qwen3": GOLDEN["make_config"](**QWEN),
    "wider_target": GOLDEN["make_config"](**QWEN, target_hidden_size=40),
    "all_ids": GOLDEN["make_config"](draft_vocab_size=GOLDEN["VOCABULARY"]),
    "eagle3.1": GOLDEN["make_config"](**QWEN, fc_norm=True, norm_output=True),
    "speculators_llama": GOLDEN["speculators"](
        {"rope_theta": 500_000.0, "rope_scaling": STRETCHED}, norm_before_residual=False
    ),
    "speculators_qwen3": GOLDEN["speculators"](
        {"model_type": "qwen3", **QWEN}, norm_before_residual=True, norm_before_fc=True
    ),
    "speculators_eagle3.1": GOLDEN["speculators"](
        QWEN, norm_before_residual=True, fc_norm=True, norm_output=True
    ),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("part", [LENGTH, 7, 1])
def test_logits_of_random_drafters_equal_pytorch(name: str, part: int, tmp_path: Path) -> None:
    config = SHAPES[name]
    tensors = GOLDEN["weights"](config, seed=11)
    given = GOLDEN["text"](config, seed=12, length=LENGTH)
    first, later, _ = GOLDEN["Drafter"](config, tensors).draft(**given)
    GOLDEN["save"](tmp_path / "it", config, tensors)
    found = load(tmp_path / "it")
    params = complete_params(found.model.config, found.params, {})
    made = logits(found.model, params, *given.values(), part)
    for ours, theirs in zip(made, (first, later), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)


DEPTH, DRAFT, PROMPT = 9, 4, [2, 17, 40, 5, 77, 60, 8, 31, 9]


@pytest.mark.parametrize("family", ["llama", "qwen3"])
@pytest.mark.parametrize("layout", ["published", "speculators"])
def test_drafts_beside_a_target_of_transformers_equal_pytorch(
    family: str, layout: str, tmp_path: Path
) -> None:
    """Layers 2, n/2 and n-3 are those of its `hidden_states`, and the embedding is the target's."""
    width = GOLDEN["WIDTH"]
    size = {"hidden_size": width, "num_hidden_layers": DEPTH, "tie_word_embeddings": False}
    theirs = TARGETS["build"](family, TARGETS["LLAMA"] | size, seed=5)
    theirs.save_pretrained(tmp_path / "target")
    config = GOLDEN["make_config"](**QWEN) if layout == "published" else GOLDEN["speculators"](QWEN)
    tensors = GOLDEN["weights"](config, seed=11, embedded=False)
    GOLDEN["save"](tmp_path / "drafter", config, tensors)
    shared = tensors | {"embed_tokens.weight": theirs.get_input_embeddings().weight.detach()}
    with torch.no_grad():
        read = theirs(torch.tensor([PROMPT]), output_hidden_states=True).hidden_states
    features = torch.cat([read[layer] for layer in (2, DEPTH // 2, DEPTH - 3)], dim=-1)
    reference = GOLDEN["Drafter"](config, shared)
    first, later, drafted = reference.draft(np.array([PROMPT]), features.numpy(), steps=DRAFT)
    best = np.sort(np.concatenate([first[:, -1:], later], axis=1), axis=-1)
    assert np.all(best[0, :DRAFT, -1] - best[0, :DRAFT, -2] > 1e-3)  # no tie

    target = specjax.load(tmp_path / "target")
    loaded = fit(target, {"drafter": specjax.load(tmp_path / "drafter")}).members
    models = tuple((name, entry.model) for name, entry in loaded.items())
    params = {name: entry.params for name, entry in loaded.items()}
    made = decoder(models, Strategy(Eagle(DRAFT)), DRAFT + 2)
    state = first_state(
        made, params, *inputs([PROMPT], DRAFT + 2), Strategy(Eagle(DRAFT)).options()
    )
    draft, *_ = propose(made, made.env(params), state)
    assert np.asarray(draft.tokens)[:, :DRAFT].tolist() == drafted.tolist()
