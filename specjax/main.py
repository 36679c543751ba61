"""`python -m specjax.main --config=configs/X.py --workdir=DIR`: runs one experiment."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from pathlib import Path

import jax
from absl import flags
from ml_collections import ConfigDict, config_flags

from specjax.errors import UserError
from specjax.experiments.config_file import read_config

EXPERIMENTS = (
    "decode", "engagement", "ngram", "quickstart", "select", "select_curve", "select_data",
    "sweep", "tokenizer", "train", "tune",
)  # fmt: skip
DEFAULT_CONFIG = Path(__file__).parent.parent / "configs" / "quickstart.py"
CACHE = "SPECJAX_COMPILATION_CACHE"
"""Environment variable with the folder of compiled programs; empty turns the cache off."""

FLAGS = flags.FLAGS
_CONFIG = config_flags.DEFINE_config_file(
    "config",
    str(DEFAULT_CONFIG),
    "The experiment; fields are set by flags such as --config.batch_size=4.",
)
_WORKDIR = flags.DEFINE_string(
    "workdir", None, "Where results go; runs/<config name> when not given."
)
_DRY_RUN = flags.DEFINE_boolean(
    "dry_run",
    False,
    "Only print models, parameters, memory per device and strategies; allocates nothing.",
)


def main(argv: list[str]) -> int:
    """Parses the flags, runs the experiment, returns the exit code."""
    if {"--help", "-h", "--helpfull"} & set(argv[1:]):
        print(__doc__, FLAGS.module_help(sys.modules[__name__]), sep="\n")
        return 0
    try:
        _parse(argv)
        config = FLAGS.config
        workdir = Path(_WORKDIR.value or Path("runs") / _config_name())
        experiment = config.get("experiment")
        if experiment not in EXPERIMENTS:
            raise UserError(
                f"config.experiment is {experiment!r}; it must be one of {', '.join(EXPERIMENTS)}"
            )
        module = importlib.import_module(f"specjax.experiments.{experiment}")
        if _DRY_RUN.value:
            module.plan(config)
        else:
            enable_compilation_cache()
            module.run(config, workdir)
    except UserError as error:
        print(f"specjax: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("specjax: interrupted", file=sys.stderr)
        return 130
    return 0


def _parse(argv: list[str]) -> None:
    try:
        rest = FLAGS(argv)
    except flags.Error as error:
        raise UserError(_refusal(error).splitlines()[0]) from None
    except FileNotFoundError as error:
        raise UserError(f"--config file {error.filename!r} does not exist") from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(_bad_override(argv, error)) from None
    if len(rest) > 1:
        raise UserError(f"unexpected argument {rest[1]!r}; fields are set as --config.field=value")
    if not isinstance(FLAGS.config, ConfigDict):
        raise UserError(
            f"--config is {config_flags.get_config_filename(FLAGS['config'])!r}; it must be a file"
            " whose get_config() returns a ConfigDict"
        )


def _refusal(error: BaseException) -> str:
    """What went wrong; the sentence of a config file is below a traceback in the flag's error."""
    found, inner = str(error), error.__context__
    while inner is not None:
        found = str(inner) if isinstance(inner, UserError) else found
        inner = inner.__context__
    return found


def _bad_override(argv: list[str], error: Exception) -> str:
    """One sentence about the `--config.field` flag that the config does not have."""
    config = _unchanged_config(argv)
    for argument in argv[1:]:
        if not argument.startswith("--config."):
            continue
        path = argument.removeprefix("--config.").split("=")[0].split(".")
        node = config
        for depth, field in enumerate(path):
            if not isinstance(node, ConfigDict) or field not in node:
                known = list(node) if isinstance(node, ConfigDict) else []
                near = difflib.get_close_matches(field, known, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"fields are {', '.join(known)}"
                return f"config has no field {'.'.join(path[: depth + 1])!r}; {hint}"
            node = node[field]
    return f"a --config flag has a value of the wrong type: {error}"


def _unchanged_config(argv: list[str]) -> ConfigDict:
    given = next((a.split("=", 1)[1] for a in argv if a.startswith("--config=")), "")
    return read_config(given or str(DEFAULT_CONFIG))


def _config_name() -> str:
    return Path(config_flags.get_config_filename(FLAGS["config"])).stem


def enable_compilation_cache() -> None:
    """Keeps compiled programs between runs."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "specjax" / "xla"
    folder = os.environ.get(CACHE, str(default))
    if folder:
        jax.config.update("jax_compilation_cache_dir", folder)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
