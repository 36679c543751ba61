"""Published drafters of every exporter beside a tiny target: its own greedy tokens."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import jax.numpy as jnp
import pytest
from drafter_files import BLOCKS, READ, TARGET, target_params, write_checkpoint

import specjax
from specjax.hf import heads
from specjax.hf.huggingface import parse_config
from specjax.loading import LoadedModel
from specjax.runtime.errors import UserError

PROMPTS = [[2, 3, 40, 5, 77, 60, 8], [2], [2, 9, 33, 14, 81, 6, 7, 90, 11]]
LIMIT = 12

EAGLE = specjax.strategy(drafter="eagle", length=3)
BLOCK = specjax.strategy(drafter="dflash", length=3)
CORRECTED = specjax.strategy(drafter="dspark", length=3)
PARALLEL = specjax.strategy(drafter="p_eagle", length=3)
HEADS = specjax.strategy(drafter="medusa", model="target", widths=(2, 1))


@functools.cache
def target() -> LoadedModel:
    return LoadedModel(TARGET, target_params(), name="target")


@functools.cache
def alone() -> list[list[int]]:
    generator = specjax.Generator(target(), {}, specjax.autoregressive(), max_new_tokens=LIMIT)
    return generator(PROMPTS).tokens


def computation(entry) -> tuple:
    """What its programs depend on: all but an epsilon, the base of rotations, and names."""
    if entry["tensors"] == "medusa":
        return (entry["tensors"],)
    shape = parse_config("it", entry["config"], None, jnp.float32)[1]
    rope = dataclasses.replace(shape.rope, theta=1.0)
    alike = {"eps": 1e-6, "rope": rope, "max_positions": 1, "target_name": ""}
    said = {name: value for name, value in alike.items() if hasattr(shape, name)}
    return dataclasses.replace(shape, **said), entry["tensors"]


def cases():
    """The first drafter of each computation."""
    firsts = {}
    for entry in READ:
        firsts.setdefault(computation(entry), entry)
    for entry in firsts.values():
        yield pytest.param(entry, id=entry["name"].replace("/", ":"))


@pytest.mark.slow
@pytest.mark.parametrize("entry", cases())
def test_the_targets_own_tokens_are_written(entry, tmp_path: Path) -> None:
    folder, drafters, tables = write_checkpoint(tmp_path / "it", entry), {}, {}
    if entry["tensors"] == "medusa":
        tables["heads"] = heads.load(folder)
    else:
        drafters["drafter"] = specjax.load(folder)
    others = {"medusa": HEADS, "dflash": BLOCK, "p_eagle": PARALLEL} | dict.fromkeys(
        BLOCKS[1:], CORRECTED
    )
    strategy = others.get(entry["tensors"], EAGLE)
    generator = specjax.Generator(target(), drafters, strategy, tables=tables, max_new_tokens=LIMIT)
    result = generator(PROMPTS)
    assert result.tokens == alone()
    assert result.statistics.drafted > 0


@pytest.mark.parametrize("name", ["nebius/EAGLE3-gpt-oss-20b", "z-lab/Qwen3-8B-DFlash-b16"])
def test_a_drafter_is_no_target(name: str, tmp_path: Path) -> None:
    entry = next(entry for entry in READ if entry["name"] == name)
    drafter = specjax.load(write_checkpoint(tmp_path / "it", entry))
    with pytest.raises(UserError, match="target is .*, a drafter of the family .* in drafters"):
        specjax.Generator(drafter, {}, specjax.autoregressive())
    with pytest.raises(UserError, match="target is .*, a drafter of the family"):
        specjax.BeamGenerator(drafter, {}, specjax.beam_search())
