"""The flags of `python -m specjax.main`: config file, changed fields, workdir."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from absl import flags
from ml_collections import ConfigDict, config_flags

from specjax.experiments.config.file import read_config
from specjax.experiments.config.open_flags import parse_flags
from specjax.experiments.config.validation import schema_fields
from specjax.runtime.errors import UserError
from specjax.runtime.files import check_regular

DEFAULT_CONFIG = Path(__file__).parents[1] / "recipes" / "quickstart.py"
_PREFIX = "--config."

_WIDTH, _SHOWN = 100, 28
"""Columns of the help, and of a field and its value next to its description."""


@dataclasses.dataclass(frozen=True)
class Request:
    """A parsed command line."""

    config: ConfigDict
    workdir: Path
    dry_run: bool
    distributed: bool  # whether this process is one of several
    verbose: bool  # whether all figures are printed, not the main table alone


def parse(argv: Sequence[str]) -> Request:
    """Parses a command line; keeps no state between calls.

    Raises:
      UserError: when a flag, the config file or a field cannot be used.
    """
    values = _flags()
    _check_flag_files(argv)
    try:
        rest = values(list(argv), known_only=True)
    except flags.Error as error:
        raise UserError(_first_line(error)) from None
    place = values.config or str(DEFAULT_CONFIG)
    config = _apply_flags(read_config(place), rest)
    name = Path(place.partition(":")[0]).stem
    workdir = Path(values.workdir or Path("runs") / name)
    return Request(config, workdir, values.dry_run, values.distributed, values.verbose)


def help_text(argv: Sequence[str]) -> str:
    """Help text of the command line's config, its fields, and the other flags.

    Raises:
      UserError: when a flag or the config file cannot be used.
    """
    values = _flags()
    try:
        values(list(argv), known_only=True)
    except flags.Error as error:
        raise UserError(_first_line(error)) from None
    place = values.config or str(DEFAULT_CONFIG)
    others = ", ".join(f"--{name}" for name in values if name != "config")
    return (
        f"{config_help(place)}\n\n"
        f"Other flags: {others}.\n"
        "All flags, drafters, rules and tasks with their fields: --helpfull. Fields in whole: "
        "docs/reference/config.md"
    )


def config_help(place: str) -> str:
    """The docstring of a config file and a line for each of its fields.

    Raises:
      UserError: when the file gives no config.
    """
    config = read_config(place)
    source = Path(place.partition(":")[0]).read_text("utf-8")
    lines = [
        _line(name, config[name], field.help)
        for name, field in schema_fields(config).items()
        if name in config
    ]
    head = "Fields, each a flag such as --config.seed=1, and their values in this config:"
    return "\n".join([_docstring(source) or place, "", head, *lines])


def _docstring(source: str) -> str:
    """The docstring of a module as written in its file, with line breaks."""
    tree = ast.parse(source)
    first = tree.body[0] if ast.get_docstring(tree) is not None else None
    if not isinstance(first, ast.Expr):
        return ""
    return (ast.get_source_segment(source, first.value) or "").strip("rR\"'\n ")


def _line(name: str, value: Any, words: str) -> str:
    """One line: a field, its value and its description, truncated."""
    if isinstance(value, ConfigDict):
        words = "; ".join(filter(None, [", ".join(map(str, value)), words]))
        shown = f"  {name}.*" if value else f"  {name}.NAME"
    else:
        shown = f"  {name}={value!r}"
    text = f"{shown:{_SHOWN}}  {words}".rstrip()
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 3]}..."


def flags_text() -> str:
    """Description of the flags."""
    return _flags().get_help()


def _flags() -> flags.FlagValues:
    """All flags except those of config fields."""
    values = flags.FlagValues()
    values.set_gnu_getopt(True)  # fields and flags in any order
    flags.DEFINE_string(
        "config",
        str(DEFAULT_CONFIG),
        "The experiment; fields are set by flags such as --config.batch_size=4.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "workdir",
        None,
        "Where results go; runs/<config name> when not given.",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "dry_run",
        False,
        "Only print models, parameters, memory per device and strategies; allocates nothing. With"
        " --config.topology=v4:2x2x1 (v5e, v5p, v6e) also compile for these TPUs, which needs"
        " libtpu (the extra 'tpu') and no TPU, and write plan.json.",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "distributed",
        False,
        "This process is one of several, on this machine or on many (docs/how_to/clusters.md).",
        flag_values=values,
    )
    flags.DEFINE_boolean(
        "verbose",
        False,
        "Print all figures of a decode run, not one table alone; report.html has them either way.",
        flag_values=values,
    )
    return values


def _check_flag_files(argv: Sequence[str]) -> None:
    """Refuses pipes and devices as files of flags, which absl would wait for."""
    for argument, following in itertools.pairwise([*argv, ""]):
        name, equals, file = argument.partition("=")
        if name in ("--flagfile", "-flagfile"):
            check_regular(file if equals else following)


def _apply_flags(config: ConfigDict, argv: Sequence[str]) -> ConfigDict:
    """The config with the fields that its flags set."""
    values = flags.FlagValues()
    config, argv = parse_flags(config, argv)
    known = config.copy_and_resolve_references()
    try:
        config_flags.DEFINE_config_dict("config", config, flag_values=values, sys_argv=list(argv))
        rest = values(list(argv))
    except flags.Error as error:
        raise UserError(_first_line(error)) from None
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(_bad_field(known, argv, error)) from None
    if len(rest) > 1:
        raise UserError(f"unexpected argument {rest[1]!r}; fields are set as {_PREFIX}field=value")
    return values.config


def _bad_field(config: ConfigDict, argv: Sequence[str], error: Exception) -> str:
    """One sentence about an unknown `--config.field` flag."""
    for argument in argv[1:]:
        if not argument.startswith(_PREFIX):
            continue
        path = argument.removeprefix(_PREFIX).split("=")[0].split(".")
        node = config
        for depth, field in enumerate(path):
            if not isinstance(node, ConfigDict) or field not in node:
                known = list(node) if isinstance(node, ConfigDict) else []
                near = difflib.get_close_matches(field, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"fields are {', '.join(known)}"
                return f"config has no field {'.'.join(path[: depth + 1])!r}; {hint}"
            node = node[field]
    return f"a {_PREFIX[:-1]} flag has a value of the wrong type: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
