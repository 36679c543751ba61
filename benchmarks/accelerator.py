"""How fast specjax decodes models of published sizes on the accelerator at hand.

    python benchmarks/accelerator.py --out=runs/accelerator --huggingface
    python benchmarks/accelerator.py --out=runs/accelerator --report

Random weights in bfloat16, made on the device; nothing is downloaded. Target calls against the
memory bound, the cost of drafters (c) and of verification (v), and decodes at the acceptance rates
of Leviathan et al. (2023): the drafter runs at its full cost and proposes the target's own greedy
tokens, wrong at that rate (planted.py). Outputs are compared with autoregressive ones. With
--huggingface the same in torch.

Every measurement is repeated in turn with its baseline and added to results.json in --out; what is
there is not measured again, so a command that was stopped goes on when it is given again. On GPUs
CUDA command buffers are measured as XLA sets them and turned off, each in processes of its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import planted
from accelerator_results import FILE, Results, report
from contests import ROOM, Loaded, Texts, Unit, alternate, decodes, units
from flags import Parser

from specjax.measuring.environment import environment
from specjax.measuring.roofline import COPIED, copy_bandwidth
from specjax.runtime.errors import UserError
from specjax.runtime.files import check_folder

HUGGINGFACE = "huggingface"
BUFFERS = {"default": "", "off": "--xla_gpu_enable_command_buffer="}
"""XLA's flags by setting; an empty list of commands turns command buffers off."""

REFUSED = 2
"""Exit code of a mistake in what was given."""

NO_MEMORY = ("RESOURCE_EXHAUSTED", "out of memory")
"""How XLA and torch say that memory is not enough."""

COPIED_ON_ACCELERATOR = 2**31
"""Bytes of the copy that is timed there: a shorter one would wait for its launch."""


class Part(NamedTuple):
    """What one process measures."""

    setting: str
    pair: str
    number: int  # of the pass


