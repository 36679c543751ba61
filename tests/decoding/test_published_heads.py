"""Published Medusa heads beside their target: its own tokens, and heads of another refused."""

from __future__ import annotations

import functools
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from published import GOLDEN, without
from safetensors.numpy import load_file, save_file

import specjax
from specjax.contracts.env import Bound
from specjax.hf import heads
from specjax.runtime.errors import UserError

LIMIT = 10
PROMPTS = [[2, 3, 40, 5, 77, 60, 8], [2], [2, 9, 33, 14, 81, 6, 7, 90, 11]]
CHAIN = specjax.strategy(drafter="medusa", model="target", length=3)
TREE = specjax.strategy(drafter="medusa", model="target", widths=(2, 2, 1))
OWN = tuple(f"{head}.2.weight" for head in range(3))


@functools.cache
def target():
    return specjax.load(GOLDEN / "llama")


def decode(strategy, loaded=None):
    tables = {} if loaded is None else {"heads": loaded}
    made = specjax.Generator(target(), {}, strategy, tables=tables, max_new_tokens=LIMIT)
    return made(PROMPTS)


def edit(folder: Path, change) -> Path:
    folder.mkdir()
    (folder / "config.json").write_bytes((GOLDEN / "medusa" / "config.json").read_bytes())
    tensors = change(load_file(GOLDEN / "medusa" / "medusa_lm_head.safetensors"))
    save_file(tensors, folder / "medusa_lm_head.safetensors")
    return folder


@functools.cache
def alone():
    return decode(specjax.autoregressive()).tokens


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [CHAIN, TREE], ids=["chain", "tree"])
def test_the_targets_own_tokens_are_written(strategy) -> None:
    assert decode(strategy, heads.load(GOLDEN / "medusa")).tokens == alone()


def test_silent_heads_repeat_the_targets_law_by_its_matrix(tmp_path: Path) -> None:
    """Without output matrices the target's reads the blocks, and these add nothing."""
    silent = edit(
        tmp_path / "it",
        lambda tensors: {name: 0 * tensor for name, tensor in without(*OWN)(tensors).items()},
    )
    loaded = heads.load(silent)
    trunk, hidden = Bound(target().model, target().params), jnp.linspace(-2.0, 2.0, 48)
    made = loaded.heads.compute_logits(loaded.params, hidden.reshape(2, 24), trunk)
    wanted = np.repeat(trunk.read_out(hidden.reshape(2, 1, 24)), 3, axis=1)
    np.testing.assert_allclose(made, wanted, atol=1e-5)


def test_heads_of_another_target_are_refused(tmp_path: Path) -> None:
    fewer = {name: slice(0, 90) for name in OWN}
    folder = edit(
        tmp_path / "ids", lambda tensors: {n: t[fewer.get(n, ...)] for n, t in tensors.items()}
    )
    with pytest.raises(UserError, match="made for a model of 90 ids; 'target' has 96"):
        decode(CHAIN, heads.load(folder))

    def narrow(tensors):
        cut = {
            n: t[..., :20] if n in OWN or t.ndim == 1 else t[:20, :20] for n, t in tensors.items()
        }
        return {name: np.ascontiguousarray(tensor) for name, tensor in cut.items()}

    with pytest.raises(UserError, match="made for a model of width 20; 'target' has 24"):
        decode(CHAIN, heads.load(edit(tmp_path / "width", narrow)))
    with pytest.raises(UserError, match="'heads' holds 3 heads, so it must be at most 3"):
        longer = specjax.strategy(drafter="medusa", model="target", length=4)
        decode(longer, heads.load(GOLDEN / "medusa"))
    with pytest.raises(UserError, match="reads states before the pending token"):
        made = specjax.strategy(drafter="medusa", length=2)
        tables = {"heads": heads.load(GOLDEN / "medusa")}
        specjax.Generator(target(), {"drafter": target()}, made, tables=tables)
