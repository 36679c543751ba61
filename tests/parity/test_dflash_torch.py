"""Published DFlash drafters against PyTorch: fresh random weights, and targets of transformers."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from decodes import decoder, first_state, inputs, propose
from published import GOLDEN as FOLDER
from published import block_logits

torch = pytest.importorskip("torch")

import specjax  # noqa: E402
from specjax.decoding.strategy import Strategy  # noqa: E402
from specjax.drafting.dflash import DFlash  # noqa: E402
from specjax.hf.huggingface import load  # noqa: E402
from specjax.models.target_shapes import complete_params  # noqa: E402
from specjax.pair import fit  # noqa: E402

pytestmark = pytest.mark.slow

GOLDEN = runpy.run_path(str(FOLDER / "make_dflash.py"))
TARGETS = runpy.run_path(str(FOLDER / "make_causal.py"))
STRETCHED = GOLDEN["EAGLE3"]["STRETCHED"]
LENGTH, TOLERANCE = 61, 1e-4  # logits have a deviation of about 1.5

READ = {"mask_token_id": 2, "target_layer_ids": [5, 0]}
SHAPES: dict[str, dict[str, Any]] = {
    "qwen3": GOLDEN["make_config"](),
    "llama3": GOLDEN["make_config"](rope_theta=500_000.0, rope_scaling=STRETCHED, head_dim=None),
    "biased": GOLDEN["make_config"](attention_bias=True, dflash_config=READ),
    "one_layer": GOLDEN["make_config"](
        num_hidden_layers=1, layer_types=None, block_size=16, num_key_value_heads=4
    ),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("part", [LENGTH - 1, 7, 1])
def test_logits_of_random_blocks_equal_pytorch(name: str, part: int, tmp_path: Path) -> None:
    config = SHAPES[name]
    tensors, tables = GOLDEN["weights"](config, 11), GOLDEN["tables"](config, 12)
    given, size = GOLDEN["text"](config, 13, LENGTH), config["block_size"]
    wanted = GOLDEN["Drafter"](config, tensors, **tables).block_logits(**given, size=size)
    GOLDEN["save"](tmp_path / "it", config, tensors)
    found = load(tmp_path / "it")
    embedding, head = (tables[name].numpy() for name in ("embedding", "head"))
    target = {"embedding": embedding, "head": {"kernel": head.T}}
    params = complete_params(found.model.config, found.params, target)
    made = block_logits(found.model, params, *given.values(), size, part)
    np.testing.assert_allclose(made, wanted, rtol=0, atol=TOLERANCE)


DEPTH, PROMPT = 7, [2, 17, 40, 5, 77, 60, 8, 31, 9]


@pytest.mark.parametrize(("family", "tied"), [("llama", False), ("qwen3", True)])
def test_drafts_beside_a_target_of_transformers_equal_pytorch(
    family: str, tied: bool, tmp_path: Path
) -> None:
    """Layer i is what `hidden_states` has at i + 1; embedding and output layer are the target's."""
    config = GOLDEN["make_config"]()
    size = {"hidden_size": config["hidden_size"], "num_hidden_layers": DEPTH}
    shape = TARGETS["LLAMA"] | size | {"tie_word_embeddings": tied}
    theirs = TARGETS["build"](family, shape, seed=5)
    theirs.save_pretrained(tmp_path / "target")
    tensors = GOLDEN["weights"](config, 11)
    GOLDEN["save"](tmp_path / "drafter", config, tensors)
    with torch.no_grad():
        read = theirs(torch.tensor([PROMPT[:-1]]), output_hidden_states=True).hidden_states
    ids = config["dflash_config"]["target_layer_ids"]
    features = torch.cat([read[number + 1] for number in ids], dim=-1).numpy()
    tables = theirs.get_input_embeddings().weight.detach(), theirs.lm_head.weight.detach()
    reference = GOLDEN["Drafter"](config, tensors, *tables)
    wanted = reference.block_logits(np.array([PROMPT]), features, config["block_size"])
    best = np.sort(wanted, axis=-1)
    assert np.all(best[..., -1] - best[..., -2] > 1e-3)  # no tie

    target, length = specjax.load(tmp_path / "target"), config["block_size"] - 1
    loaded = fit(target, {"drafter": specjax.load(tmp_path / "drafter")}).members
    models = tuple((name, entry.model) for name, entry in loaded.items())
    params = {name: entry.params for name, entry in loaded.items()}
    strategy = Strategy(DFlash(length))
    made = decoder(models, strategy, length + 2)
    state = first_state(made, params, *inputs([PROMPT], length + 2), strategy.options())
    draft, *_ = propose(made, made.env(params), state)
    assert np.asarray(draft.tokens)[:, :length].tolist() == wanted.argmax(-1).tolist()
