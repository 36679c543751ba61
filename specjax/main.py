"""`python -m specjax.main --config=configs/X.py --workdir=DIR`: runs one experiment."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jax

from specjax import jobs
from specjax.contracts import reference
from specjax.contracts.registry import (
    DRAFTERS,
    FAMILIES,
    METRICS,
    OBJECTIVES,
    READERS,
    RULES,
    TASKS,
)
from specjax.experiments import DISTRIBUTED
from specjax.experiments.config.command_line import flags_text, help_text, parse
from specjax.experiments.config.validation import check_config
from specjax.reporting.summary import verbosity
from specjax.runtime import processes
from specjax.runtime.errors import TerminationRequest, UserError

CACHE = "SPECJAX_COMPILATION_CACHE"
"""Environment variable with the folder of compiled programs; empty turns the cache off."""

REGISTRIES = (DRAFTERS, READERS, RULES, OBJECTIVES, TASKS, METRICS, FAMILIES)
"""Modules that `--helpfull` lists."""

_SHORT_HELP = {"--help", "-h"}

SIGTERM = 143
"""Exit code after SIGTERM, as in shells; launchers restart such a run."""

_EXHAUSTED = "RESOURCE_EXHAUSTED"
"""Part of XLA's error about a device without memory."""


def main(argv: list[str]) -> int:
    """Parses the flags, runs the experiment, returns the exit code; may be called again."""
    try:
        if _SHORT_HELP & set(argv[1:]):
            print(__doc__, help_text([arg for arg in argv if arg not in _SHORT_HELP]), sep="\n\n")
            return 0
        if "--helpfull" in argv[1:]:
            print(__doc__, flags_text(), reference.format_help(*REGISTRIES), sep="\n")
            return 0
        request = parse(argv)
        if request.dry_run:
            jobs.plan_in("--workdir", request.config, request.workdir)
            return 0
        if request.distributed:
            check_config(request.config)
            join(request.config.experiment)
        enable_compilation_cache()
        with processes.mute_other_processes(), verbosity(request.verbose):
            jobs.run_in("--workdir", request.config, request.workdir)
    except UserError as error:
        print(f"specjax: {error}", file=sys.stderr)
        return 2
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and _EXHAUSTED not in str(error):
            raise
        words = next(iter(str(error).splitlines()), "no more could be had")
        print(f"specjax: memory is not enough: {words}; try smaller batches", file=sys.stderr)
        return 2
    except TerminationRequest as error:
        print(f"specjax: {error}", file=sys.stderr)
        return SIGTERM
    except KeyboardInterrupt:
        print("specjax: interrupted", file=sys.stderr)
        return 130
    return 0


def join(experiment: str) -> None:
    """Joins the other processes of this run.

    Raises:
      UserError: when the other processes are unknown, or the experiment only runs in one.
    """
    processes.join()
    if processes.has_several() and experiment not in DISTRIBUTED:
        raise UserError(
            f"config.experiment is {experiment!r}; with several processes it must be"
            f" {' or '.join(DISTRIBUTED)}"
        )


def enable_compilation_cache() -> None:
    """Keeps compiled programs between runs."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "specjax" / "xla"
    folder = os.environ.get(CACHE, str(default))
    if folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


if __name__ == "__main__":
    sys.exit(processes.exit_together(main, sys.argv))
