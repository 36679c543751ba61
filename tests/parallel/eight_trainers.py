"""Trains models on meshes; run by test_sharded_training.py in a process with eight CPU devices.

Prints one JSON object: by mesh how far the parameters are from those of one device, and which share
of a split weight a device holds; and the same for a run that another mesh resumed.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import numpy as np

from specjax.data.pipeline import Batches
from specjax.models.t5 import T5, T5Config
from specjax.parallel.mesh import make_mesh
from specjax.parallel.sharding import parameter_shardings
from specjax.training.objectives.cross_entropy import CrossEntropy
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup
from specjax.training.trainer import Run, fit

MODEL = T5(
    T5Config(
        vocab_size=64, d_model=24, d_kv=4, d_ff=48, num_heads=8, num_layers=1,
        num_decoder_layers=2, tied=True, scale_outputs=True,
    )
)  # fmt: skip
RNG = np.random.default_rng(0)
ROWS = [(RNG.integers(2, 64, 7).tolist(), RNG.integers(2, 64, 6).tolist()) for _ in range(64)]
STEPS = 6


def run(mesh: Any, accumulate: int) -> Run:
    setup = Setup(MODEL, CrossEntropy(), Optimizer(STEPS, 1e-2, warmup=1), accumulate)
    where = None if mesh is None else parameter_shardings(mesh, MODEL)
    init = jax.jit(MODEL.init, out_shardings=where)
    batches = Batches(ROWS, batch_size=16, bucket=8, seed=0, start_token=0, pad=0)
    start = functools.partial(init, jax.random.key(0))
    return Run("mesh", setup, start, batches.since, mesh=mesh, evaluate_every=3)


def distance(first: Any, second: Any) -> float:
    """The largest difference between two trees of parameters."""
    return max(
        float(np.abs(np.asarray(a) - np.asarray(b)).max())
        for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    )


def share(params: Any) -> float:
    """Share of a feed-forward weight that one device holds."""
    leaf = params["decoder_0"]["ff"]["up"]["kernel"]
    return max(s.data.size for s in leaf.addressable_shards) / leaf.size


def resumed(first: Any, second: Any) -> Any:
    """Three steps on one mesh, the rest on another one."""
    with tempfile.TemporaryDirectory() as folder:
        whole = run(first, 1)
        half = dataclasses.replace(whole, batches=lambda s: itertools.islice(whole.batches(s), 3))
        fit(half, Path(folder))
        return fit(run(second, 1), Path(folder))


def main() -> None:
    alone = fit(run(None, 1))
    found = {}
    for data, ways, accumulate in ((8, 1, 1), (2, 4, 1), (1, 8, 1), (2, 4, 4)):
        mesh = make_mesh({"data": data, "model": ways})
        params = fit(run(mesh, accumulate))
        found[f"{data}x{ways}/{accumulate}"] = [distance(params, alone), share(params)]
    meshes = [make_mesh({"data": d, "model": w}) for d, w in ((2, 4), (4, 2))]
    params = resumed(*meshes)
    found["resumed"] = [distance(params, alone), share(params)]
    json.dump(found, sys.stdout)


main()
