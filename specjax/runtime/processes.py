"""The processes of one run: joining, agreement and ending.

Every process runs the same program on the same config. Decisions must not depend on the process:
local information, such as the time or a file, comes `from_first`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from specjax.runtime.errors import UserError

_PLACE = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
"""Environment variables in addition to JAX_COORDINATOR_ADDRESS for unknown clusters."""

HEARTBEAT = 60
"""Seconds after which a silent process counts as dead; JAX then aborts the others."""

_LONGEST_MS = 30 * 24 * 3600 * 1000
"""How long processes that work apart wait for each other."""

_waits = itertools.count()
"""Names of these waits, the same ones in all processes."""


def join() -> None:
    """Joins the other processes of this run; call before anything uses a device.

    On TPU slices, under SLURM and Open MPI JAX knows them; elsewhere the environment names them.

    Raises:
      UserError: when the other processes are unknown.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # With it a process ignores SIGTERM until it is killed.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(**_place(), heartbeat_timeout_seconds=HEARTBEAT)
    except ValueError as error:
        raise UserError(
            f"--distributed finds no other processes ({error}); on a TPU slice, under SLURM or by"
            f" launch/local.sh it does, elsewhere set JAX_COORDINATOR_ADDRESS, {', '.join(_PLACE)}"
        ) from None


def _place() -> dict[str, Any]:
    """Number of processes and own index from the environment."""
    variables = {name: os.environ[name] for name in _PLACE if name in os.environ}
    for name, value in variables.items():
        if not value.isdecimal():
            raise UserError(f"{name} is {value!r}; it must be an integer of at least 0")
    place = {name.removeprefix("JAX_").lower(): int(value) for name, value in variables.items()}
    is_complete = len(place) == len(_PLACE) and "JAX_COORDINATOR_ADDRESS" in os.environ
    return place | ({"cluster_detection_method": "deactivate"} if is_complete else {})


def is_joined() -> bool:
    """Whether this process has joined a run, even as its only process."""
    return jax.distributed.is_initialized()


def has_several() -> bool:
    """Whether there are other processes."""
    return is_joined() and jax.process_count() > 1


def get_place() -> tuple[int, int]:
    """This process's index, and the number of processes."""
    return (jax.process_index(), jax.process_count()) if is_joined() else (0, 1)


def is_first() -> bool:
    """Whether this process is the one that writes and prints."""
    return not is_joined() or jax.process_index() == 0


@contextlib.contextmanager
def mute_other_processes() -> Iterator[None]:
    """Mutes all processes except the first; does not mute exceptions."""
    if is_first():
        yield
        return
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
    ):
        yield


def from_first(value: Any) -> Any:
    """Broadcasts the first process' JSON-serializable value to all processes."""
    if not has_several():
        return value
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(text))))
    sent = text if is_first() else np.zeros(size, np.uint8)
    return json.loads(np.asarray(multihost_utils.broadcast_one_to_all(sent)).tobytes())


def wait_for_all() -> None:
    """Waits until all processes call it, for days if need be.

    Other functions here may fail after half a minute. When a process dies JAX ends those that wait.
    """
    if has_several():
        from orbax.checkpoint import multihost  # takes seconds

        multihost.get_barrier_sync_fn()(key=f"specjax/{next(_waits)}", timeout_ms=_LONGEST_MS)


def any_process(flag: bool) -> bool:
    """Whether `value` is true in any process; all must call it."""
    return (
        bool(np.any(multihost_utils.process_allgather(np.asarray(flag)))) if has_several() else flag
    )


@contextlib.contextmanager
def noting_sigterm() -> Iterator[Callable[[], bool]]:
    """Records SIGTERM instead of ending; a second one ends the process.

    Only the main thread may handle signals; in other threads nothing changes.
    """
    received = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield received.is_set
        return
    before = signal.getsignal(signal.SIGTERM)

    def note(number: int, frame: Any) -> None:
        received.set()
        signal.signal(signal.SIGTERM, before)

    signal.signal(signal.SIGTERM, note)
    try:
        yield received.is_set
    finally:
        signal.signal(signal.SIGTERM, before)


def whole(x: jax.Array) -> np.ndarray:
    """Gathers an array from all processes on the host."""
    if not isinstance(x, jax.Array) or x.is_fully_addressable or x.is_fully_replicated:
        return np.asarray(x)
    return multihost_utils.process_allgather(x, tiled=True)


def exit_together(main: Callable[[list[str]], int], argv: list[str]) -> int:
    """The exit code of `main`, after all processes are done.

    A failed process does not wait for the others, because they may wait for it.
    """
    try:
        code = main(argv)
    except Exception:
        if not is_joined():
            raise
        traceback.print_exc()
        code = 1
    if is_joined() and code:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    if is_joined():
        jax.distributed.shutdown()
    return code
