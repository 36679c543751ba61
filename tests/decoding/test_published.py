"""Published drafters beside a target: what they leave to it, and the target's own tokens."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path

import jax
import numpy as np
import pytest
from published import GOLDEN, edit_drafter, without

import specjax
from specjax.loading import LoadedModel
from specjax.models.causal import Causal, CausalConfig
from specjax.models.positions import Rope
from specjax.pair import fit
from specjax.runtime.errors import UserError

V, LENGTH, LIMIT = 96, 3, 12
PROMPTS = [[2, 3, 40, 5, 77, 60, 8], [2], [2, 9, 33, 14, 81, 6, 7, 90, 11]]
SHAPE = CausalConfig(
    "llama", V, d_model=24, d_ff=32, num_layers=7, num_heads=2, num_kv_heads=1, d_head=12,
    max_positions=64, rope=Rope(12), eos=(1,),
)  # fmt: skip


@functools.cache
def target() -> LoadedModel:
    model = Causal(SHAPE)
    params = jax.tree.map(lambda x: x * 1.3, model.init(jax.random.key(3)))
    return LoadedModel(model, params, name="target")


def decode(
    drafter: LoadedModel | None, strategy, owner: LoadedModel | None = None, prompts=PROMPTS
):
    drafters = {} if drafter is None else {"drafter": drafter}
    generator = specjax.Generator(owner or target(), drafters, strategy, max_new_tokens=LIMIT)
    return generator(prompts)


@functools.cache
def alone() -> list[list[int]]:
    return decode(None, specjax.autoregressive()).tokens


@pytest.mark.slow
def test_a_drafter_without_embedding_writes_the_targets_own_tokens(tmp_path: Path) -> None:
    folder = edit_drafter(tmp_path / "drafter", "eagle3", without("embed_tokens.weight"))
    drafter = specjax.load(folder)
    assert "embedding" not in drafter.params
    strategy = specjax.strategy(drafter="eagle", length=LENGTH)
    assert decode(drafter, strategy).tokens == alone()


@pytest.mark.slow
def test_a_tree_of_a_speculators_drafter_writes_the_targets_own_tokens() -> None:
    drafter = specjax.load(GOLDEN / "eagle3_speculators")
    strategy = specjax.strategy(drafter="eagle", widths=(2, 2), nodes=5)
    assert decode(drafter, strategy).tokens == alone()


@pytest.mark.slow
def test_every_draft_of_a_rigged_drafter_stands(tmp_path: Path) -> None:
    """A target that says one token only, and a drafter that reads it from the target's states."""
    token, place = 51, 17
    state = np.linspace(0.5, 1.5, SHAPE.d_model, dtype=np.float32)

    def silent(path, leaf):
        names = [key.key for key in path]
        return leaf * 0 if {"o", "down"} & set(names) else leaf

    params = jax.tree_util.tree_map_with_path(silent, target().params)
    params["embedding"] = np.tile(state, (V, 1))
    params["head"] = {"kernel": np.outer(state, np.arange(V) == token).astype(np.float32)}

    def rig(tensors):
        small = {n: np.zeros_like(tensors[n]) for n in tensors if n.endswith("weight")}
        made = tensors | small
        made["norm.weight"] = tensors["norm.weight"]
        made["fc.weight"] = np.eye(*tensors["fc.weight"].shape, dtype=np.float32)
        made["lm_head.weight"][place] = state / tensors["norm.weight"]
        ids = np.sort(np.r_[token, np.delete(np.arange(V), token)[: len(tensors["d2t"]) - 1]])
        ids = np.roll(ids, place - int(np.flatnonzero(ids == token)[0]))
        return without("embed_tokens.weight")(made | {"d2t": ids - np.arange(len(ids))})

    drafter = specjax.load(edit_drafter(tmp_path / "drafter", "eagle3", rig))
    owner = dataclasses.replace(target(), params=params)
    prompts = [PROMPTS[0], *PROMPTS[::2]]  # behind a single token there is no state to read
    strategy = specjax.strategy(drafter="eagle", length=LENGTH)
    result = decode(drafter, strategy, owner, prompts)
    assert result.tokens == [[token] * LIMIT] * len(prompts)
    assert result.statistics.acceptance_rate == 1


