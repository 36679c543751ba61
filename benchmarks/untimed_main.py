"""`specjax.main` that times neither model calls, which are said to take a millisecond, nor rounds.

    PYTHONPATH=CHECKOUT python benchmarks/untimed_main.py --config=configs/translate.py ...

For `same_tokens.py`: timing takes longer than decoding, and no token depends on it. Its predictions
mean nothing.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import jax.numpy as jnp

import specjax
from specjax import main

ROOMS = ("measuring", "evaluation")
"""Where checkouts keep their stopwatch: now, and before rooms were divided."""

PRICED = ("can_be_priced", "priced")
"""What says of a decoder whether its rounds are timed: now, and before."""


def stop_timing() -> None:
    """Replaces the stopwatch's look at the clock, and the decodes and calls that it would time."""
    # Looked for as a folder: an editable install of another checkout would have the module.
    room = next(name for name in ROOMS if (Path(specjax.__file__).parent / name).is_dir())
    stopwatch = importlib.import_module(f"specjax.{room}.stopwatch")
    assert callable(stopwatch._seconds) and callable(stopwatch._call_often)
    stopwatch._call_often = lambda *args: jnp.int32(0)
    stopwatch._compile = lambda run: None  # where loops are compiled ahead of their turn
    stopwatch._seconds = lambda run, steps: 1e-3 * (1 + int(steps))
    pricing = importlib.import_module("specjax.experiments.decode.pricing")
    names = [name for name in PRICED if hasattr(pricing, name)]
    assert names
    for name in names:
        setattr(pricing, name, lambda decoder: False)


if __name__ == "__main__":
    stop_timing()
    sys.exit(main.main(sys.argv))