def parse(argv: list[str]) -> argparse.Namespace:
    """The flags.

    Raises:
      UserError: one sentence that names a flag, its value and what is allowed.
    """
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flag = parser.add_argument
    flag("--out", type=Path, required=True, help=f"folder of {FILE} and of compiled programs")
    flag("--shapes", default="t5xxl,llama2_13b", help=f"of {', '.join(planted.PAIRS)}")
    flag("--batches", default="1,4,16,64", help="rows of a timed call; decodes have one")
    flag("--lengths", default="1,2,3,5,7", help="drafted tokens whose verification is timed")
    flag("--prompt_tokens", default="256")
    flag("--new_tokens", default="128")
    flag("--repeats", default="5", help="of every measurement in a pass")
    flag("--passes", default="2", help="over all settings, the second in the other order")
    flag("--command_buffers", default="default,off", help="settings; other than default on GPUs")
    flag("--huggingface", action="store_true", help="also generate() of torch and transformers")
    flag("--minutes", default="0", help="start no measurement later than this; 0: go on to the end")
    flag("--bandwidth", default="0", help="GB/s of device memory; 0: what is known of the device")
    flag("--report", action="store_true", help="print the tables and measure nothing")
    flag("--part", help=argparse.SUPPRESS)
    flag("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    for name in ("shapes", "command_buffers"):
        known = planted.PAIRS if name == "shapes" else BUFFERS
        setattr(args, name, _words(name, getattr(args, name), list(known)))
    args.batches = _integers("batches", args.batches, 1, 4096)
    args.lengths = _integers("lengths", args.lengths, 1, ROOM - 1)
    bounds = {"prompt_tokens": (1, 1024), "new_tokens": (2, 1024)}
    for name in ("prompt_tokens", "new_tokens", "repeats", "passes"):
        (number,) = _integers(name, getattr(args, name), *bounds.get(name, (1, 1000)), most=1)
        setattr(args, name, number)
    if args.huggingface and not all(map(importlib.util.find_spec, ("torch", "transformers"))):
        raise UserError(
            "--huggingface is set; it must not be where torch or transformers is missing"
        )
    args.minutes, args.bandwidth = (_number(name, args) for name in ("minutes", "bandwidth"))
    return args


def _words(name: str, given: str, known: list[str]) -> list[str]:
    words = list(dict.fromkeys(given.split(",")))
    for word in words:
        if word not in known:
            raise UserError(f"--{name} has {word!r}; it must be of {', '.join(known)}")
    return words


def _integers(name: str, given: str, low: int, high: int, most: int = 99) -> list[int]:
    words = list(dict.fromkeys(given.split(",")))
    if len(words) > most or not all(w.isdecimal() and low <= int(w) <= high for w in words):
        what = "an integer" if most == 1 else "integers with commas between, each"
        raise UserError(f"--{name} is {given!r}; it must be {what} from {low} to {high}")
    return [int(word) for word in words]


def _number(name: str, args: argparse.Namespace) -> float:
    given = getattr(args, name)
    try:
        number = float(given)
    except ValueError:
        number = -1.0
    if not 0.0 <= number < float("inf"):
        raise UserError(f"--{name} is {given!r}; it must be a number of at least 0")
    return number


def list_units(args: argparse.Namespace, part: Part) -> list[Unit]:
    """The units of a part."""
    pair = planted.PAIRS[part.pair]
    found = (
        decodes(pair) if part.setting == HUGGINGFACE else units(pair, args.batches, args.lengths)
    )
    return list(found)


def list_missing(args: argparse.Namespace, part: Part, results: Results) -> list[Unit]:
    """The units of a part that are not measured yet; command buffers are of GPUs."""
    if part.setting == "off" and results.about.get("platform", "gpu") != "gpu":
        return []
    return [
        unit for unit in list_units(args, part) if not results.has(part[0], part[1], unit, part[2])
    ]


def parts(args: argparse.Namespace) -> Iterator[Part]:
    """All parts in their order: every second pass goes through the settings from behind."""
    settings = args.command_buffers + [HUGGINGFACE] * args.huggingface
    for number, pair in itertools.product(range(args.passes), args.shapes):
        for setting in settings if number % 2 == 0 else settings[::-1]:
            yield Part(setting, pair, number)


def measure(args: argparse.Namespace, argv: list[str]) -> int:
    """Starts a process for each part that lacks something, until the time is over.

    Returns 0, or the exit code of a process that failed. What it refused ends all, a crash does not
    keep the other parts from being measured.
    """
    until = time.time() + 60 * args.minutes if args.minutes else float("inf")
    code = 0
    for part in parts(args):
        count = len(list_missing(args, part, Results(args.out)))
        if count and time.time() < until:
            print(f"{part.pair}, {part.setting}, pass {part.number + 1}: {count} to do", flush=True)
            words = ":".join(map(str, part))
            own = [f"--part={words}", f"--until={until}"]
            done = subprocess.run(
                [sys.executable, str(Path(__file__).resolve()), *argv, *own],
                env=variables(part.setting),
                check=False,
            )
            code = done.returncode or code
            if code == REFUSED:
                return code
            if done.returncode:
                print(f"{words} ended with exit code {done.returncode}; see above", flush=True)
    left = sum(len(list_missing(args, part, Results(args.out))) for part in parts(args))
    if left:
        print(f"{left} measurements are left; the same command goes on with them", flush=True)
    return code


def variables(setting: str) -> dict[str, str]:
    """The environment of a process that measures under a setting."""
    found = {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.95", "TQDM_DISABLE": "1", **os.environ}
    if setting == HUGGINGFACE:
        return found | {"JAX_PLATFORMS": "cpu"}  # the memory is torch's
    return found | {"XLA_FLAGS": f"{found.get('XLA_FLAGS', '')} {BUFFERS[setting]}".strip()}


def work(args: argparse.Namespace, part: Part) -> None:
    """Measures what a part lacks, in this process."""
    results = Results(args.out)
    agree(args, results)
    describe_device(part, results)
    todo = list_missing(args, part, results)
    if not todo or over(args):
        return
    texts, pair = Texts(args.prompt_tokens, args.new_tokens), planted.PAIRS[part.pair]
    try:
        loaded = loader(part.setting)(pair, texts)
    except RuntimeError as error:
        for unit in todo:
            results.add(*part[:2], unit, part.number, {"failed": no_memory(error)})
        return
    for index, unit in enumerate(todo, start=1):
        if over(args):
            return
        try:
            row = alternate(loaded.contest(unit), args.repeats)
        except RuntimeError as error:
            row = {"failed": no_memory(error)}
        results.add(*part[:2], unit, part.number, row)
        print(f"  {index} of {len(todo)}: {unit.key}: {format_row(row)}", flush=True)


def over(args: argparse.Namespace) -> bool:
    """Whether no measurement may start any more."""
    return bool(args.until) and time.time() > args.until


def loader(setting: str) -> Any:
    """What makes the models of a pair."""
    if setting != HUGGINGFACE:
        return Loaded.make
    from contests_huggingface import Loaded as InTorch

    return InTorch


def agree(args: argparse.Namespace, results: Results) -> None:
    """Refuses to mix what was measured under other settings."""
    names = ("prompt_tokens", "new_tokens", "repeats")
    results.agree("settings", {name: getattr(args, name) for name in names})


def describe_device(part: Part, results: Results) -> None:
    """Writes down what device is measured; refuses another one than before."""
    if part.setting == HUGGINGFACE:
        results.agree("about", torch_device(results.about.get("platform", "cpu")))
    else:
        if not jax.config.jax_compilation_cache_dir:
            jax.config.update("jax_compilation_cache_dir", str(results.file.parent / "programs"))
        found = environment()
        results.agree("about", {name: found[name] for name in ("device", "platform")})
        results.about.update(packages=found["packages"], python=found["python"])
        if "copy_bandwidth" not in results.about:
            size = COPIED if found["platform"] == "cpu" else COPIED_ON_ACCELERATOR
            results.about["copy_bandwidth"] = copy_bandwidth(size)
    results.save()


def torch_device(platform: str) -> dict[str, Any]:
    """The device of torch; `platform` is that of JAX.

    Raises:
      UserError: when torch has only the processor and JAX more.
    """
    from contests_huggingface import device_name

    if device_name() == "cpu" != platform:
        raise UserError("--huggingface is set, and torch sees no GPU; it must be torch with CUDA")
    versions = {name: importlib.metadata.version(name) for name in ("torch", "transformers")}
    return {"torch_device": device_name(), "torch_packages": versions}


def no_memory(error: RuntimeError) -> str:
    """What is written instead of a measurement for which memory is not enough."""
    if not any(words in str(error) for words in NO_MEMORY):
        raise error
    return "memory is not enough"


def format_row(row: dict[str, Any]) -> str:
    if "failed" in row:
        return row["failed"]
    base, other = (min(row[side]) for side in ("base_ms", "other_ms"))
    return f"{other:.3f} ms against {base:.3f} at best"


def main(argv: list[str]) -> int:
    """Measures what is missing and prints the tables; 1 when tokens differ, 2 for a mistake."""
    try:
        args = parse(argv)
        check_folder("--out", args.out)
        results = Results(args.out)
        if args.part:
            setting, pair, number = args.part.split(":")
            work(args, Part(setting, pair, int(number)))
            return 0
        jax.config.update("jax_platforms", "cpu")  # this process leaves the accelerator alone
        code = 0
        if not args.report:
            agree(args, results)
            code = measure(args, argv)
            results = Results(args.out)
        elif not results.rows:
            raise UserError(f"--out is {str(args.out)!r}; it must be a folder with a {FILE}")
        if results.rows and code != REFUSED:
            print(report(results, args.bandwidth * 1e9 or None))
        return code or int(not all(row.get("same_tokens", True) for row in results.rows))
    except UserError as error:
        print(f"accelerator: {error}", file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
