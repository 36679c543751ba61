"""Experiments from Python: what `python -m specjax.main` does with a config, without its flags.

config = specjax.decode_config(target="runs/pair/target", drafter="runs/pair/drafter", ...)
results = specjax.run(config, "runs/mine")
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from specjax.errors import UserError
from specjax.experiments import JOBS
from specjax.experiments.config.templates import check_shape
from specjax.experiments.config.topology import check_topology
from specjax.locking import alone_in
from specjax.writing import check_folder, naming_write_errors


def run(config: ConfigDict, workdir: str | Path) -> Any:
    """Runs the experiment of a config; returns what it found, as results.json in `workdir` has it.

    `specjax.decode_config` and `specjax.train_config` make such configs.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    module = _checked(config, dry_run=False)
    check_folder("workdir", Path(workdir))
    with naming_write_errors("workdir", Path(workdir)), alone_in("workdir", Path(workdir)):
        return module.run(config, Path(workdir))


def plan(config: ConfigDict) -> None:
    """Prints what `run` would need, without downloading or allocating anything.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    _checked(config, dry_run=True).plan(config)


def job_of(config: ConfigDict) -> ModuleType:
    """The module whose `run` and `plan` do what a checked config asks for."""
    return importlib.import_module(f"specjax.experiments.{JOBS[config.experiment]}")


def _checked(config: Any, dry_run: bool) -> ModuleType:
    if not isinstance(config, ConfigDict):
        raise UserError(
            f"config is {config!r}; it must be a ConfigDict, as specjax.decode_config() makes one"
        )
    check_shape(config)
    check_topology(config, dry_run)
    return job_of(config)
