"""The loop around the training step: progress, logs, evaluation, checkpoints, resumption."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from specjax.models.base import Params
from specjax.parallel.mesh import DATA
from specjax.runtime import processes
from specjax.runtime.errors import TerminationRequest, UserError
from specjax.training.checkpoint import Checkpoints
from specjax.training.log import Log
from specjax.training.objective import Frozen
from specjax.training.step import Setup, TrainState, train_step

LOOK_EVERY = 20
"""Steps between checks of the loss; each check waits for the device."""

DIVERGED = 3.0
"""A run has diverged at this multiple of its lowest loss (plus one nat)."""

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Run:
    """A training run: model, data, evaluation and checkpoints."""

    name: str
    setup: Setup
    init: Callable[[], Params]  # consumed
    batches: Callable[[int], Iterator[Arrays]]  # from a step on, this process' rows of each
    prepare: Callable[[Params, int, Arrays], Arrays] | None = None  # of each step's rows
    evaluate: Callable[[Params], dict[str, float]] | None = None
    evaluate_every: int = 0  # steps between evaluations and checkpoints; 0: only at the end
    frozen: Frozen = dataclasses.field(default_factory=dict)
    metric: str = "loss"  # of the evaluation; its best value is kept
    largest: bool = False
    mesh: Mesh | None = None
    more: Callable[[Path], Any] | None = None  # opens another log in a workdir


def fit(run: Run, workdir: Path | None = None) -> Params:
    """Trains to the end and returns the best parameters, or without evaluation the last ones.

    With a `workdir`, resumes from its last checkpoint and writes checkpoints and logs there.

    Raises:
      UserError: when the loss is not finite or has diverged; the last good
        checkpoint stays.
      AskedToEnd: after SIGTERM, once the step is done and, with a `workdir`, saved.
    """
    state = initial_state(run)
    if workdir is None:
        return _train(run, state, None, None).params
    with Checkpoints(workdir / "checkpoints", run.metric, run.largest) as keeper:
        if (step := keeper.latest()) is not None:
            state = keeper.restore(step, state)
        state = _train(run, state, workdir, keeper)
        keeper.wait()
        best = keeper.best() if run.evaluate else None
        return state.params if best is None else keeper.restore(best, state).params


def initial_state(run: Run) -> TrainState:
    """The initial state, placed on the mesh."""
    params = run.setup.parts(place_arrays(run.init(), run.mesh))
    return place_arrays(run.setup.start(params), run.mesh)


def _train(
    run: Run, state: TrainState, workdir: Path | None, keeper: Checkpoints | None
) -> TrainState:
    folder = workdir if processes.is_first() else None
    last = run.setup.optimizer.steps
    with (
        Log(run.name, folder, int(state.step), last, run.more) as log,
        processes.noting_sigterm() as end_requested,
    ):
        return _loop(run, state, log, keeper, end_requested)


def _loop(
    run: Run,
    state: TrainState,
    log: Log,
    keeper: Checkpoints | None,
    end_requested: Callable[[], bool],
) -> TrainState:
    first, last = int(state.step), run.setup.optimizer.steps
    every = run.evaluate_every or last
    watch = Watch(run.name)
    if run.evaluate and not first:
        log.log_evaluation(0, run.evaluate(state.params))
    stream = run.batches(first) if first < last else iter(())
    losses = []
    for step, batch in zip(range(first + 1, last + 1), stream, strict=False):
        if run.prepare:
            batch = run.prepare(state.params, step - 1, batch)
        state, report = train_step(run.setup, state, run.frozen, assemble_batch(batch, run.mesh))
        losses.append(report)
        log.advance()
        evaluating = step % every == 0 or step == last
        if step % LOOK_EVERY == 0 or evaluating:
            reports = jax.device_get(losses)
            losses = []
            watch.look(step, float(np.mean([r["loss"] for r in reports])))
            rate = float(np.asarray(run.setup.optimizer.schedule()(step - 1)))
            log.log_training(step, reports, rate)
        if evaluating:
            metrics = run.evaluate(state.params) if run.evaluate else {}
            log.log_evaluation(step, metrics)
            if keeper:
                keeper.save(state, {"loss": watch.loss, **metrics})
        # All processes must end at the same step; they synchronize when checking the loss anyway.
        looking = step % LOOK_EVERY == 0 or evaluating or not processes.has_several()
        if step < last and looking and processes.any_process(end_requested()):
            _end(run, state, keeper, kept=evaluating)
    return state


def _end(run: Run, state: TrainState, keeper: Checkpoints | None, *, kept: bool) -> NoReturn:
    """Saves the state, unless it is saved already, and raises."""
    if keeper is None:
        raise TerminationRequest(
            f"training {run.name} stops after step {int(state.step):,}, as requested"
        )
    if not kept:
        # It was not evaluated: any other is better.
        keeper.save(state, {run.metric: -math.inf if run.largest else math.inf})
    keeper.wait()
    raise TerminationRequest(
        f"training {run.name} stops as requested; the same command resumes from step"
        f" {int(state.step):,}"
    )


@dataclasses.dataclass
class Watch:
    """Stops a diverged run."""

    name: str
    lowest: float = float("inf")
    loss: float = float("nan")

    def look(self, step: int, loss: float) -> None:
        """Refuses a mean loss that is not finite or far above the lowest one."""
        if not np.isfinite(loss) or loss > DIVERGED * self.lowest + 1.0:
            raise UserError(
                f"training {self.name} diverged by step {step} (loss {loss:.4g}, lowest"
                f" {self.lowest:.4g}); lower its learning_rate; the last good checkpoint is kept"
            )
        self.lowest, self.loss = min(self.lowest, loss), loss


def assemble_batch(share: Arrays, mesh: Mesh | None) -> Any:
    """The batch of which each process has the rows of its own devices (`own_rows`)."""
    if mesh is None:
        return share
    split = NamedSharding(mesh, PartitionSpec(DATA))
    return {
        name: jax.make_array_from_process_local_data(split, rows) for name, rows in share.items()
    }


def split_batch(batch: Arrays, mesh: Mesh | None) -> Any:
    """Shards the rows of a batch, which every process has, over the mesh's `data` axis."""
    return (
        batch
        if mesh is None
        else shard_arrays(dict(batch), NamedSharding(mesh, PartitionSpec(DATA)))
    )


def shard_arrays(tree: Any, sharding: NamedSharding) -> Any:
    """Shards arrays that every process has."""

    def lay(x: Any) -> jax.Array:
        x = np.asarray(x)
        return jax.make_array_from_callback(x.shape, sharding, x.__getitem__)

    return jax.tree.map(lay, tree)


def place_arrays(tree: Any, mesh: Mesh | None) -> Any:
    """Replicates the leaves of a tree that are not on the mesh yet."""
    if mesh is None:
        return tree

    def place(x: jax.Array) -> jax.Array:
        if isinstance(x.sharding, NamedSharding):
            return x
        return shard_arrays(x, NamedSharding(mesh, PartitionSpec()))

    return jax.tree.map(place, tree)
