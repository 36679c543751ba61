"""Trains models on meshes; run by test_sharded_training.py in a process with eight CPU devices.

    eight_trainers.py CASES

CASES is a JSON object: by name the data and model axes, the micro-batches, whether the run is fully
sharded, its objective, and perhaps another case that goes on after half of its steps. Prints one
JSON object: by case the losses, how far the parameters are from those of one device, the share of a
split weight that a device holds, and its bytes of the whole state.
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

from specjax.data.pipeline import Batches, pad_batch
from specjax.experiments.train.objective import make_frozen
from specjax.experiments.train.subject import make_subject
from specjax.loading import LoadedModel
from specjax.models.base import LanguageModel
from specjax.models.dflash import DFlash, DFlashT5Config
from specjax.models.eagle import Eagle, EagleT5Config
from specjax.models.t5 import T5, T5Config
from specjax.parallel.fully_sharded import FullySharded
from specjax.parallel.mesh import make_mesh
from specjax.parallel.sharding import parameter_shardings
from specjax.training.objectives.blockwise import Blockwise
from specjax.training.objectives.cross_entropy import CrossEntropy
from specjax.training.objectives.dflash import DFlashObjective
from specjax.training.objectives.distillation import Distillation
from specjax.training.objectives.eagle import EagleObjective
from specjax.training.objectives.hydra import Hydra
from specjax.training.objectives.medusa import Medusa
from specjax.training.optimizer import Optimizer
from specjax.training.step import Setup, evaluate_batch
from specjax.training.trainer import Run, fit, initial_state, split_batch

MODEL = T5(
    T5Config(
        vocab_size=64, d_model=24, d_kv=4, d_ff=48, num_heads=8, num_layers=1,
        num_decoder_layers=2, tied=True, scale_outputs=True,
    )
)  # fmt: skip
RNG = np.random.default_rng(0)
ROWS = [(RNG.integers(2, 64, 7).tolist(), RNG.integers(2, 64, 6).tolist()) for _ in range(64)]
STEPS = 6
OBJECTIVES = {
    "cross_entropy": CrossEntropy(),
    "distillation": Distillation(),
    "blockwise": Blockwise(heads=2, trunk="trained"),
    "medusa": Medusa(heads=2),
    "hydra": Hydra(heads=2),
    "eagle": EagleObjective(steps=2),
    "dflash": DFlashObjective(anchors=2),
}
ON_TARGET = dict(
    vocab_size=64, d_model=16, d_kv=4, d_ff=32, num_heads=4, num_layers=0,
    target_width=24, features=(1, 2), cross=2, cross_heads=8, cross_width=4,
)  # fmt: skip
DRAFTERS = {
    # No axis of a mesh divides the number of its ids.
    "eagle": Eagle(
        EagleT5Config(family="eagle_t5", num_decoder_layers=1, draft_vocab=27, **ON_TARGET)
    ),
    "dflash": DFlash(
        DFlashT5Config(
            family="dflash_t5", num_decoder_layers=2, draft_vocab=32, block_size=3, **ON_TARGET
        )
    ),
}


@dataclasses.dataclass(frozen=True)
class Case:
    """How a run lies on the devices."""

    data: int = 1
    model: int = 1
    accumulate: int = 1
    sharded: bool = False  # fully
    objective: str = "cross_entropy"

    @property
    def mesh(self) -> Any:
        baseline = self.data * self.model == 1
        return None if baseline else make_mesh({"data": self.data, "model": self.model})


def make_sharded(case: Case, model: LanguageModel, seed: int) -> LoadedModel:
    """A model with parameters where they belong on the mesh."""
    mesh = case.mesh
    where = None if mesh is None else parameter_shardings(mesh, model, case.sharded)
    params = jax.jit(model.init, out_shardings=where)(jax.random.key(seed))
    return LoadedModel(model, params, mesh=mesh)


def run(case: Case, losses: list[float]) -> Run:
    """A run that notes its loss before the first step and after every one."""
    objective, mesh = OBJECTIVES[case.objective], case.mesh
    sharded = FullySharded(mesh) if case.sharded else None
    start = make_sharded(case, DRAFTERS.get(case.objective, MODEL), 0)
    rates = Optimizer(STEPS, 1e-2, warmup=1)
    setup = Setup(start.model, objective, rates, case.accumulate, sharded=sharded)
    subject = make_subject(objective, start, 2)
    frozen = make_frozen(objective, start, make_sharded(case, MODEL, 1))

    def init() -> Any:
        return subject.params

    heldout = pad_batch(ROWS[:16], 8, 0, 0)

    def evaluate(params: Any) -> dict[str, float]:
        total, count = evaluate_batch(setup, params, frozen, split_batch(heldout, mesh))
        losses.append(float(total / count))
        return {"loss": losses[-1], "latest": len(losses)}

    batches = Batches(ROWS, batch_size=16, bucket=8, seed=0, start_token=0, pad=0)
    return Run(
        "mesh", setup, init, batches.since, evaluate=evaluate, evaluate_every=1, frozen=frozen,
        metric="latest", largest=True, mesh=mesh,
    )  # fmt: skip


def distance(first: Any, second: Any) -> float:
    """The largest difference between two trees of parameters."""
    return max(
        float(np.abs(np.asarray(a) - np.asarray(b)).max())
        for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    )


def count_bytes(tree: Any) -> int:
    """Bytes of a tree on the device that holds most of it."""
    leaves = jax.tree.leaves(tree)
    return sum(max(s.data.nbytes for s in leaf.addressable_shards) for leaf in leaves)


UP = ["up", "kernel"]


def share(params: Any) -> float:
    """Share of a feed-forward weight that one device holds."""
    flat = jax.tree_util.tree_leaves_with_path(params)
    leaf = next(leaf for path, leaf in flat if [key.key for key in path[-2:]] == UP)
    return count_bytes(leaf) / leaf.nbytes


def resume_elsewhere(first: Case, second: Case, losses: list[float]) -> Any:
    """Three steps on one mesh, the rest on another one."""
    with tempfile.TemporaryDirectory() as folder:
        whole = run(first, losses)
        half = dataclasses.replace(whole, batches=lambda s: itertools.islice(whole.batches(s), 3))
        fit(half, Path(folder))
        return fit(run(second, losses), Path(folder))


@functools.cache
def alone(objective: str) -> Any:
    """Losses and last parameters of one device."""
    losses: list[float] = []
    return losses, fit(run(Case(objective=objective), losses))


def outcome(case: Case, later: Case | None = None) -> dict[str, Any]:
    """What a case, and the case that goes on after it, comes to."""
    losses: list[float] = []
    last = later or case
    params = resume_elsewhere(case, later, losses) if later else fit(run(case, losses))
    expected, whole = alone(case.objective)
    return {
        "losses": losses,
        "expected": expected,
        "distance": distance(params, whole),
        "share": share(params),
        "held": count_bytes(initial_state(run(last, []))),
        "held alone": count_bytes(initial_state(run(Case(objective=case.objective), []))),
    }


def main(cases: dict[str, list[dict[str, Any]]]) -> None:
    found = {name: outcome(*(Case(**each) for each in case)) for name, case in cases.items()}
    json.dump(found, sys.stdout)


main(json.loads(sys.argv[1]))
