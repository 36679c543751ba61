"""Which decode programs are what they were? Fingerprints of what JAX is given to compile.

    python benchmarks/programs.py --output=programs.json
    python benchmarks/programs.py --against=programs.json --text=programs

Lowers the decode program of every case of `programs_cases.py`, strategies on tiny models, and
compiles and runs none. A fingerprint is of the program without names (`programs_text.py`): equal
ones compute the same of equal weights and thresholds, which are inputs. With `--against` a line for
each case says whether it is equal, changed, new or gone, and of a changed one which operations are
more or fewer; the exit code is 1 when one is changed or gone. Only fingerprints of one version of
JAX and one platform can be compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
from flags import Parser
from programs_cases import Case, cases
from programs_models import lower_program
from programs_text import normalize, operations, sha256

from specjax.runtime.errors import UserError
from specjax.runtime.files import check_folder
from specjax.runtime.json_files import write_json

REFUSED = 2
PLATFORMS = ("cpu", "cuda", "tpu")
EQUAL, CHANGED, NEW, GONE = VERDICTS = ("equal", "changed", "new", "gone")
FIELDS = {"sha256": str, "lines": int, "operations": dict}
"""Of a fingerprint."""

Fingerprint = Mapping[str, Any]


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The flags.

    Raises:
      UserError: one sentence that names a flag, its value and what is allowed.
    """
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flag = parser.add_argument
    flag("--output", type=Path, help="JSON file of the fingerprints")
    flag("--against", type=Path, help="such a file, to compare with")
    flag("--only", default="", help="cases whose names have this in them")
    flag("--text", type=Path, help="folder of the programs without names, for diff")
    flag("--platform", choices=PLATFORMS, default="cpu", help="whose programs; none is needed here")
    args = parser.parse_args(argv)
    if args.output:
        check_folder("--output", args.output.absolute().parent)
        if args.output.is_dir():
            raise UserError(f"--output is {str(args.output)!r}; it must be a file, not a folder")
    if args.text:
        check_folder("--text", args.text)
    return args


def choose_cases(only: str) -> list[Case]:
    """The cases whose names have `only` in them.

    Raises:
      UserError: when there are none.
    """
    every = list(cases())
    found = [case for case in every if only in case.name]
    if not found:
        raise UserError(
            f"--only is {only!r}; it must be part of the name of one of the {len(every)} cases, as"
            f" {every[0].name!r}"
        )
    return found


def read(file: Path, platform: str) -> dict[str, Fingerprint]:
    """Fingerprints by case that another run wrote.

    Raises:
      UserError: when they are no such, or of another version of JAX or platform.
    """
    where = f"--against is {str(file)!r}; it must be a file that --output wrote"
    try:
        found = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{where}: {error.strerror}") from None
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None
    programs = found.get("programs") if isinstance(found, dict) else None
    if not isinstance(programs, dict) or not all(map(_is_fingerprint, programs.values())):
        raise UserError(f"{where}, and has no fingerprints")
    for name, own in (("jax", jax.__version__), ("platform", platform)):
        if found.get(name) != own:
            raise UserError(f"{where} with {name} {own}, and is of {found.get(name)}")
    return programs


def _is_fingerprint(entry: Any) -> bool:
    return isinstance(entry, dict) and all(
        isinstance(entry.get(name), kind) for name, kind in FIELDS.items()
    )


def fingerprint(text: str) -> dict[str, Any]:
    """What is kept of a program without names."""
    made = sha256(text), len(text.splitlines()), operations(text)
    return dict(zip(FIELDS, made, strict=True))


def verdict(before: Fingerprint | None, after: Fingerprint | None) -> str:
    """One of `VERDICTS`."""
    if before is None or after is None:
        return GONE if after is None else NEW
    return EQUAL if before["sha256"] == after["sha256"] else CHANGED


def difference(before: Fingerprint, after: Fingerprint) -> str:
    """Which operations a changed program has more or fewer of."""
    counts = before["operations"], after["operations"]
    kinds = dict.fromkeys([*counts[0], *counts[1]])
    changes = {kind: counts[1].get(kind, 0) - counts[0].get(kind, 0) for kind in kinds}
    words = [f"{change:+} {kind}" for kind, change in changes.items() if change]
    if not words:
        return "as many operations of each kind, with other constants, types, operands or order"
    return f"{', '.join(words)}; {before['lines']} lines before, {after['lines']} after"


def compare_programs(
    before: Mapping[str, Fingerprint], after: Mapping[str, Fingerprint]
) -> Iterator[tuple[str, str, str]]:
    """Name, verdict and its words, case by case: those that are gone last."""
    for name in (*after, *(name for name in before if name not in after)):
        found = verdict(before.get(name), after.get(name))
        words = f": {difference(before[name], after[name])}" if found == CHANGED else ""
        yield name, found, found + words


def programs(some: Sequence[Case], platform: str) -> Iterator[tuple[str, str]]:
    """Names of cases and their programs without names.

    Raises:
      UserError: when a strategy does not fit its models any more.
    """
    for case in some:
        try:
            yield case.name, normalize(lower_program(case, platform))
        except UserError as error:
            raise UserError(f"the case {case.name!r} cannot be lowered: {error}") from None
        except Exception as error:
            error.add_note(f"in the case {case.name!r}")
            raise


def run(args: argparse.Namespace) -> int:
    """Lowers, writes and compares; returns the exit code."""
    some = choose_cases(args.only)
    before = read(args.against, args.platform) if args.against else {}
    before = {name: entry for name, entry in before.items() if args.only in name}
    made: dict[str, dict[str, Any]] = {}
    start = time.perf_counter()
    for name, text in programs(some, args.platform):
        made[name] = fingerprint(text)
        if args.text:
            file = args.text / f"{name}.mlir"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        if not args.against:
            print(f"{name}: {made[name]['sha256'][:12]}, {made[name]['lines']} lines", flush=True)
    took = time.perf_counter() - start
    if args.output:
        about = {"jax": jax.__version__, "platform": args.platform}
        write_json(args.output, {**about, "programs": made})
    if not args.against:
        print(f"{len(made)} programs in {took:.0f} s")
        return 0
    verdicts = []
    for name, found, words in compare_programs(before, made):
        verdicts.append(found)
        print(f"{name}: {words}")
    print(", ".join(f"{verdicts.count(one)} {one}" for one in VERDICTS) + f" in {took:.0f} s")
    return int(CHANGED in verdicts or GONE in verdicts)


def main(argv: Sequence[str]) -> int:
    jax.config.update("jax_platforms", "cpu")  # an accelerator is left alone
    try:
        return run(parse(argv))
    except UserError as error:
        print(f"programs: {error}", file=sys.stderr)
        return REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
