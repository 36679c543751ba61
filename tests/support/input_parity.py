"""Checks of models that read audio or images, which their tests compare with PyTorch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import specjax
from specjax.decoding.strategy import Strategy
from specjax.hf import huggingface
from specjax.loading import LoadedModel
from specjax.runtime.json_files import write_json

STRATEGIES = {
    "plain": specjax.autoregressive(),
    "chain": specjax.speculative(length=3),
    "tree": specjax.strategy(drafter="neural", widths=(2, 2)),
    "copies": specjax.strategy(drafter="suffix", length=4),
}
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


def check_logits(ours: LoadedModel, prompts: list[Any], target: np.ndarray, expected: Any) -> None:
    """Teacher-forced logits are PyTorch's, to 1e-4 of the largest where that exceeds 1."""
    generator = specjax.Generator(ours)
    batch = generator.batch(generator.encode(prompts), len(prompts))
    cache, _ = ours.model.start(ours.params, batch.tokens, batch.length, target.shape[1])
    found = np.asarray(ours.model.extend(ours.params, target.astype(np.int32), cache)[0].logits)
    assert np.abs(found - expected).max() < 1e-4 * max(1.0, np.abs(expected).max())


def write_texts(
    ours: LoadedModel, prompts: list[Any], strategy: Strategy, limit: int
) -> list[list[int]]:
    """Tokens by a strategy; the model drafts for itself."""
    drafters = {"drafter": ours} if strategy.drafter.spec.models else {}
    return specjax.Generator(ours, drafters, strategy, max_new_tokens=limit)(prompts).tokens


def check_beams(
    ours: LoadedModel, prompts: list[Any], drafter: str, texts: list[list[int]], scores: list[float]
) -> None:
    """The best of three beams of twelve tokens, with or without drafts, and its score."""
    drafting = {"drafter": "neural", "length": 2} if drafter == "neural" else {}
    search = specjax.beam_search(beams=3, **drafting)
    drafters = {"drafter": ours} if drafting else {}
    found = specjax.BeamGenerator(ours, drafters, search, max_new_tokens=12)(prompts)
    assert [row[0].tokens for row in found.hypotheses] == texts
    best = [row[0].score for row in found.hypotheses]
    np.testing.assert_allclose(best, scores, rtol=1e-4, atol=1e-5)


def check_exports(theirs: Any, ours: LoadedModel, folder: Path, logits: Callable[..., Any]) -> None:
    """What is kept and what is made anew loads in transformers, with the same `logits` of it."""
    import torch

    ours.save(folder / "kept")
    huggingface.save(folder / "made", ours.model, ours.params)
    expected = logits(theirs)
    for name in ("kept", "made"):
        again = type(theirs).from_pretrained(folder / name, dtype=torch.float32)
        found, weights = again.state_dict(), theirs.state_dict()
        assert all(torch.equal(found[one], weights[one]) for one in weights.keys() | found.keys())
        # PyTorch's products round by how their weights lie in memory.
        np.testing.assert_allclose(logits(again.eval()), expected, rtol=0, atol=1e-5)
        assert huggingface.load(folder / name).model == ours.model


def check_refusal(golden: Path, change: dict[str, Any], said: str, folder: Path) -> None:
    """The golden configuration with a `change` of its parts is refused in a sentence."""
    config = json.loads((golden / "config.json").read_text("utf-8"))
    for side, fields in change.items():
        config[side] = None if fields is None else config[side] | fields
    write_json(folder / "config.json", config)
    save_file({}, folder / "model.safetensors")
    with pytest.raises(specjax.UserError, match=said):
        specjax.load(folder)
