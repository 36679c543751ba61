"""Checkpoints of a training run: asynchronous, atomic, the last and the best one kept.

An interrupted run leaves only complete checkpoints. The position in the data is the step itself,
because batches are a function of it.
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
        """Copies the state and writes it during further training.

        Raises:
          UserError: when the disk was too full for this checkpoint or the previous one.
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
        """Waits until everything is on disk.

        Raises:
          UserError: when the disk is full.
        """
        with self._naming_full_disk():
            self._manager.wait_until_finished()

    def __enter__(self) -> Checkpoints:
        _ORBAX_LOG.addFilter(_is_not_of_a_full_disk)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Finishes pending writes, also when training has failed."""
        try:
            with self._naming_full_disk():
                self._manager.close()
        except UserError:
            if error is None:  # otherwise the run reports the first error
                raise
        finally:
            _ORBAX_LOG.removeFilter(_is_not_of_a_full_disk)

    @contextlib.contextmanager
    def _naming_full_disk(self) -> Iterator[None]:
        """Replaces Orbax's error about a full disk by one that names the last checkpoint."""
        try:
            yield
        except Exception as error:
            if not is_full(error):
                raise
            self._manager.reload()
            kept = self._manager.latest_step()
            what = "none is kept yet" if kept is None else f"that of step {kept:,} is kept"
            where = "starts from the beginning" if kept is None else "goes on from there"
            raise UserError(
                f"workdir {shorten_path(self._folder.parent)!r} has no room for a checkpoint; "
                f"{what}:"
                f" make room and start the same run again, which {where}"
            ) from None


_ORBAX_LOG = logging.getLogger("absl")


def _is_not_of_a_full_disk(record: logging.LogRecord) -> bool:
    """Log filter: Orbax logs a full disk as a traceback in each of its threads."""
    return not (record.exc_info and is_full(record.exc_info[1]))


def _abstract(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding)
