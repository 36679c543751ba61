"""The processes of one run: how they join, what they must agree on, and how they end.

Every process runs the same program on the same config. What a process decides must not depend on
it: what only it can know, as the time or a file, comes `from_first`.
"""

from __future__ import annotations

import contextlib
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
"""Environment variables beside JAX_COORDINATOR_ADDRESS where nothing else says who is who."""

HEARTBEAT = 60
"""Seconds after which a silent process counts as dead; JAX then aborts the others."""


def join() -> None:
    """Meets the other processes of this run; must come before anything asks for a device.

    On TPU slices, under SLURM and Open MPI JAX knows them; elsewhere the environment names them.

    Raises:
      UserError: when nothing says who they are.
    """
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # With it a process that is asked to end stays, until it is killed.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(**_place(), heartbeat_timeout_seconds=HEARTBEAT)
    except ValueError as error:
        raise UserError(
            f"--distributed finds no other processes ({error}); on a TPU slice, under SLURM or by"
            f" launch/local.sh it does, elsewhere set JAX_COORDINATOR_ADDRESS, {', '.join(_PLACE)}"
        ) from None


def _place() -> dict[str, Any]:
    """What the environment says of the number of processes and the own number."""
    variables = {name: os.environ[name] for name in _PLACE if name in os.environ}
    for name, value in variables.items():
        if not value.isdecimal():
            raise UserError(f"{name} is {value!r}; it must be an integer of at least 0")
    place = {name.removeprefix("JAX_").lower(): int(value) for name, value in variables.items()}
    told = len(place) == len(_PLACE) and "JAX_COORDINATOR_ADDRESS" in os.environ
    return place | ({"cluster_detection_method": "deactivate"} if told else {})


def is_joined() -> bool:
    """Whether this process is one of a run that joined, were it the only one."""
    return jax.distributed.is_initialized()


def has_several() -> bool:
    """Whether there are other processes."""
    return is_joined() and jax.process_count() > 1


def is_first() -> bool:
    """Whether this process is the one that writes and speaks."""
    return not is_joined() or jax.process_index() == 0


@contextlib.contextmanager
def mute_other_processes() -> Iterator[None]:
    """Mutes all processes but the first; what they raise is theirs to say outside."""
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
    """The first process' value, which JSON must be able to hold, in all of them."""
    if not has_several():
        return value
    text = np.frombuffer(json.dumps(value).encode(), np.uint8)
    size = int(multihost_utils.broadcast_one_to_all(np.int32(len(text))))
    sent = text if is_first() else np.zeros(size, np.uint8)
    return json.loads(np.asarray(multihost_utils.broadcast_one_to_all(sent)).tobytes())


def any_process(flag: bool) -> bool:
    """Whether it is so in some process; all must call it."""
    return (
        bool(np.any(multihost_utils.process_allgather(np.asarray(flag)))) if has_several() else flag
    )


@contextlib.contextmanager
def noting_sigterm() -> Iterator[Callable[[], bool]]:
    """Says whether SIGTERM has come, in place of being ended by it; a second one ends.

    Only the main thread may handle signals: elsewhere nothing changes.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    before = signal.getsignal(signal.SIGTERM)

    def note(number: int, frame: Any) -> None:
        asked.set()
        signal.signal(signal.SIGTERM, before)

    signal.signal(signal.SIGTERM, note)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGTERM, before)


def whole(x: jax.Array) -> np.ndarray:
    """An array on the host, put together of what all processes hold."""
    if not isinstance(x, jax.Array) or x.is_fully_addressable or x.is_fully_replicated:
        return np.asarray(x)
    return multihost_utils.process_allgather(x, tiled=True)


def ending(main: Callable[[list[str]], int], argv: list[str]) -> int:
    """The exit code of `main`, once the others are done too.

    After a failure nobody is waited for: they may wait for this process.
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
