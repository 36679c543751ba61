"""Checkpoints of a training run: asynchronous, atomic, the last one and the best one kept.

A run killed at any moment leaves whole checkpoints only. The position in the data is the step
itself, as batches are a function of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as managers

from specjax.training.step import TrainState


class Checkpoints:
    """The checkpoints in a folder; `metric` is the one whose best value is kept."""

    def __init__(self, folder: Path, metric: str, largest: bool) -> None:
        keep = managers.AnyPreservationPolicy(
            [
                managers.LatestN(1),
                managers.BestN(get_metric_fn=lambda m: m[metric], reverse=not largest, n=1),
            ]
        )
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
            options=ocp.CheckpointManagerOptions(
                preservation_policy=keep,
                best_fn=lambda m: m[metric],
                best_mode="max" if largest else "min",
                cleanup_tmp_directories=True,
            ),
        )

    def latest(self) -> int | None:
        """The last step that was saved."""
        return self._manager.latest_step()

    def best(self) -> int | None:
        """The step with the best metric."""
        return self._manager.best_step()

    def save(self, state: TrainState, metrics: dict[str, float]) -> None:
        """Copies the state and writes it while training goes on."""
        step = int(state.step)
        self._manager.save(step, args=ocp.args.StandardSave(state), metrics=metrics)

    def restore(self, step: int, like: TrainState) -> TrainState:
        """The state of a step, in the shapes and on the devices of `like`."""
        abstract = jax.tree.map(_abstract, like)
        return self._manager.restore(step, args=ocp.args.StandardRestore(abstract))

    def wait(self) -> None:
        """Returns when everything is on disk."""
        self._manager.wait_until_finished()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *error: object) -> None:
        """Finishes what is being written, also when training has failed."""
        self._manager.close()


def _abstract(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
