"""Decodes models on meshes; run by test_sharded.py in a process with eight CPU devices.

Prints one JSON object: the tokens of every case, and what lies on each device.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax

import specjax
from specjax.decoding.loop import begin_jitted
from specjax.loading import LoadedModel

NEW_TOKENS = 12
PROMPTS = {
    "encoder": [[5, 9, 23, 4, 1], [7, 8, 1], [2, 3, 4, 5, 6, 7, 1], [11, 1]],
    "decoder": [[5, 9, 23, 4], [7, 8], [2, 3, 4, 5, 6, 7], [11]],
}
STRATEGIES = {
    "speculative": specjax.speculative(3),
    "sampled": specjax.speculative(2, temperature=1.0),
    "eagle": specjax.strategy(drafter="eagle", length=3),
    "dflash": specjax.strategy(drafter="dflash", length=3),
    "assistant": specjax.strategy(drafter="assistant", length=3),
}


def pair(
    folder: Path, strategy: str, mesh: Any, ways: int, pad: bool, weights: str
) -> tuple[LoadedModel, LoadedModel]:
    """A target and its drafter over so many ways.

    That is the one that lies beside it for this strategy, else the same weights a little off.
    """
    target = specjax.load(folder, mesh=mesh, pad_heads=pad, weights=weights)
    own = folder.with_name(f"{folder.name}_{strategy}")
    if own.is_dir():
        return target, specjax.load(own, mesh=mesh, ways=ways)
    if weights:
        return target, specjax.load(folder, mesh=mesh, ways=ways, weights="int4:2")
    near = specjax.load(folder, mesh=mesh, ways=ways, pad_heads=pad)
    params = jax.tree.map(lambda x: x * 0.9, near.params)
    return target, LoadedModel(near.model, params, None, "drafter", mesh, ways)


def tokens(
    folder: Path,
    kind: str,
    strategies: list[str],
    mesh: Any = None,
    ways: int = 1,
    pad: bool = False,
    weights: str = "",
    slots: bool = False,
) -> dict:
    """Generated tokens by strategy; with `slots` of twice the prompts, as many as there is data."""
    made, prompts = {}, PROMPTS[kind] * (2 if slots else 1)
    size = 1 if slots else None
    for name in strategies:
        target, drafter = pair(folder, name, mesh, ways, pad, weights)
        generator = specjax.Generator(
            target, {"drafter": drafter}, STRATEGIES[name], max_new_tokens=NEW_TOKENS
        )
        made[name] = generator(prompts, seed=3, batch_size=size).tokens
    return made


def largest_share(tree: Any) -> dict[str, float]:
    """Share of each array that one device holds, by path."""
    flat = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {
        jax.tree_util.keystr(path): max(s.data.size for s in leaf.addressable_shards) / leaf.size
        for path, leaf in flat
        if leaf.size
    }


def shares(
    folder: Path, kind: str, strategy: str, mesh: Any, ways: int, pad: bool, weights: str
) -> dict[str, dict[str, float]]:
    """How parameters and first caches are split."""
    target, drafter = pair(folder, strategy, mesh, ways, pad, weights)
    generator = specjax.Generator(target, {"drafter": drafter}, STRATEGIES[strategy])
    batch = generator.batch(PROMPTS[kind], 4)
    args = (batch.tokens, batch.length, generator.keys(batch, 0), batch.limit)
    state = begin_jitted(generator.decoder, generator.params, *args, generator.options)
    return {
        "target": largest_share(target.params),
        "drafter": largest_share(drafter.params),
        "target_cache": largest_share(state.caches["target"].data),
        "drafter_cache": largest_share(state.caches["drafter"].data),
        "tokens": largest_share(state.context.tokens),
    }


def main(folder: Path, cases: list[dict[str, Any]]) -> None:
    """`cases`: model, kind, mesh, drafter's ways (0: all), padding, weights, strategies, slots."""
    assert len(jax.devices()) == 8
    found = {"alone": {}, "tokens": [], "shares": [], "slots": []}
    for case in cases:
        name, kind, ways = case["model"], case["kind"], case["ways"]
        baseline = found["alone"].setdefault(name, {})
        new, weights = [s for s in case["strategies"] if s not in baseline], case["weights"]
        baseline |= tokens(folder / name, kind, new, weights=weights)
        mesh = specjax.make_mesh(case["mesh"], ways)
        where = mesh, ways, case["pad"], weights
        found["tokens"].append(tokens(folder / name, kind, case["strategies"], *where))
        found["shares"].append(shares(folder / name, kind, case["strategies"][0], *where))
        if case["slots"]:
            alone = tokens(folder / name, kind, case["strategies"], weights=weights, slots=True)
            filled = tokens(folder / name, kind, case["strategies"], *where, slots=True)
            found["slots"].append([alone, filled])
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
