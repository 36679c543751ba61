"""Experiments from Python: runs configs like `python -m specjax.main`, without flags.

config = specjax.decode_config(target="runs/pair/target", drafter="runs/pair/drafter", ...)
results = specjax.run(config, "runs/mine")
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from specjax.accelerators.topology import use_no_tpu
from specjax.experiments import JOBS
from specjax.experiments.config.topology import check_topology
from specjax.experiments.config.validation import check_config
from specjax.runtime.errors import UserError
from specjax.runtime.files import alone_in, check_folder, naming_write_errors
from specjax.runtime.json_files import write_json

PLAN = "plan.json"
"""File in the workdir: a plan for a topology."""


def run(config: ConfigDict, workdir: str | Path) -> Any:
    """Runs the experiment of a config; returns the content of results.json in `workdir`.

    `specjax.decode_config` and `specjax.train_config` make such configs.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    return run_in("workdir", config, Path(workdir))


def run_in(field: str, config: ConfigDict, workdir: Path) -> Any:
    """Runs the experiment of a config in a workdir; errors name its `field`."""
    module = find_job(config, dry_run=False)
    check_folder(field, workdir)
    with naming_write_errors(field, workdir), alone_in(field, workdir):
        return module.run(config, workdir)


def plan(config: ConfigDict, workdir: str | Path | None = None) -> None:
    """Prints what `run` would need, without downloading or allocating anything.

    With `config.topology` programs are compiled, and plan.json is written into a `workdir`.

    Raises:
      UserError: naming the field, the value and what is allowed.
    """
    plan_in("workdir", config, None if workdir is None else Path(workdir))


def plan_in(field: str, config: ConfigDict, workdir: Path | None) -> None:
    """Plans the experiment of a config with a workdir; errors name its `field`."""
    module = find_job(config, dry_run=True)
    if config.get("topology"):
        if workdir is not None:
            check_folder(field, workdir)
        use_no_tpu()
    content = module.plan(config)
    if content and workdir is not None:
        workdir.mkdir(parents=True, exist_ok=True)
        write_json(workdir / PLAN, content)
        print(f"{PLAN} in {workdir}")


def find_job(config: Any, dry_run: bool) -> ModuleType:
    """The module with `run` and `plan` of a config's experiment.

    Raises:
      UserError: when the config is none, or lacks a field of its experiment.
    """
    if not isinstance(config, ConfigDict):
        raise UserError(
            f"config is {config!r}; it must be a ConfigDict, as specjax.decode_config() makes one"
        )
    check_config(config)
    check_topology(config, dry_run)
    return importlib.import_module(f"specjax.experiments.{JOBS[config.experiment]}")
