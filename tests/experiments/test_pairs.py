"""The pair of a config as shapes is the pair that a run loads."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import pytest
from ml_collections import ConfigDict

import specjax
from specjax.experiments.config.defaults import decode_config
from specjax.experiments.pairs import describe_pair, load_pair
from specjax.hf import huggingface
from specjax.models.causal import Causal
from specjax.models.whisper import Whisper
from specjax.pair import fit

GOLDEN = Path(__file__).parents[1] / "golden"
VOCABULARY = 96
"""Ids of the published drafters' target."""


def speech(folder: Path) -> ConfigDict:
    """A drafter whose encoder equals its target's."""
    whole = huggingface.load(GOLDEN / "whisper")
    short = Whisper(dataclasses.replace(whole.model.config, num_decoder_layers=1))
    params = {k: v for k, v in whole.params.items() if k not in ("decoder_1", "decoder_2")}
    huggingface.save(folder / "drafter", short, params)
    return decode_config(target=str(GOLDEN / "whisper"), drafter=str(folder / "drafter"))


def features(folder: Path) -> ConfigDict:
    """A published layer on the target's features, which leaves embedding and end to the target."""
    layer = specjax.load(GOLDEN / "eagle3_speculators")
    shape = dataclasses.replace(
        specjax.load(GOLDEN / "llama").model.config,
        vocab_size=VOCABULARY,
        d_model=layer.model.config.target_width,
        num_layers=8,
    )
    target = Causal(shape)
    huggingface.save(folder / "target", target, target.init(jax.random.key(0)))
    return decode_config(target=str(folder / "target"), drafter=str(GOLDEN / "eagle3_speculators"))


def quantize(folder: Path) -> ConfigDict:
    """A copy of the target in fewer bits."""
    del folder
    return decode_config(target=str(GOLDEN / "llama"), drafter="target:int8")


KINDS = pytest.mark.parametrize("made", [speech, features, quantize], ids=lambda one: one.__name__)


@KINDS
def test_a_plan_fits_the_models_that_a_run_fits(made, tmp_path: Path) -> None:
    config = made(tmp_path)
    described, loaded = describe_pair(config), load_pair(config)
    assert described.models == loaded.models
    for name, entry in loaded.members.items():
        assert shapes(described.members[name].params) == shapes(entry.params), name


def shapes(params: Any) -> Any:
    return jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), params)


@KINDS
def test_a_fitted_drafter_stays_as_it_is(made, tmp_path: Path) -> None:
    pair = load_pair(made(tmp_path))
    again = fit(pair.target, pair.drafters)
    assert again.models == pair.models
    before, after = (jax.tree.leaves(p.drafters["drafter"].params) for p in (pair, again))
    assert all(one is other for one, other in zip(before, after, strict=True))
