"""Checkpoints of a training run: asynchronous, atomic, the last one and the best one kept.

A run killed at any moment leaves whole checkpoints only. The position in the data is the step
itself, as batches are a function of it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers as managers

from specjax.runtime.errors import UserError
from specjax.runtime.files import is_full, shorten_path
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
        self._folder = folder.absolute()
        self._manager = ocp.CheckpointManager(
            self._folder,
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
        """Copies the state and writes it while training goes on.

        Raises:
          UserError: when the disk was too full for this one, or for the one before.
        """
        step = int(state.step)
        with self._naming_full_disk():
            self._manager.save(step, args=ocp.args.StandardSave(state), metrics=metrics)

    def restore(self, step: int, like: TrainState) -> TrainState:
        """The state of a step, in the shapes and on the devices of `like`."""
        abstract = jax.tree.map(_abstract, like)
        restored = self._manager.restore(step, args=ocp.args.StandardRestore(abstract))
        return cast(TrainState, restored)  # Orbax types it Any or a mapping

    def wait(self) -> None:
        """Returns when everything is on disk.

        Raises:
          UserError: when the disk is full.
        """
        with self._naming_full_disk():
            self._manager.wait_until_finished()

    def __enter__(self) -> Checkpoints:
        _ORBAX_LOG.addFilter(_is_not_of_a_full_disk)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Finishes what is being written, also when training has failed."""
        try:
            with self._naming_full_disk():
                self._manager.close()
        except UserError:
            if error is None:  # else the run says what came first
                raise
        finally:
            _ORBAX_LOG.removeFilter(_is_not_of_a_full_disk)

    @contextlib.contextmanager
    def _naming_full_disk(self) -> Iterator[None]:
        """A refusal that says what is kept, in place of Orbax's error about a full disk."""
        try:
            yield
        except Exception as error:
            if not is_full(error):
                raise
            self._manager.reload()
            kept = self._manager.latest_step()
            what = "none is kept yet" if kept is None else f"that of step {kept:,} is kept"
            where = "begins anew" if kept is None else "goes on from there"
            raise UserError(
                f"workdir {shorten_path(self._folder.parent)!r} has no room for a checkpoint; "
                f"{what}:"
                f" make room and start the same run again, which {where}"
            ) from None


_ORBAX_LOG = logging.getLogger("absl")


def _is_not_of_a_full_disk(record: logging.LogRecord) -> bool:
    """Whether Orbax may log it: of a full disk it logs a traceback in each of its threads."""
    return not (record.exc_info and is_full(record.exc_info[1]))


def _abstract(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
