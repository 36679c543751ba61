"""A training run that kills itself with SIGKILL; run by test_trainer.py in a process of its own.

    killed.py WORKDIR STEPS DELAY WHEN

The kill comes DELAY seconds after the start of the process (WHEN "start") or after its first step
("steps"); WHEN "never" runs to the end and leaves `final.npy` and `seconds`, those of its steps.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "support"))
from toy import evaluate, run  # noqa: E402

from specjax.training.trainer import fit  # noqa: E402

workdir, steps, delay, when = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
times: list[float] = []


def kill_later() -> None:
    threading.Timer(delay, os.kill, (os.getpid(), signal.SIGKILL)).start()


def watch(params, step, batch):
    """Called before every step; the first one compiles."""
    times.append(time.perf_counter())
    if len(times) == 2 and when == "steps":
        kill_later()
    return batch


if when == "start":
    kill_later()
params = fit(run(steps, evaluate=evaluate, evaluate_every=10, prepare=watch), workdir)
np.save(workdir / "final.npy", np.concatenate([np.ravel(x) for x in jax.tree.leaves(params)]))
(workdir / "seconds").write_text(str(times[-1] - times[1] if times else 0.0), "utf-8")
