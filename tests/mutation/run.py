"""Puts deliberate faults into a copy of the package, one at a time, and says which tests see them.

    python tests/mutation/run.py [NAME ...] [--list]

A fault is caught when the tests that it names fail, or hang: the fast ones, or where these pass the
slow ones. All must be: the script exits with 1 and names those that were not. It runs for about
half a minute a fault on two cores, and longer where slow tests have to look.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("specjax", "tests", "configs", "docs", "pyproject.toml", "setup.py")
HANGS = {"not slow": 300, "slow": 3600}
"""Seconds after which tests hang: without a fault they take a minute or two, the slow ones more."""

NO_TESTS = 5
"""What pytest ends with where a fault names no fast tests, or no slow ones."""

FLAGS = " ".join((ROOT / "tests" / "support" / "xla_flags.txt").read_text("utf-8").split())


def main() -> None:
    """Runs the chosen faults, all by default."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", help="parts of the names of faults")
    parser.add_argument("--list", action="store_true", help="only say which there are")
    args = parser.parse_args()
    chosen = [f for f in FAULTS if not args.names or any(name in f.name for name in args.names)]
    if args.list:
        print("\n".join(fault.name for fault in chosen))
        return
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder)
        for name in KEPT:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copied / name)
        missed = [fault.name for fault in chosen if not caught(fault, copied)]
    print(f"{len(chosen) - len(missed)} of {len(chosen)} faults were caught")
    if missed:
        sys.exit("not caught: " + "; ".join(missed))


def caught(fault: Fault, copied: Path) -> bool:
    """Whether the fault's tests fail with it; the copy is as it was afterwards."""
    file = copied / "specjax" / fault.file
    whole = file.read_text("utf-8")
    file.write_text(apply_fault(fault, whole), "utf-8")
    start = time.monotonic()
    try:
        seen = any(fails(fault, part, copied) for part in HANGS)
    finally:
        file.write_text(whole, "utf-8")
    print(f"{'caught' if seen else 'MISSED'}  {time.monotonic() - start:5.0f} s  {fault.name}")
    return seen


def apply_fault(fault: Fault, text: str) -> str:
    """The file with the fault.

    Raises:
      ValueError: when the text that it replaces is not there exactly once.
    """
    if text.count(fault.old) != 1:
        raise ValueError(f"{fault.name}: {fault.file} has {text.count(fault.old)} of {fault.old!r}")
    return text.replace(fault.old, fault.new)


def list_tests(fault: Fault) -> list[str]:
    """What pytest is given, where words in quotes are one argument."""
    return shlex.split(fault.tests)


def fails(fault: Fault, part: str, copied: Path) -> bool:
    """Whether one of the fault's fast or slow tests fails; they stop at the first that does."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", part, *list_tests(fault)]
    env = os.environ | {"XLA_FLAGS": f"{FLAGS} {os.environ.get('XLA_FLAGS', '')}"}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    limit = HANGS[part]
    try:
        done = subprocess.run(command, cwd=copied, env=env, check=False, timeout=limit, **quiet)
    except subprocess.TimeoutExpired:
        return True  # a decode that does not end is seen by whoever waits for it
    if done.returncode not in (0, 1, NO_TESTS):
        sys.exit(f"{fault.name}: pytest ended with {done.returncode}, which is no failed test")
    return done.returncode == 1


if __name__ == "__main__":
    main()