def test_layers_and_end_are_the_targets_where_the_checkpoint_does_not_say() -> None:
    drafter = specjax.load(GOLDEN / "eagle3_speculators")
    assert drafter.model.config.features == ()
    met = fit(target(), {"drafter": drafter}).drafters["drafter"].model.config
    assert met.features == (2, 3, 4) and met.eos == (1,)


def test_layers_of_a_shallow_target_are_not_guessed() -> None:
    drafter = specjax.load(GOLDEN / "eagle3_speculators")
    shallow = dataclasses.replace(target(), model=Causal(dataclasses.replace(SHAPE, num_layers=6)))
    with pytest.raises(UserError, match=r"drafters\['drafter'\].*at least 7, and this one has 6"):
        fit(shallow, {"drafter": drafter})


def test_an_id_that_the_target_lacks_is_refused(tmp_path: Path) -> None:
    far = edit_drafter(tmp_path / "far", "eagle3", lambda t: t | {"d2t": t["d2t"] + 60})
    with pytest.raises(UserError, match=r"drafters\['drafter'\]: it drafts the id 1\d\d; .* to 95"):
        fit(target(), {"drafter": specjax.load(far)})


def test_a_drafter_of_a_wider_target_is_refused() -> None:
    drafter = specjax.load(GOLDEN / "eagle3")
    model = dataclasses.replace(
        drafter.model, config=dataclasses.replace(drafter.model.config, target_width=32)
    )
    wider = dataclasses.replace(drafter, model=model)
    with pytest.raises(UserError, match="made for a target of width 32; this one has 24"):
        decode(wider, specjax.strategy(drafter="eagle", length=LENGTH))


BLOCK = specjax.strategy(drafter="dflash", length=4)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("weights", ["", "bfloat16"])
def test_a_published_block_writes_the_targets_own_tokens(tied: bool, weights: str) -> None:
    """Its embedding and its output layer are the target's, however these are stored."""
    owner, drafter = target(), specjax.load(GOLDEN / "dflash")
    if tied:
        model = Causal(dataclasses.replace(SHAPE, tied=True))
        rest = {name: tree for name, tree in owner.params.items() if name != "head"}
        owner = dataclasses.replace(owner, model=model, params=rest)
    owner = specjax.quantize(owner, weights)
    met = fit(owner, {"drafter": drafter}).drafters["drafter"]
    assert met.params["embedding"] is owner.params["embedding"] and met.model.info.eos == (1,)
    assert met.model.config.tied is tied and ("head" in met.params) is not tied
    own = decode(None, specjax.autoregressive(), owner).tokens
    assert decode(drafter, BLOCK, owner).tokens == own


def test_a_block_of_another_target_is_refused(tmp_path: Path) -> None:
    drafter = specjax.load(edit_drafter(tmp_path / "deeper", "dflash", num_target_layers=9))
    with pytest.raises(UserError, match="made for a target of depth 9; this one has 7"):
        decode(drafter, BLOCK)
    other = dataclasses.replace(drafter.model.config, target_depth=7, vocab_size=100)
    model = dataclasses.replace(drafter.model, config=other)
    with pytest.raises(ValueError, match="made for a target of vocabulary 100; this one has 96"):
        model.adapt_to(target().model)
    with pytest.raises(UserError, match="has a vocabulary of 100, the target of 96"):
        decode(dataclasses.replace(drafter, model=model), BLOCK)
    wider = dataclasses.replace(SHAPE, d_model=32)
    params = Causal(wider).init(jax.random.key(0))
    owner = LoadedModel(Causal(wider), params, name="target")
    with pytest.raises(UserError, match="made for a target of width 24; this one has 32"):
        decode(specjax.load(GOLDEN / "dflash"), BLOCK, owner)
    with pytest.raises(UserError, match="length is 5; .* blocks of 5 tokens, .* at most 4"):
        decode(specjax.load(GOLDEN / "dflash"), specjax.strategy(drafter="dflash", length=5))
